"""Blocks move, spill, die and come back between a Split and the tasks on it.

Every case ends in the right answer or a typed error within the test's bound on time, and
what the user holds is Dask's own future all along.
"""

from __future__ import annotations

import contextlib
import operator
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import distributed
import numpy as np
import pytest
from distributed import Client, as_completed, futures_of, progress, wait
from distributed.core import Status

from spliter import BlockLostError, reduce, split
from tests.dask_backend import programs
from tests.dask_backend.conftest import StartCluster
from tests.dask_backend.programs import expected, kill, spread, total, where
from tests.dask_workers import wait_until_running, workers_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.thorough, pytest.mark.backend("dask"), pytest.mark.timeout(120)]


def set_status(address: str, status: str, client: Client) -> None:
    def change(dask_worker: Any) -> None:
        dask_worker.status = Status[status]

    client.run(change, workers=[address])


# --- workers die ---


@pytest.mark.parametrize("nanny", [True, False])
def test_worker_dies_before_the_tasks(start_cluster: StartCluster, nanny: bool) -> None:
    client = start_cluster(n_workers=3, restarts=nanny)
    parts = split(spread(client, 30))
    kill(client, workers_of(client)[0])
    futures = [total(part) for part in parts]
    assert reduce(operator.add, futures).result(timeout=60) == expected(30)
    assert sum(client.gather(parts.map(programs.total))) == expected(30)


def test_worker_dies_during_the_tasks(start_cluster: StartCluster) -> None:
    client = start_cluster()
    parts = split(spread(client, 20))
    futures = [programs.slow_total(part, 0.1) for part in parts]
    wait_until_running(client)
    kill(client, workers_of(client)[0])
    assert sum(client.gather(futures)) == expected(20)


def test_next_pass_is_planned_again_after_a_death(start_cluster: StartCluster) -> None:
    client = start_cluster(n_workers=3, restarts=False)
    parts = split(spread(client, 30))
    dead = workers_of(client)[0]
    assert dead in parts.locations
    kill(client, dead)
    assert sum(client.gather(parts.map(total))) == expected(30)
    places = client.gather([where(part) for part in parts])
    assert dead not in parts.locations
    assert all(planned == ran for planned, ran in places)
    before = parts.moved
    assert sum(client.gather(parts.map(total))) == expected(30)
    assert parts.moved == before


def test_scattered_blocks_die_with_their_worker(start_cluster: StartCluster) -> None:
    client = start_cluster(restarts=False)
    first, second = workers_of(client)
    blocks = [np.arange(5) + i for i in range(8)]
    futures = [
        client.scatter(block, workers=[first if i < 4 else second], hash=False)
        for i, block in enumerate(blocks)
    ]
    parts = split(futures, partitions_per_location=1)
    kill(client, first)
    tasks = [total(part) for part in parts if part.location == first]
    with pytest.raises(BlockLostError) as caught:
        client.gather(tasks)
    assert set(caught.value.blocks) == {(0,), (1,), (2,), (3,)}
    assert "(0,)" in str(caught.value)
    # What was elsewhere is still there.
    rest = [part for part in parts[:] if part.location == second]
    assert sum(total(part).result(timeout=30) for part in rest) == sum(
        int(block.sum()) for block in blocks[4:]
    )


def test_all_workers_die_and_others_come(
    start_cluster: StartCluster, add_worker: Callable[[Client], None]
) -> None:
    """Tasks pinned loosely to workers that are gone must not stay in no-worker."""
    client = start_cluster(restarts=False)
    parts = split(spread(client, 12))
    futures = [programs.slow_total(part, 0.2) for part in parts]
    combined = reduce(operator.add, futures)
    for pid in programs.pids(client).values():
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not workers_of(client))
    later = [total(part) for part in list(parts[:])]
    add_worker(client)
    assert combined.result(timeout=60) == expected(12)
    assert sum(client.gather(later)) == expected(12)


def test_copies_of_aligned_blocks_die_with_their_worker(start_cluster: StartCluster) -> None:
    """They are made again from their originals, or the originals are read."""
    client = start_cluster(n_workers=3, restarts=False)
    first, second, third = workers_of(client)
    here = [second, third, first]
    xs = spread(client, 18)
    ys = [
        client.submit(
            programs.make, i, 10, workers=[here[i % 3]], allow_other_workers=True, key=f"y-{i}"
        )
        for i in range(18)
    ]
    parts = split(xs, ys)
    assert parts.moved.aligned_blocks == 18
    squares = sum(int((programs.make(i, 10) ** 2).sum()) for i in range(18))
    assert sum(client.gather(parts.map(programs.products))) == squares
    kill(client, first)
    assert sum(client.gather([programs.products(part) for part in parts[:]])) == squares
    assert sum(client.gather([programs.products(part) for part in parts])) == squares
    moved = parts.moved
    assert sum(client.gather([programs.products(part) for part in parts])) == squares
    assert parts.moved.fetched_blocks == moved.fetched_blocks


def test_kernel_that_kills_its_worker_ends_in_killed_worker(start_cluster: StartCluster) -> None:
    client = start_cluster()
    parts = split(spread(client, 4))

    def fatal(partition: Any) -> None:
        programs.die()

    with pytest.raises(distributed.KilledWorker):
        parts[0].submit(fatal).result(timeout=50)
    assert sum(client.gather(parts.map(total))) == expected(4)


# --- blocks move ---


def test_blocks_moved_wholesale_take_the_task_along(start_cluster: StartCluster) -> None:
    """The task goes to where its blocks are now; nothing but the task moves."""
    client = start_cluster(n_workers=2)
    futures = spread(client, 16)
    parts = split(futures, partitions_per_location=1)
    first, second = workers_of(client)
    part = next(part for part in parts if part.location == first)
    move_all(client, first, second)
    before = programs.received(client)
    assert where(part).result(timeout=30) == (first, second)
    assert total(part).result(timeout=30) == sum(
        int(programs.make(i, 10).sum()) for (i,) in part.get_indexes()
    )
    assert parts.moved.blocks == 0
    # The other partition's worker received the block list (a few bytes), and no block.
    after = programs.received(client)
    assert after[second][0] - before[second][0] <= 1
    assert {p.location for p in parts} == {second}


def move_all(client: Client, source: str, target: str) -> None:
    """Move every key from one worker to another, as the memory manager would."""

    async def move(dask_scheduler: Any) -> None:
        keys = [task.key for task in dask_scheduler.workers[source].has_what]
        await dask_scheduler.gather_on_worker(target, {key: [source] for key in keys})
        await dask_scheduler.delete_worker_data(source, keys, "test")

    client.run_on_scheduler(move)
    # The scheduler does not wait until the worker has deleted them.
    wait_until(lambda: not client.run(_count_values, workers=[source])[source])


def _count_values(dask_worker: Any) -> int:
    return len(dask_worker.data)


@pytest.mark.feature("peer reads")  # Dask leaves replicas, and lists blocks wrongly
def test_a_few_blocks_moved_are_fetched_and_counted_once(start_cluster: StartCluster) -> None:
    client = start_cluster(n_workers=2)
    parts = split(spread(client, 16, length=1000), partitions_per_location=1)
    first, second = workers_of(client)
    part = next(part for part in parts if part.location == first)
    away = part.get_indexes()[0][0]

    async def move_one(dask_scheduler: Any) -> None:
        key = f"block--{away}"
        await dask_scheduler.gather_on_worker(second, {key: [first]})
        await dask_scheduler.delete_worker_data(first, [key], "test")

    client.run_on_scheduler(move_one)
    assert total(part).result(timeout=30) == sum(
        int(programs.make(i, 1000).sum()) for (i,) in part.get_indexes()
    )
    assert (parts.moved.fetched_blocks, parts.moved.fetched_nbytes) == (1, 8000)
    # Planned again, the block is read where it is now and nothing more is moved.
    assert sum(client.gather([total(part) for part in parts])) == expected(16, 1000)
    assert parts.moved.fetched_blocks == 1
    assert sorted(len(part) for part in parts) == [7, 9]


@pytest.mark.feature("peer reads")  # Dask leaves replicas, and lists blocks wrongly
def test_iterations_beside_rebalance_and_replicate(
    start_cluster: StartCluster,
) -> None:
    """k-means-like: a value goes round; the memory manager is on, as it is by default."""
    with dask.config.set({"distributed.scheduler.active-memory-manager.interval": "100ms"}):
        client = start_cluster(n_workers=3)
        x = da.from_array(np.ones(48_000), chunks=1000).persist()
        parts = split(x)
        stop = threading.Event()
        done: Counter[str] = Counter()

        def disturb() -> None:
            steps: dict[str, Callable[[], Any]] = {
                "replicate": lambda: client.replicate(x, n=2),
                "rebalance": lambda: client.rebalance(x),
                "reduce": lambda: client.replicate(x, n=1),
            }
            while not stop.is_set():
                for name, step in steps.items():
                    # The scheduler's own bookkeeping trips now and then when these run
                    # beside its memory manager; that is not what is tested here.
                    with contextlib.suppress(AssertionError, KeyError):
                        step()
                        done[name] += 1
                    stop.wait(0.02)

        disturber = threading.Thread(target=disturb)
        disturber.start()
        try:
            value = 1.0
            for iteration in range(200):
                partials = [programs.weighted(part, value) for part in parts]
                value = reduce(operator.add, partials).result(timeout=60) / 48_000
                assert value == 1.0
                if iteration >= 40 and done["reduce"] >= 5 and parts.moved.fetched_blocks:
                    break
        finally:
            stop.set()
            disturber.join()
        assert min(done[name] for name in ("replicate", "rebalance", "reduce")) >= 5
        assert parts.moved.fetched_blocks > 0, "nothing was ever missing: the test shows nothing"


def test_work_stealing_leaves_the_task_at_its_blocks(start_cluster: StartCluster) -> None:
    """Many tasks queue at one worker while another is idle; stolen ones go back."""
    with dask.config.set({"distributed.scheduler.work-stealing-interval": "20ms"}):
        client = start_cluster(n_workers=2)
        first = workers_of(client)[0]
        futures = [
            client.submit(programs.make, i, 10, workers=[first], pure=False) for i in range(32)
        ]
        parts = split(futures, partitions_per_location=16)
        tasks = [programs.slow_total(part, 0.05) for part in parts for _ in range(2)]
        assert sum(client.gather(tasks)) == 2 * expected(32)
        assert parts.moved.blocks == 0


@pytest.mark.parametrize("how", ["retire", "scale"])
def test_workers_leave(start_cluster: StartCluster, how: str) -> None:
    client = start_cluster(n_workers=3)
    parts = split(spread(client, 30))
    early = [programs.slow_total(part, 0.05) for part in parts]
    if how == "retire":
        client.retire_workers([workers_of(client)[0]])
    else:
        cluster: Any = client.cluster
        cluster.scale(1)
        wait_until(lambda: len(workers_of(client)) == 1)
    assert sum(client.gather(early)) == expected(30)
    assert sum(client.gather([total(part) for part in parts[:]])) == expected(30)
    assert sum(client.gather([total(part) for part in parts])) == expected(30)
    assert set(parts.locations) <= set(workers_of(client))


def test_worker_paused_before_the_tasks(start_cluster: StartCluster) -> None:
    client = start_cluster()
    parts = split(spread(client, 16))
    paused = workers_of(client)[0]
    set_status(paused, "paused", client)
    futures = [total(part) for part in parts]
    assert sum(client.gather(futures)) == expected(16)
    set_status(paused, "running", client)


def test_worker_paused_with_tasks_waiting_at_it(start_cluster: StartCluster) -> None:
    client = start_cluster()
    parts = split(spread(client, 16), partitions_per_location=4)
    futures = [programs.slow_total(part, 0.3) for part in parts]
    wait_until_running(client)
    paused = workers_of(client)[0]
    set_status(paused, "paused", client)
    assert sum(client.gather(futures)) == expected(16)


# --- spilling ---


def test_spilled_blocks_read_by_many_threads(start_cluster: StartCluster) -> None:
    """Several tasks read the same spilled blocks at once: zict raises spurious KeyErrors."""
    client = start_cluster(n_workers=1, threads_per_worker=4, memory_limit="800MB")
    length = 500_000  # 4 MB a block, 600 MB together: more than 60 % of the memory
    x = da.arange(150 * length, chunks=length).persist()
    wait(x)
    parts = split(x, partitions_per_location=1)
    futures = [total(parts[0]) for _ in range(4)]
    assert client.gather(futures) == [int(np.arange(150 * length).sum())] * 4
    spilled = client.run(lambda dask_worker: len(dask_worker.data.slow))
    assert sum(spilled.values()) > 0, "nothing was spilled: the test shows nothing"


def test_partition_larger_than_memory_is_iterated(start_cluster: StartCluster) -> None:
    """As dependencies these blocks would be refused at once (MemoryError)."""
    start_cluster(n_workers=1, memory_limit="1GB")
    length = 1_000_000
    x = da.arange(140 * length, chunks=length).persist()
    wait(x)
    (part,) = split(x)
    assert part.nbytes > 1e9
    assert total(part).result(timeout=50) == int(np.arange(140 * length).sum())


# --- the source goes away ---


def test_dropping_everything_but_the_reduction(start_cluster: StartCluster) -> None:
    """Array, Split, partitions and partial futures are gone while the tasks run."""
    client = start_cluster()

    def start_only() -> Any:
        parts = split(spread(client, 8))
        return reduce(operator.add, [programs.slow_total(part, 0.3) for part in parts])

    combined = start_only()
    assert combined.result(timeout=60) == expected(8)


def test_cancelled_array(start_cluster: StartCluster) -> None:
    client = start_cluster()
    futures = spread(client, 8)
    parts = split(futures)
    client.gather(parts.map(total))
    client.cancel(futures)
    with pytest.raises(BlockLostError, match="cancelled"):
        client.gather(parts.map(total))


def test_cancelled_blocks_are_named_by_their_indexes(start_cluster: StartCluster) -> None:
    client = start_cluster(n_workers=1)
    x = da.ones((4, 6), chunks=(2, 2)).persist()
    y = da.ones((4, 1), chunks=(2, 1)).persist()
    lost = ((0, 1), (1, 2))
    parts = split(x)
    client.cancel([future for future in futures_of(x) if future.key[1:] in lost])
    for use in (parts.refresh, lambda: split(x), lambda: parts.map(programs.total)):
        with pytest.raises(BlockLostError) as caught:
            use()
        assert caught.value.blocks == lost
    client.cancel([future for future in futures_of(y) if future.key[1] == 1])
    with pytest.raises(BlockLostError) as caught:
        split(da.ones(4, chunks=2).persist(), y)
    assert caught.value.blocks == ((1, 0),)


def test_cancelled_array_while_tasks_run(start_cluster: StartCluster) -> None:
    client = start_cluster()
    futures = spread(client, 8)
    tasks = [programs.slow_total(part, 0.4) for part in split(futures)]
    wait_until_running(client)
    client.cancel(futures)
    with pytest.raises(BlockLostError, match="cancelled"):
        client.gather(tasks)


def test_restarted_client(start_cluster: StartCluster) -> None:
    client = start_cluster()
    parts = split(spread(client, 8))
    client.gather(parts.map(total))
    client.restart()
    with pytest.raises(BlockLostError, match="restart"):
        client.gather(parts.map(total))
    with pytest.raises(BlockLostError, match="restart"):
        parts.refresh()


# --- what the user holds is Dask's own future ---


@pytest.mark.parametrize("drift", [False, True])
def test_futures_work_with_the_tools_of_dask(start_cluster: StartCluster, drift: bool) -> None:
    client = start_cluster(n_workers=3)
    parts = split(spread(client, 30))
    if drift:
        kill(client, workers_of(client)[0])
    futures = [total(part) for part in list(parts)]
    futures += [part.submit(programs.total) for part in list(parts)]
    combined = reduce(operator.add, futures[: len(parts)])
    assert all(isinstance(future, distributed.Future) for future in [*futures, combined])
    dependent = client.submit(sum, futures)
    progress(*futures, notebook=False)
    _, not_done = wait(futures, timeout=60)
    assert not not_done
    assert sum(future.result() for future in as_completed(futures)) == 2 * expected(30)
    assert sum(client.gather(futures)) == 2 * expected(30)
    assert dependent.result(timeout=30) == 2 * expected(30)
    assert combined.result(timeout=30) == expected(30)
    assert client.submit(operator.neg, combined).result(timeout=30) == -expected(30)
