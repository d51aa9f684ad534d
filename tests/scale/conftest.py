"""Real clusters whose workers have little memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

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

PAUSE = 0.8
"""Part of its memory at which Dask pauses a worker, by default."""


def import_all() -> int:
    """Import what the tests need, as a worker; return the bytes that it takes."""
    import psutil

    import spliter_apps.kmeans  # noqa: F401
    import spliter_backends.dask.worker.source  # noqa: F401

    return int(psutil.Process().memory_info().rss)


@pytest.fixture(scope="session")
def imported() -> int:
    """Bytes that a worker without data takes.

    They differ by a quarter between machines, and between environments on one: Linux maps files
    that were just installed in larger pieces.
    """
    with ExitStack() as stack:
        client = start(stack, n_workers=1, memory_limit=10**10)
        x = da.ones(10, chunks=5).persist()
        split(x).close()
        (taken,) = client.run(import_all).values()
        return int(taken)


@pytest.fixture
def small_worker(imported: int) -> Iterator[Client]:
    """Client of one worker process with little memory."""
    memory = round((imported + FREE) / PAUSE)
    with ExitStack() as stack:
        stack.enter_context(dask.config.set({"distributed.worker.memory.target": DATA / memory}))
        yield start(stack, n_workers=1, memory_limit=memory)


def pauses_at(client: Client) -> int:
    """Return the bytes at which Dask pauses the worker."""
    (worker,) = client.scheduler_info()["workers"].values()
    return int(PAUSE * worker["memory_limit"])
