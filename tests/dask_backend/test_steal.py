"""``split(..., steal=True)`` on Dask: tasks are stolen among the holders of their blocks only."""

from __future__ import annotations

import itertools
import operator
import time
from collections.abc import Iterator, Sequence
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, Event, Future, get_worker, wait
from distributed.core import Status

from spliter import InvalidArgumentError, Partition, Split, gather, reduce, split, task
from spliter_backends.dask.scheduler import pins as dask_pins
from tests.counting import counter
from tests.dask_backend.conftest import StartCluster
from tests.dask_backend.programs import expected, kill, make, spread, total
from tests.dask_backend.test_map_reduce import forget, move, rows_slowly
from tests.dask_backend.test_pins import set_status
from tests.dask_workers import wait_until_running, workers_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.thorough, pytest.mark.backend("dask"), pytest.mark.timeout(120)]

SETTINGS = {
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.work-stealing-interval": "50ms",
}


@pytest.fixture
def start_replicating(start_cluster: StartCluster) -> Iterator[StartCluster]:
    """Start clusters that keep replicas, and that steal soon."""
    with dask.config.set(SETTINGS):
        yield start_cluster


def blocks_at(client: Client, workers: Sequence[str], length: int = 10) -> list[Future[Any]]:
    """Make one block at each of these workers; the values are the numbers of the items."""
    blocks = [
        client.submit(make, block, length, workers=[worker], pure=False)
        for block, worker in enumerate(workers)
    ]
    wait(blocks)
    return blocks


def replicated(client: Client, nblocks: int) -> list[Future[Any]]:
    """Make 75 % of the blocks at the first worker, the others at the second; copy all to both."""
    first, second = workers_of(client)
    blocks = blocks_at(client, [second if block % 4 == 3 else first for block in range(nblocks)])
    client.replicate(blocks)
    return blocks


def unequal(partition: Partition) -> tuple[list[int], str]:
    """The items, and where this runs; every other block takes ten times as long."""
    items: list[int] = []
    for (number,), block in partition.items():
        time.sleep(0.02 if number % 2 else 0.002)
        items.extend(block.tolist())
    return items, str(get_worker().address)


@task
def both(one: Partition, other: Partition) -> tuple[int, str]:
    return sum(int(block.sum()) for part in (one, other) for block in part), where(one)


def where(partition: Partition) -> str:
    return str(get_worker().address)


def rows_at_once(partition: Partition) -> tuple[list[int], str]:
    return partition.materialize().tolist(), where(partition)


def keep_busy(client: Client, worker: str, seconds: float = 2) -> Future[Any]:
    """Start a task that occupies a worker's thread for a while, or until it is released."""
    busy = client.submit(wait_for, worker, seconds, workers=[worker], pure=False)
    wait_until(lambda: client.processing()[worker] != ())
    return busy


def wait_for(event: str, seconds: float) -> None:
    Event(event).wait(seconds)


def materialized(dask_worker: Any) -> int:
    return sum("spliter-materialized" in str(key) for key in dask_worker.data)


def restrictions(client: Client, futures: Sequence[Future[Any]]) -> list[set[str]]:
    """Return the workers that may run each task."""

    def read(dask_scheduler: Any) -> list[set[str]]:
        return [set(dask_scheduler.tasks[one.key].worker_restrictions or ()) for one in futures]

    found: list[set[str]] = client.run_on_scheduler(read)
    return found


def transfers(client: Client) -> int:
    """Count what the workers have received from each other, and what they have sent."""

    def count(dask_worker: Any) -> int:
        sent = [entry["who"] for entry in dask_worker.transfer_outgoing_log]
        return int(dask_worker.state.transfer_incoming_count_total) + len(sent) - sent.count(None)

    return sum(client.run(count).values())


def stolen(client: Client) -> int:
    """Count the tasks that Dask has moved from one worker to another before they started."""

    def count(dask_scheduler: Any) -> int:
        return sum(event[0] == "confirm" for _, event in dask_scheduler.get_events("stealing"))

    return int(client.run_on_scheduler(count))


def shared(parts: Split) -> list[Partition]:
    return [part for part in parts if part.holders]


def test_nothing_moves_and_nothing_drifts(start_replicating: StartCluster) -> None:
    client = start_replicating(n_workers=2)
    blocks = replicated(client, 64)
    with counter(client) as count, split(blocks, schedule="FAC2", steal=True) as parts:
        workers = tuple(workers_of(client))
        assert all(part.holders == workers for part in parts)
        planned, before = list(parts), transfers(client)
        found: list[tuple[list[int], str]] = []
        counts = count(lambda: found.extend(gather(parts.map(unequal))))
        assert sorted(item for items, _ in found for item in items) == list(range(640))
        assert {address for _, address in found} == set(workers)
        elsewhere = sum(
            address != part.location for part, (_, address) in zip(planned, found, strict=True)
        )
        assert elsewhere > 0
        assert (counts.nbytes, counts.who_has, counts.tasks) == (0, 0, len(parts))
        assert transfers(client) == before
        assert parts.moved.blocks == 0
        # No task has reported that it runs elsewhere than planned: nothing is planned anew.
        assert count(lambda: list(parts)).who_has == 0


def test_control_where_tasks_run_away_from_their_blocks(start_replicating: StartCluster) -> None:
    """The counts of the test before are not 0 where something moves."""
    client = start_replicating(n_workers=2)
    first, second = workers_of(client)
    blocks = blocks_at(client, [first] * 16)
    with counter(client) as count:
        before = transfers(client)
        stolen = count(
            lambda: gather([client.submit(np.sum, it, workers=[second]) for it in blocks[:8]])
        )
        assert stolen.nbytes == 8 * 80
        assert transfers(client) > before
    with split(blocks[8:], schedule="MSTATIC") as parts:
        move(client, blocks[8], first, second)
        before = transfers(client)
        assert sum(gather(parts.map(total))) == expected(16) - expected(8)
        assert parts.moved.fetched_blocks == 1
        assert transfers(client) > before


def test_dask_steals_from_the_worker_that_has_more(start_replicating: StartCluster) -> None:
    client = start_replicating(n_workers=2)
    blocks = replicated(client, 64)
    # The first worker is kept busy: what Dask has sent to it is stolen by the second one.
    first, second = workers_of(client)
    with split(blocks, schedule="SS", steal=True) as parts:
        busy = keep_busy(client, first)
        found = gather(parts.map(unequal))
        busy.result()
        assert sum(address == second for _, address in found) > 40
        assert stolen(client) > 0
        assert parts.moved.blocks == 0
        assert sorted(item for items, _ in found for item in items) == list(range(640))


def test_only_holders_steal(start_replicating: StartCluster) -> None:
    client = start_replicating(n_workers=3)
    first, second, third = workers_of(client)
    blocks = blocks_at(client, [first] * 30 + [third] * 10)
    client.replicate(blocks[:20], workers=[first, second], n=2)
    with split(blocks, schedule="SS", steal=True) as parts:
        assert {part.holders for part in parts} == {(first, second), ()}
        # The third one soon has nothing to do, and may not take the tasks of the others.
        busy = [keep_busy(client, first), keep_busy(client, second)]
        futures = parts.map(unequal)
        wait(futures)
        allowed = [set(part.holders or (part.location,)) for part in parts]
        assert restrictions(client, futures) == allowed
        for (_, address), holders in zip(gather(futures), allowed, strict=True):
            assert address in holders
        wait(busy)
        assert parts.moved.blocks == 0


def test_results_of_shared_partitions_have_no_known_location(
    start_replicating: StartCluster,
) -> None:
    client = start_replicating(n_workers=2)
    first, _ = workers_of(client)
    blocks = blocks_at(client, [first] * 20)
    client.replicate(blocks[:10])
    with split(blocks, schedule="FAC2", steal=True) as parts:
        futures = parts.map(total)
        executor = parts[0].executor
        assert executor is not None
        assert [executor.location_of(future) for future in futures] == [
            None if part.holders else part.location for part in parts
        ]
        assert reduce(operator.add, futures).result() == expected(20)


def test_a_task_on_two_partitions_and_a_team_stay_where_planned(
    start_replicating: StartCluster,
) -> None:
    client = start_replicating(n_workers=2)
    blocks = replicated(client, 40)
    with split(blocks, schedule="SS", steal=True) as parts:
        one, other = [part for part in parts if part.location == workers_of(client)[1]][:2]
        assert both(one, other).result()[1] == one.location
        assert one.submit(both, other).result()[1] == one.location
        with counter(client) as count:
            counts = count(lambda: parts.map_reduce(total, operator.add).result())
        # One task at each worker, and one that adds their results, of which one moves.
        assert (counts.tasks, parts.moved.blocks) == (3, 0)
        assert parts.map_reduce(total, operator.add).result() == expected(40)


def test_long_lists_of_blocks_and_materializing_move_nothing(
    start_replicating: StartCluster,
) -> None:
    client = start_replicating(n_workers=2)
    first, second = workers_of(client)
    blocks = replicated(client, 400)
    with split(blocks, schedule="STATIC", steal=True) as parts:
        assert [len(part) for part in parts] == [200, 200]
        for idle in (first, second):
            (busy,) = {first, second} - {idle}
            blocked = keep_busy(client, busy, seconds=60)
            before = transfers(client)
            found = gather(parts.map(rows_at_once))
            assert transfers(client) == before
            assert {address for _, address in found} == {idle}
            Event(busy).set()
            blocked.result()
            assert sorted(item for items, _ in found for item in items) == list(range(4000))
            # Nothing is kept that another worker would have to fetch for the next task.
            assert client.run(materialized) == {first: 0, second: 0}
        assert parts.moved.blocks == 0


def test_replicas_that_are_dropped_afterwards(start_replicating: StartCluster) -> None:
    """The active memory manager does so, unless it is stopped."""
    client = start_replicating(n_workers=2)
    first, second = workers_of(client)
    blocks = replicated(client, 40)
    with split(blocks, schedule="FAC2", steal=True) as parts:
        for block in blocks:
            client.run(forget, block.key, workers=[second])
        wait_until(lambda: set(client.who_has(blocks).values()) == {(first,)})
        found = gather(parts.map(unequal))
        assert sorted(item for items, _ in found for item in items) == list(range(400))
        assert {address for _, address in found} == {first}
        assert parts.moved.blocks == 0  # tasks at the second worker have gone to the first one
        assert not shared(parts)
        assert parts.locations == (first,)
        assert sum(gather(parts.map(total))) == expected(40)
        client.replicate(blocks)
        parts.refresh()
        assert len(shared(parts)) == len(parts)


def test_a_holder_is_killed(start_replicating: StartCluster) -> None:
    client = start_replicating(n_workers=3, restarts=False)
    x = da.map_blocks(
        lambda block_info=None: np.arange(*block_info[None]["array-location"][0]),
        chunks=((10,) * 60,),
        dtype=np.int64,
    ).persist()
    wait(x)
    client.replicate(x, n=2)
    parts = split(x, schedule="FAC2", steal=True)
    assert len(shared(parts)) > 0
    futures = parts.map(rows_slowly)
    wait_until_running(client)
    kill(client, workers_of(client)[0])
    for pending in (futures, parts.map(rows_slowly)):
        assert sorted(itertools.chain(*gather(pending))) == list(range(600))


def test_pins_are_removed_once_no_holder_is_left(
    start_replicating: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_pins, "PAUSE_TOLERANCE", 0.0)
    client = start_replicating(n_workers=3, memory_limit=0)
    first, second, third = workers_of(client)
    blocks = blocks_at(client, [first] * 12)
    client.replicate(blocks, workers=[first, second], n=2)
    parts = split(blocks, schedule="SS", steal=True)
    kept = list(parts)
    set_status(client, first, Status.paused)
    futures = [part.submit(where) for part in kept]
    assert set(gather(futures)) == {second}
    assert restrictions(client, futures) == [{first, second}] * 12
    set_status(client, second, Status.paused)
    assert set(gather([part.submit(where) for part in kept])) == {third}
    set_status(client, first, Status.running)
    set_status(client, second, Status.running)


def test_refused(start_replicating: StartCluster) -> None:
    client = start_replicating(n_workers=2)
    blocks, others = spread(client, 8), spread(client, 8, tag="others")
    with pytest.raises(InvalidArgumentError, match=r"at one location.*client\.replicate"):
        split(blocks, schedule="FAC2", steal=True)
    client.replicate([*blocks, *others])
    with pytest.raises(InvalidArgumentError, match="takes one collection"):
        split(blocks, others, schedule="FAC2", steal=True)
    assert repr(split(blocks, schedule="FAC2", steal=True)).endswith("FAC2, strided, steal>")
