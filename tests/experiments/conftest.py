"""Processes that the tests of the experiments share: Dask's are those of all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from distributed import Client

from spliter_experiments.compare.baseline import Baseline, start_baseline


@pytest.fixture(scope="session")
def processes() -> Iterator[dict[str, Baseline]]:
    """Plain processes for ways without an engine; each way loads its blocks anew."""
    with start_baseline(2) as floor, start_baseline(1, threads=2) as machine:
        yield {"floor": floor, "machine": machine}


@pytest.fixture(scope="module")
def client_of_two_threads() -> Iterator[Client]:
    """Client of one worker of two threads."""
    from tests.dask_backend.conftest import start_processes

    with start_processes(1, threads_per_worker=2) as cluster, Client(cluster) as connected:
        yield connected
