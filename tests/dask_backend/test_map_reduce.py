"""``Split.map_reduce`` on Dask: tasks, idle threads, cancelled tasks, lost workers."""

from __future__ import annotations

import operator
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import dask.array as da
import numpy as np
import pytest
from distributed import Client, Event, Variable, get_worker, wait
from distributed.worker_state_machine import FreeKeysEvent

from spliter import Partition, Schedule, gather, reduce, split
from tests.counting import counter
from tests.dask_backend.conftest import StartCluster, start
from tests.dask_backend.programs import expected, kill, spread, total
from tests.dask_workers import wait_until_running, workers_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.backend("dask"), pytest.mark.timeout(120)]


def rows_slowly(partition: Partition) -> list[int]:
    """The numbers of all items, with a rest at each block."""
    found: list[int] = []
    for block in partition:
        time.sleep(0.02)
        found.extend(block.tolist())
    return found


def thread_and_worker(partition: Partition) -> set[tuple[int, str]]:
    time.sleep(0.01)
    return {(threading.get_ident(), get_worker().address)}


def worker_of(partition: Partition) -> set[str]:
    assert all(len(block) == 10 for block in partition)
    return {get_worker().address}


def forget(key: str, dask_worker: Any) -> None:
    """Let a worker drop its copy of a block that another one has, too."""
    dask_worker.handle_stimulus(FreeKeysEvent(keys=[key], stimulus_id="test"))


def move(client: Client, future: Any, source: str, target: str) -> None:
    deadline = time.monotonic() + 30
    while client.who_has([future])[future.key] != (target,):
        client.replicate(future, workers=[target])  # again: Dask may have dropped this replica
        client.run(forget, future.key, workers=[source])
        assert time.monotonic() < deadline
        time.sleep(0.05)


def blocker(started: str, go: str) -> None:
    Event(started).set()
    Event(go).wait(60)


def count_until_cancelled(partition: Partition, name: str) -> int:
    begun = Variable(name)
    begun.set(begun.get() + 1)
    time.sleep(0.3)
    return 1


def test_one_task_for_each_worker(start_cluster: StartCluster) -> None:
    client = start_cluster(n_workers=3)
    parts = split(spread(client, 60), schedule="SS")
    with counter(client) as count:
        counts = count(lambda: parts.map_reduce(total, operator.add).result())
    assert parts.map_reduce(total, operator.add).result() == expected(60)
    # Three tasks for the workers, and one that adds their results; 20 partitions at each.
    assert (len(parts), counts.tasks) == (60, 4)
    assert parts.moved.blocks == 0


def test_threads_run_as_the_task(start_cluster: StartCluster) -> None:
    client = start_cluster(n_workers=2, threads_per_worker=2)
    parts = split(spread(client, 40), schedule="SS")
    used = parts.map_reduce(thread_and_worker, operator.or_).result()
    for worker in workers_of(client):
        assert len([thread for thread, address in used if address == worker]) == 2


@pytest.fixture(scope="module")
def four_threads() -> Iterator[Client]:
    with ExitStack() as stack:
        yield start(stack, n_workers=2, threads_per_worker=2)


def float_sum(partition: Partition) -> float:
    """The sum of all items, after a rest that differs from run to run."""
    time.sleep(random.random() * 1e-4)
    return float(sum(block.sum() for block in partition))


@pytest.mark.parametrize("kind", ["STATIC", "FAC2", "SS"])
def test_same_bits_in_every_run_of_tasks_and_of_teams(four_threads: Client, kind: str) -> None:
    rng = np.random.default_rng(3)
    powers = np.repeat(np.arange(-15, 16), 7)
    numbers = rng.permutation(rng.normal(size=len(powers)) * 10.0**powers)
    # Another order of the same numbers has other bits.
    assert len({float(sum(rng.permutation(numbers))) for _ in range(20)}) > 1
    x = da.from_array(numbers, chunks=7).persist()
    wait(x)
    parts = split(x, schedule=kind)
    assert len(parts.locations) == 2
    sums = []
    for _ in range(10):
        tasks = list(zip(parts, parts.map(float_sum), strict=True))
        tasks.sort(key=lambda pair: pair[0].get_indexes()[0])
        sums.append(reduce(operator.add, [future for _, future in tasks]))
    found = {value.hex() for value in gather(sums)}
    for run in range(10):  # one after the other: a team shrinks by the other tasks
        team = parts.map_reduce(float_sum, operator.add, threads=run % 2 + 1)
        found.add(team.result(timeout=60).hex())
    assert len(found) == 1


def test_fewer_threads_while_the_worker_has_other_tasks(start_cluster: StartCluster) -> None:
    client = start_cluster(n_workers=1, threads_per_worker=2)
    parts = split(spread(client, 20), schedule="SS")
    assert len(parts.map_reduce(thread_and_worker, operator.or_).result()) == 2
    other = client.submit(blocker, "started", "go", pure=False)
    assert Event("started").wait(30)
    assert len(parts.map_reduce(thread_and_worker, operator.or_).result()) == 1
    Event("go").set()
    other.result()
    assert len(parts.map_reduce(thread_and_worker, operator.or_).result()) == 2


def test_cancelling_is_seen_between_partitions(start_cluster: StartCluster) -> None:
    client = start_cluster(n_workers=1)
    Variable("begun", client=client).set(0)
    parts = split(spread(client, 30), schedule="SS")
    future = parts.map_reduce(count_until_cancelled, operator.add, "begun")
    wait_until(Variable("begun").get)
    future.cancel()
    # The thread is free for this task as soon as the running partition ends.
    assert client.submit(abs, -1, pure=False).result(timeout=20) == 1
    assert Variable("begun").get() < 5


@pytest.mark.thorough
def test_a_worker_is_killed_in_the_middle(start_cluster: StartCluster) -> None:
    client = start_cluster(n_workers=3)
    x = da.map_blocks(
        lambda block_info=None: np.arange(*block_info[None]["array-location"][0]),
        chunks=((10,) * 60,),
        dtype=np.int64,
    ).persist()
    wait(x)
    parts = split(x, schedule="FAC2")
    future = parts.map_reduce(rows_slowly, operator.add)
    wait_until_running(client)
    time.sleep(0.1)
    kill(client, workers_of(client)[0])
    assert sorted(future.result(timeout=60)) == list(range(600))
    again = parts.map_reduce(rows_slowly, operator.add)
    assert sorted(again.result(timeout=60)) == list(range(600))


def test_the_split_is_closed_meanwhile(start_cluster: StartCluster) -> None:
    client = start_cluster(n_workers=2)
    parts = split(spread(client, 30), schedule="SS")
    future = parts.map_reduce(rows_slowly, operator.add)
    wait_until_running(client)
    parts.close()
    found = np.sort(future.result(timeout=60))
    np.testing.assert_array_equal(found, np.arange(len(found)))
    assert found.sum() == expected(30)


def test_a_team_stays_where_most_blocks_are(start_cluster: StartCluster) -> None:
    client = start_cluster(n_workers=3)
    first, *others = workers_of(client)
    blocks = [
        client.submit(np.full, 10, number, workers=[first], pure=False) for number in range(20)
    ]
    wait(blocks)
    with split(blocks, schedule=Schedule("SS", order="contiguous")) as parts:
        assert parts.locations == (first,)
        for future, worker in zip(blocks, others, strict=False):
            move(client, future, first, worker)
        used = parts.map_reduce(worker_of, operator.or_).result(timeout=60)
        assert used == {first}
        assert parts.moved.fetched_blocks == 2
