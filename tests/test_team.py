"""Teams of threads: which thread takes what, errors, and the order in which results combine."""

from __future__ import annotations

import operator
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spliter import Partition, Schedule, gather, reduce, split
from spliter._planning.schedule import FORMULAS
from spliter._reading.read_ahead import Fetches
from spliter._running.team import Queues, Team, WorkQueues
from spliter.backend import BlockSource
from spliter_backends.local import executor as local

QUEUES = st.sampled_from(["central", "core", "group"])


ONE = np.ones(1)


def numbers(waiting: WorkQueues, threads: Sequence[int]) -> list[int]:
    """Return the numbers that threads take, one after the other."""
    taken = [waiting.take(thread) for thread in threads]
    return [found[0] for found in taken if found is not None]


def team(fn: Any, threads: int = 2, queues: Queues = "central", *, partitions: int) -> Team:
    return Team(fn, operator.add, threads, queues, partitions)


def at_location(blocks: Sequence[Any], schedule: str | Schedule = "SS") -> list[Partition]:
    return [part.at_location() for part in split(list(blocks), schedule=schedule)]


@given(QUEUES, st.integers(1, 8), st.integers(0, 40), st.integers(1, 4), st.data())
def test_every_partition_is_taken_once(
    queues: Queues, threads: int, partitions: int, nodes: int, data: st.DataObject
) -> None:
    waiting = WorkQueues.of(team(None, threads, queues, partitions=partitions), nodes)
    taken = [
        waiting.take(data.draw(st.integers(0, threads - 1), label="thread"))
        for _ in range(partitions)
    ]
    assert sorted(found[0] for found in taken if found is not None) == list(range(partitions))
    assert all(waiting.take(thread) is None for thread in range(threads))


def test_a_thread_takes_from_the_tail_of_its_own_group_first() -> None:
    waiting = WorkQueues.of(team(None, 4, "core", partitions=8), nodes=2)
    # Thread 0 has 0 and 4; thread 1, of its NUMA node, has 1 and 5; then 2 and 6, 3 and 7.
    assert numbers(waiting, [0] * 8) == [0, 4, 5, 1, 6, 2, 7, 3]
    assert waiting.take(0) is None


def test_threads_of_a_node_share_a_queue() -> None:
    waiting = WorkQueues.of(team(None, 4, "group", partitions=8), nodes=2)
    assert numbers(waiting, [0, 1, 2, 3]) == [0, 2, 1, 3]
    assert numbers(waiting, [0] * 4) == [4, 6, 7, 5]


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("kind", FORMULAS)
def test_same_bits_in_every_run_with_any_team(kind: str) -> None:
    rng = np.random.default_rng(3)
    parts = split([rng.normal(size=7) * 10.0**i for i in range(-15, 15)], schedule=kind)

    def total(partition: Partition) -> float:
        time.sleep(rng.random() * 1e-4)
        return float(sum(block.sum() for block in partition))

    tasks = parts.map(total)
    in_order = sorted(zip(parts, tasks, strict=True), key=lambda pair: pair[0].get_indexes()[0])
    expected = reduce(operator.add, [future for _, future in in_order]).result()
    for run in range(50):
        found = parts.map_reduce(
            total, operator.add, threads=run % 2 + 1, queues=("central", "core", "group")[run % 3]
        )
        assert found.result() == expected


@pytest.mark.usefixtures("two_threads")
def test_all_threads_of_the_location_take_part() -> None:
    both = threading.Barrier(2, timeout=30)
    parts = split([ONE] * 2, schedule="SS")
    assert parts.map_reduce(lambda partition: both.wait() >= 0, operator.add).result() == 2


def test_first_error_in_the_order_of_the_collection() -> None:
    both = threading.Barrier(2, timeout=30)

    def fail(partition: Partition) -> None:
        ((index,),) = partition.get_indexes()
        both.wait()
        if index == 0:
            time.sleep(0.1)  # the later partition fails first
        raise ValueError(index)

    partitions = sorted(at_location([ONE] * 2), key=lambda part: part.get_indexes())
    with pytest.raises(ValueError, match="0"):
        team(fail, partitions=2)(lambda: 2, *partitions)


def test_no_partition_begins_after_an_error() -> None:
    begun = []

    def fail(partition: Partition) -> None:
        begun.append(partition.get_indexes())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        team(fail, partitions=5)(lambda: 1, *at_location([ONE] * 5))
    assert len(begun) == 1


def test_system_exit_of_a_thread_is_an_error_of_the_task() -> None:
    both = threading.Barrier(2, timeout=30)

    def leave(partition: Partition) -> None:
        both.wait()
        if threading.current_thread() is not threading.main_thread():
            raise SystemExit(3)

    with pytest.raises(SystemExit):
        team(leave, partitions=2)(lambda: 2, *at_location([ONE] * 2))


def test_a_thread_rests_while_its_core_is_needed_elsewhere() -> None:
    ran: list[str] = []
    cores = 1

    def run(partition: Partition) -> int:
        nonlocal cores
        ran.append(threading.current_thread().name)
        time.sleep(0.02)
        cores = 2 if len(ran) >= 10 else 1
        return 1

    partitions = at_location([ONE] * 40)
    assert team(run, partitions=40)(lambda: cores, *partitions) == 40
    assert set(ran[:10]) == {threading.current_thread().name}
    assert 5 < sum(name.startswith("spliter-team") for name in ran) < 25


def test_tasks_that_a_team_waits_for_run_in_its_threads() -> None:
    executor = local.LocalExecutor(threads=2)
    parts = split([ONE] * 8, schedule="SS")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spliter_backends.local.locator.default_executor", lambda: executor)
        parts = split([ONE] * 8, schedule="SS")

    def nested(partition: Partition) -> int:
        return int(executor.submit(len, (partition,), {}).result(timeout=30))

    futures = [parts.map_reduce(nested, operator.add) for _ in range(2)]
    assert [future.result(timeout=60) for future in futures] == [8, 8]


def test_results_are_combined_as_soon_as_they_can_be() -> None:
    alive: list[weakref.ref[Any]] = []
    most = 0

    def make(partition: Partition) -> Any:
        nonlocal most
        most = max(most, sum(one() is not None for one in alive))
        result = np.ones(1)
        alive.append(weakref.ref(result))
        return result

    in_order = Schedule("SS", order="contiguous")
    partitions = at_location([ONE] * 30, in_order)
    assert team(make, 1, partitions=30)(lambda: 1, *partitions) == 30
    assert most <= 2


class FreshBlocks(BlockSource):
    """A source that makes each block when it is read, and notes it with its position."""

    def __init__(self, positions: Sequence[int], made: list[tuple[int, weakref.ref[Any]]]) -> None:
        self.positions = positions
        self.made = made

    def make(self, number: int) -> Any:
        time.sleep(0.001)
        block = np.full(1, self.positions[number])
        self.made.append((self.positions[number], weakref.ref(block)))
        return block

    def read(self) -> Iterator[Any]:
        return map(self.make, range(len(self.positions)))

    def materialized(self) -> Any:
        raise AssertionError("blocks are read one by one")


class FetchedBlocks(FreshBlocks):
    """The same, each read while the program works on the one before."""

    def fetches(self) -> Fetches:
        return Fetches(self.make, [8] * len(self.positions), prefetch=1)


@pytest.mark.parametrize(("source", "most"), [(FreshBlocks, 1), (FetchedBlocks, 2)])
def test_each_thread_has_one_block_and_one_that_is_read(
    source: type[FreshBlocks], most: int
) -> None:
    made: list[tuple[int, weakref.ref[Any]]] = []
    positions: dict[int, set[int]] = {}
    found: list[int] = []
    both = threading.Barrier(2, timeout=30)
    partitions = [
        part.at_location(source(part.indexes.positions.tolist(), made))
        for part in at_location([ONE] * 40, Schedule("MSTATIC", min_blocks=10))
    ]

    def work(partition: Partition) -> int:
        both.wait()
        own = positions.setdefault(threading.get_ident(), set())
        own.update(partition.indexes.positions.tolist())
        total = 0
        for block in partition:
            time.sleep(0.003)
            total += int(block[0])
            # The other thread's may be between two blocks, and have both.
            found.append(sum(one() is not None for position, one in made if position in own))
        return total

    assert len(partitions) == 4
    assert team(work, partitions=4)(lambda: 2, *partitions) == sum(range(40))
    assert len(made) == 40
    assert max(found) == most


def test_a_cancelled_task_begins_no_further_partition() -> None:
    cores = iter([1, 1, 0])
    begun: list[Partition] = []
    with pytest.raises(CancelledError):
        team(begun.append, 1, partitions=5)(partial(next, cores), *at_location([ONE] * 5))
    assert len(begun) == 2


def test_an_error_of_combine_is_the_tasks_own() -> None:
    def combine(first: int, second: int) -> int:
        raise OverflowError("too many")

    parts = split([ONE] * 4, schedule="SS")
    with pytest.raises(OverflowError, match="too many"):
        parts.map_reduce(len, combine).result()
    assert gather(parts.map(len)) == [1] * 4


def test_teams_use_idle_threads_of_the_teams_before() -> None:
    together = threading.Barrier(4, timeout=30)
    before = set(threading.enumerate())
    for _ in range(50):  # each needs three other threads
        team(lambda part: together.wait() >= 0, 4, partitions=4)(lambda: 4, *at_location([ONE] * 4))
    assert len(set(threading.enumerate()) - before) < 30
