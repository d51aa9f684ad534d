"""Real clusters whose workers have little memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

pytest.importorskip("distributed")

import dask
from distributed import Client

from tests.dask_backend.conftest import start

MEMORY = 500_000_000
"""Bytes that the small worker may use; some 200 MB of them are Python and what it imports."""


@pytest.fixture
def small_worker() -> Iterator[Client]:
    """Client of one worker process with little memory, of which data may take 30%."""
    with ExitStack() as stack:
        stack.enter_context(dask.config.set({"distributed.worker.memory.target": 0.3}))
        yield start(stack, n_workers=1, memory_limit=MEMORY)
