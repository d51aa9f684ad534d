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

FREE = 110_000_000
"""Bytes that the small worker may take, beside what it has imported, before Dask pauses it."""

PLENTY = 10**10
"""Memory of a worker that needs not spill, and of one while it is measured."""

PAUSE = 0.8
"""Part of its memory at which Dask pauses a worker, by default."""


def import_all() -> int:
    """Import what the tests need, as a worker; return the bytes that it takes."""
    import psutil

    import spliter_apps.kmeans  # noqa: F401
    import spliter_backends.dask.worker.source  # noqa: F401

    return int(psutil.Process().memory_info().rss)


def limit_memory(dask_worker: Any, limit: int) -> None:
    """Change the memory of a worker, or of the nanny that watches it."""
    dask_worker.memory_manager.memory_limit = limit
    dask_worker.memory_manager.memory_target_fraction = DATA / limit


@pytest.fixture
def small_worker() -> Iterator[Client]:
    """Client of one worker process with little memory beside its imports.

    These take between 200 and 400 MB, also in one environment: Linux counts the pages of files that
    happen to be in memory. So each worker is measured, and limited after that.
    """
    with ExitStack() as stack:
        target = {"distributed.worker.memory.target": DATA / PLENTY}
        stack.enter_context(dask.config.set(target))
        client = start(stack, n_workers=1, memory_limit=PLENTY)
        x = da.ones(10, chunks=5).persist()
        split(x).close()
        (taken,) = client.run(import_all).values()
        limit = round((taken + FREE) / PAUSE)
        for nanny in (False, True):
            client.run(limit_memory, limit=limit, nanny=nanny)
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
