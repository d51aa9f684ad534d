"""Results that are lost with a worker after their task has ended: made again, wherever it was.

The chaos suite's worst find: a Dask array over results (`KMeans.labels_`) waited for ever for the
worker that its tasks had been pinned to.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.waiting import wait_until

pytest.importorskip("distributed")

import dask
import dask.array as da
import numpy as np
from distributed import Client, wait

from spliter import split
from tests.dask_backend import programs
from tests.dask_backend.conftest import start
from tests.dask_backend.programs import expected, kill, spread, total
from tests.dask_workers import workers_of

pytestmark = [pytest.mark.thorough, pytest.mark.backend("dask"), pytest.mark.timeout(180)]


@pytest.fixture
def client() -> Iterator[Client]:
    """Three workers that nobody starts again."""
    with ExitStack() as stack:
        stack.enter_context(dask.config.set({"spliter.block-timeout": "60s"}))
        yield start(stack, n_workers=3, restarts=False)


def kill_and_wait(client: Client, address: str) -> None:
    kill(client, address)
    wait_until(lambda: address not in workers_of(client))


def test_results_that_die_later(client: Client) -> None:
    first, second, _ = workers_of(client)
    mine = client.submit(programs.pid, workers=[first], pure=False)
    parts = split(spread(client, 12))
    futures = parts.map(total)
    # All that is left is a future of the user's own, on a worker that dies.
    combined = client.submit(sum, futures, workers=[second], allow_other_workers=True)
    x = da.arange(90, chunks=10).persist()
    made = split(x).map_blocks(np.square, dtype=int)
    wait([mine, combined], timeout=60)
    np.testing.assert_array_equal(made.compute(), np.arange(90) ** 2)
    del futures
    kill_and_wait(client, second)
    assert client.submit(operator.neg, combined).result(timeout=60) == -expected(12)
    kill_and_wait(client, first)
    np.testing.assert_array_equal(client.compute(made).result(timeout=60), np.arange(90) ** 2)

    def pins(dask_scheduler: Any) -> set[str]:
        return set(dask_scheduler.tasks[mine.key].worker_restrictions)

    assert client.run_on_scheduler(pins) == {first}, "what users have pinned is theirs"


def test_worker_that_dies_right_after_the_tasks(client: Client) -> None:
    x = da.arange(90, chunks=10).persist()
    wait(x)
    made = split(x).map_blocks(np.square, dtype=int)
    kill(client, workers_of(client)[0])
    np.testing.assert_array_equal(client.compute(made).result(timeout=60), np.arange(90) ** 2)
