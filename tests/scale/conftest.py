"""Real clusters whose workers have little memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

pytest.importorskip("distributed")

import dask
import dask.array as da
from distributed import Client

from spliter import split
from tests.dask_backend.conftest import start

DATA = 150_000_000
"""Bytes of data that the small worker keeps in memory."""

FREE = 220_000_000
"""Bytes that the small worker may take, beside what it has imported, before Dask pauses it."""

PAGES = 250_000_000
"""Bytes of pages of files that the small worker may have in memory."""

PLENTY = 10**10
"""Memory of a worker that needs not spill, and of one while it is measured."""

PAUSE = 0.8
"""Part of its memory at which Dask pauses a worker, by default."""


def anonymous() -> int:
    """Return the bytes of memory that the process has taken, without the pages of files it maps.

    Of those Linux counts as many as happen to be in memory: 50 to 250 MB for the same imports.
    """
    import psutil

    memory = psutil.Process().memory_info()
    return int(memory.rss - memory.shared)


def limit_memory(dask_worker: Any) -> int:
    """Import what the tests need, and leave the worker little memory beside; return the limit."""
    import spliter_apps.kmeans  # noqa: F401
    import spliter_backends.dask.worker.source  # noqa: F401

    dask_worker.monitor.get_process_memory = anonymous
    limit = round((anonymous() + FREE) / PAUSE)
    dask_worker.memory_manager.memory_limit = limit
    dask_worker.memory_manager.memory_target_fraction = DATA / limit
    return limit


def limit_nanny(dask_worker: Any, limit: int) -> None:
    """Let the nanny, which counts the pages of files, too, end a worker that takes much more."""
    dask_worker.memory_manager.memory_limit = limit + PAGES


@pytest.fixture
def small_worker() -> Iterator[Client]:
    """Client of one worker process with little memory beside its imports.

    How much these take differs from one environment to the next, so the worker is limited after it
    was measured. What it spills is compressed to nearly nothing: a busy disk would need minutes.
    """
    settings = {
        "distributed.worker.memory.target": DATA / PLENTY,
        "distributed.worker.memory.spill-compression": "zlib",
    }
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(settings))
        client = start(stack, n_workers=1, memory_limit=PLENTY)
        x = da.ones(10, chunks=5).persist()
        split(x).close()
        (limit,) = client.run(limit_memory).values()
        client.run(limit_nanny, limit=limit, nanny=True)
        yield client


@pytest.fixture
def large_worker() -> Iterator[Client]:
    """Client of one worker process that stays far below its memory target."""
    with ExitStack() as stack:
        yield start(stack, n_workers=1, memory_limit=PLENTY)


def pauses_at(client: Client) -> int:
    """Return the bytes at which Dask pauses the worker."""
    (limit,) = client.run(lambda dask_worker: dask_worker.memory_manager.memory_limit).values()
    return int(PAUSE * limit)
