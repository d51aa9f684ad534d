"""Bad input of `partitioned`, and tasks that fail: the user's own error or a typed one."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import CancelledError, Client, fire_and_forget, wait, worker_client

from spliter import (
    BackendNotUsableError,
    ClientClosedError,
    InvalidArgumentError,
    UnsupportedCollectionError,
    partitioned,
)
from tests.dask_backend import programs
from tests.dask_backend.conftest import StartCluster
from tests.dask_workers import workers_of

pytestmark = [pytest.mark.thorough, pytest.mark.backend("dask"), pytest.mark.timeout(300)]

CHUNKS = 40


def array() -> Any:
    """Rows of random numbers, lazily, in small chunks."""
    return da.random.default_rng(5).random((CHUNKS * 20, 4), chunks=(20, 4))


def test_there_must_be_a_client(client: Client) -> None:
    del client
    with pytest.raises(InvalidArgumentError, match=r"client of an engine .* got int"):
        partitioned(5)
    with pytest.raises(BackendNotUsableError, match="'local' does not run graphs"):
        partitioned(backend="local")
    with pytest.raises(InvalidArgumentError, match=r"takes a distributed\.Client, got builtins"):
        partitioned("tcp://127.0.0.1:1", backend="dask")


@pytest.mark.parametrize("partitions", [0, -1, 1.5, True, "2"])
def test_there_must_be_a_whole_number_of_partitions(partitions: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="partitions_per_location must be None"):
        partitioned(partitions_per_location=partitions)


def test_collections_are_of_dask(client: Client) -> None:
    with pytest.raises(UnsupportedCollectionError, match="takes collections of Dask"):
        partitioned(client).explain(np.ones(3))
    assert dask.compute(5, {"a": [1]}, scheduler=partitioned(client)) == (5, {"a": [1]})


def test_without_a_client(run_python: Any) -> None:
    program = (
        "import dask.array as da, spliter\n"
        "try:\n"
        "    da.ones(4, chunks=1).sum().compute(scheduler=spliter.partitioned())\n"
        "except spliter.BackendNotUsableError as error:\n"
        "    print(error)\n"
    )
    assert "there is no client; make one" in run_python("-c", program).stdout


def test_without_the_engine(run_python: Any) -> None:
    program = (
        "import sys\n"
        "sys.modules['distributed'] = None\n"
        "import spliter\n"
        "try:\n"
        "    spliter.partitioned()\n"
        "except spliter.BackendNotUsableError as error:\n"
        "    print(error)\n"
    )
    assert 'pip install "pyspliter[dask]"' in run_python("-c", program).stdout


def test_a_closed_client(dask_cluster: Any) -> None:
    with Client(dask_cluster, set_as_default=False) as client:
        ours = partitioned(client)
    with pytest.raises(ClientClosedError, match=r"client of partitioned\(\) is closed"):
        array().sum().compute(scheduler=ours)
    with pytest.raises(ClientClosedError):
        array().persist(scheduler=ours)


def test_an_asynchronous_client_is_refused(dask_cluster: Any) -> None:
    async def run() -> None:
        address = dask_cluster.scheduler_address
        async with Client(address, asynchronous=True, set_as_default=False) as client:
            with pytest.raises(BackendNotUsableError, match="asynchronous"):
                array().sum().compute(scheduler=partitioned(client))

    asyncio.run(run())


def fail(block: Any) -> Any:
    raise LookupError("no such block")


def test_errors_of_tasks_are_the_users_own(client: Client) -> None:
    lazy = array().map_blocks(fail, dtype=float).sum()
    with pytest.raises(LookupError, match="no such block") as caught:
        lazy.compute(scheduler=partitioned(client))
    assert any("raised by the Dask task" in note for note in caught.value.__notes__)
    assert any("random-sum" in note for note in caught.value.__notes__)
    assert any(entry.name == "fail" for entry in caught.traceback)


class NoNotesError(Exception):
    """Refuses what is added to it, as frozen dataclasses do."""

    def add_note(self, note: str) -> None:
        raise TypeError("no notes")


def fail_without_notes(block: Any) -> Any:
    raise NoNotesError("the user's own")


def test_errors_that_refuse_notes_are_the_users_own(client: Client) -> None:
    lazy = array().map_blocks(fail_without_notes, dtype=float).sum()
    with pytest.raises(NoNotesError, match="the user's own"):
        lazy.compute(scheduler=partitioned(client))


def slowly_or_fail(block: Any, file: str, block_id: tuple[int, ...] = ()) -> Any:
    """Take a while; the first of all blocks fails once another one has been counted."""
    if block_id[0] == 0:
        while not Path(file).exists():
            time.sleep(0.01)
        raise LookupError("no such block")
    with Path(file).open("a", encoding="ascii") as counted:
        counted.write("x")
    time.sleep(0.2)
    return block


def test_nothing_runs_after_a_task_raised(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "ran"
    lazy = array().map_blocks(slowly_or_fail, str(file), dtype=float).sum()
    with pytest.raises(LookupError, match="no such block"):
        lazy.compute(scheduler=partitioned(client))
    client.run(wait_until_idle)
    client.run_on_scheduler(wait_until_forgotten)
    assert len(file.read_text()) < CHUNKS // 4


async def wait_until_idle(dask_worker: Any) -> None:
    deadline = time.monotonic() + 60
    while dask_worker.state.executing_count:
        assert time.monotonic() < deadline, "a task still runs"
        await asyncio.sleep(0.01)


async def wait_until_forgotten(dask_scheduler: Any) -> None:
    deadline = time.monotonic() + 60
    while any("-partition-" in str(key) for key in dask_scheduler.tasks):
        assert time.monotonic() < deadline, "the scheduler still has a cluster"
        await asyncio.sleep(0.01)


def test_tasks_that_cannot_be_pickled(client: Client) -> None:
    lock = threading.Lock()
    lazy = array().map_blocks(lambda block: block * bool(lock), dtype=float).sum()
    with pytest.raises(TypeError) as plain:
        lazy.compute(scheduler=client)
    with pytest.raises(TypeError) as ours:
        lazy.compute(scheduler=partitioned(client))
    assert type(ours.value) is type(plain.value)


def test_persisted_blocks_that_failed_or_were_cancelled(client: Client) -> None:
    failed = array().map_blocks(fail, dtype=float).persist()
    with pytest.raises(LookupError, match="no such block"):
        failed.sum().compute(scheduler=partitioned(client))
    cancelled = array().persist()
    wait(cancelled)
    client.cancel(cancelled)
    with pytest.raises(CancelledError):
        cancelled.sum().compute(scheduler=partitioned(client))


def test_blocks_that_are_lost_with_their_worker(start_cluster: StartCluster) -> None:
    client = start_cluster()
    worker = workers_of(client)[0]
    blocks = [client.scatter(n, workers=[worker], hash=False) for n in range(CHUNKS)]
    lazy = dask.delayed(sum)([dask.delayed(abs)(block) for block in blocks])
    programs.kill(client, worker)
    with pytest.raises(CancelledError):
        lazy.compute(scheduler=client)
    with pytest.raises(CancelledError):
        lazy.compute(scheduler=partitioned(client))


def starts_a_task(number: int) -> int:
    with worker_client() as client:
        fire_and_forget(client.submit(abs, number))
        return int(client.submit(abs, -number).result(timeout=30))


class Counter:
    """An actor."""

    counted = 0

    def add(self, number: int) -> int:
        self.counted += number
        return self.counted


def add_to(counter: Any, number: int) -> int:
    """Return a number, and have an actor add it."""
    counter.add(number).result()
    return number


def test_tasks_that_start_tasks_and_take_futures_and_actors(client: Client) -> None:
    future = client.submit(abs, -3)
    actor = client.submit(Counter, actor=True)
    counter: Any = actor.result()
    started = [dask.delayed(starts_a_task)(n) for n in range(8)]
    maxima = [dask.delayed(max)(future, n) for n in range(8)]
    added = [dask.delayed(add_to)(actor, n) for n in range(8)]
    lazy = dask.delayed(sum)(started + maxima + added)
    explained = partitioned(client).explain(lazy)
    assert explained.reason == ""
    assert lazy.compute(scheduler=partitioned(client)) == 2 * sum(range(8)) + sum(range(4, 8)) + 12
    assert counter.counted == sum(range(8))
