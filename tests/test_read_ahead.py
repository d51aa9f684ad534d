"""Reading ahead: the same blocks, order and errors as a plain loop, within the window."""

from __future__ import annotations

import contextvars
import gc
import operator
import os
import shutil
import subprocess
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from spliter import BlockGrid, InvalidArgumentError, Location, Partition, split
from spliter._planning.grid import BlockIndexes
from spliter._reading.pace import FOLLOWING, MAX_DEPTH
from spliter._reading.partition_blocks import PartitionBlocks
from spliter._reading.read_ahead import (
    MAX_THREADS,
    WINDOW_NBYTES,
    Fetches,
    ReadAhead,
    Window,
    _abandoned,
    wait_for_abandoned,
    window_of,
)
from spliter._running.team import Team
from spliter.backend import BlockSource
from spliter_backends._shared.readable import ReadableCollection, in_turn, open_memmap
from tests.waiting import wait_until


class Store:
    """Blocks that take time to read; counts reads, and what is read and not returned."""

    def __init__(self, delays: list[float], failing: int = -1) -> None:
        self.delays = delays
        self.failing = failing
        self.reads: Counter[int] = Counter()
        self.was_read = [threading.Event() for _ in delays]
        self.lock = threading.Lock()

    def read(self, number: int) -> Any:
        with self.lock:
            self.reads[number] += 1
        time.sleep(self.delays[number])
        self.was_read[number].set()
        if number == self.failing:
            raise OSError(f"block {number}")
        return np.full(3, number)


@settings(max_examples=60, deadline=None)
@given(
    delays=st.lists(st.sampled_from([0.0, 0.0005, 0.002, 0.004]), max_size=12),
    failing=st.integers(-1, 12),
    leave=st.integers(0, 14),
    prefetch=st.sampled_from(["auto", 1, 3, 50]),
    nbytes=st.sampled_from([0, 1, WINDOW_NBYTES // 2, WINDOW_NBYTES // 3, 2 * WINDOW_NBYTES]),
)
def test_same_as_a_plain_loop(
    delays: list[float], failing: int, leave: int, prefetch: Any, nbytes: int
) -> None:
    store = Store(delays, failing)
    ahead = ReadAhead(Fetches(store.read, [nbytes] * len(delays), prefetch, "plain"), "split")
    window = window_of("plain")
    found, error = [], ""
    try:
        for number, block in enumerate(ahead):
            found.append(int(block[0]))
            pending = len(ahead._begun)
            assert pending <= (MAX_DEPTH if prefetch == "auto" else prefetch)
            assert window.nbytes == pending * nbytes <= max(WINDOW_NBYTES, nbytes)
            if number + 1 == leave:
                break
    except OSError as raised:
        error = str(raised)
    ahead.close()
    wait_for_abandoned("split")
    end = leave if 0 < leave <= len(delays) else len(delays)
    fails = 0 <= failing < end
    assert found == list(range(failing if fails else end))
    assert error == (f"block {failing}" if fails else "")
    assert max(store.reads.values(), default=1) == 1
    assert sum(store.reads.values()) == len(found) + fails + ahead.unused
    assert (window.nbytes, window.loops) == (0, 0)


@settings(deadline=None)
@given(
    loops=st.lists(st.sampled_from(["auto", 1, 8, 50]), min_size=2, max_size=4),
    nbytes=st.sampled_from([1, WINDOW_NBYTES // 7, WINDOW_NBYTES // 2, 2 * WINDOW_NBYTES]),
)
def test_threads_at_one_location_stay_within_the_window(loops: list[Any], nbytes: int) -> None:
    window = window_of("shared")
    held: list[int] = []

    def read(number: int) -> int:
        held.append(window.nbytes)
        time.sleep(0.002)
        return number

    def loop(prefetch: Any) -> list[int]:
        found = []
        for block in ReadAhead(Fetches(read, [nbytes] * 12, prefetch, "shared")):
            held.append(window.nbytes)
            found.append(block)
        return found

    with ThreadPoolExecutor(len(loops)) as threads:
        assert list(threads.map(loop, loops)) == [list(range(12))] * len(loops)
    assert 0 < max(held) <= max(WINDOW_NBYTES, nbytes)
    assert (window.nbytes, window.loops) == (0, 0)


@pytest.mark.thorough
def test_nothing_is_left_of_broken_loops() -> None:
    store = Store([0.002] * 20)
    blocks = []
    for _ in range(1000):
        ahead = ReadAhead(Fetches(store.read, [24] * 20, 4, "broken"), "broken")
        blocks.append(weakref.ref(next(ahead)))
        del ahead
    wait_for_abandoned("broken")
    time.sleep(0.05)
    gc.collect()
    assert not any(block() is not None for block in blocks)
    assert not _abandoned
    names = [thread.name for thread in threading.enumerate()]
    assert sum(name.startswith("spliter-read") for name in names) <= MAX_THREADS
    # Not isinstance, which asks proxies of others for their class: these may be dead.
    assert not [one for one in gc.get_objects() if type(one) is ReadAhead]


def test_no_reference_to_a_used_block_is_kept() -> None:
    ahead = ReadAhead(Fetches(Store([0.003] * 8).read, [24] * 8, 2))
    for block in ahead:
        used = weakref.ref(block)
        del block
        assert used() is None


def test_reads_of_blocks_in_memory_do_not_decide() -> None:
    store = Store([0, 0.002] * 12)
    for number, _ in enumerate(ReadAhead(Fetches(store.read, [0, 24] * 12))):
        assert number in (0, 1, 23) or store.was_read[number + 1].wait(10)


def test_a_loop_starts_with_the_depth_of_the_last_one() -> None:
    store = Store([0.01] * 20)
    list(ReadAhead(Fetches(store.read, [24] * 20, location="again")))
    depth = window_of("again").depth
    assert depth > 1
    ahead = ReadAhead(Fetches(store.read, [24] * 20, location="again"))
    first = ahead._pace.depth
    next(ahead)
    assert (first, len(ahead._begun) >= min(depth, 2)) == (depth, True)
    ahead.close()
    elsewhere = ReadAhead(Fetches(store.read, [24] * 20, location="first time"))
    assert elsewhere._pace.depth == 0


def test_threads_have_the_context_of_the_loop() -> None:
    variable = contextvars.ContextVar("variable", default=0)
    variable.set(1)
    found = list(ReadAhead(Fetches(lambda _: variable.get(), [8] * 5, prefetch=2)))
    assert found == [1] * 5


def test_processes_of_a_location_divide_its_window() -> None:
    window = window_of("divided", processes=4)
    assert window.take(WINDOW_NBYTES // 4, held=0)
    assert not window_of("divided", processes=4).take(1, held=0)


def test_reads_overlap_the_work() -> None:
    # The loop goes on only when three reads have begun that it has not asked for.
    begun = threading.Semaphore(0)

    def read(number: int) -> int:
        begun.release()
        return number

    blocks = ReadAhead(Fetches(read, [8] * 10, prefetch=3))
    assert next(blocks) == 0
    assert all(begun.acquire(timeout=30) for _ in range(1 + 3))
    assert list(blocks) == list(range(1, 10))


def test_fast_reads_take_no_thread() -> None:
    ran = set()

    def read(number: int) -> int:
        ran.add(threading.get_ident())
        return number

    assert list(ReadAhead(Fetches(read, [8] * 50, location="fast"))) == list(range(50))
    assert ran == {threading.get_ident()}


def test_loops_share_the_window_fairly() -> None:
    window = Window(limit=100)
    window.add_loop()
    window.add_loop()
    assert [window.take(20, held) for held in (0, 20, 40)] == [True, True, False]
    assert [window.take(20, held) for held in (0, 20)] == [True, True]
    assert not window.take(30, 0)


@pytest.mark.parametrize("value", [-1, 0, True, 2.0, "fast", None])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=f"prefetch must be .*, got {value!r}"):
        split([np.arange(3)], prefetch=value)


def test_zarr_arrays_are_read_once_and_ahead() -> None:
    zarr = pytest.importorskip("zarr")
    from zarr.testing.store import LatencyStore

    memory = zarr.storage.MemoryStore()
    zarr.create_array(memory, data=np.arange(64), chunks=(2,))
    array = zarr.open_array(LatencyStore(memory, get_latency=0.005), mode="r")

    def deepest(part: Any) -> tuple[int, int]:
        blocks = iter(part)
        return sum(int(block.sum()) for block in blocks), blocks._blocks.deepest

    options: list[tuple[Any, int]] = [("auto", MAX_DEPTH), (3, 3)]
    for prefetch, most in options:
        with split(array, partitions_per_location=1, prefetch=prefetch) as parts:
            total, depth = parts[0].submit(deepest).result()
        assert total == 64 * 63 // 2
        assert 1 < depth <= most
    with split(array, partitions_per_location=1, materialize=True) as parts:
        assert int(parts[0].submit(lambda part: part.materialize().sum()).result()) == total


class StoredSource(BlockSource):
    """The blocks of a store; waits in its first read of each until the team may go on."""

    def __init__(self, store: Store, numbers: range) -> None:
        self.store = store
        self.numbers = numbers

    def read(self) -> Iterator[Any]:
        raise AssertionError("blocks are fetched")

    def materialized(self) -> Any:
        raise AssertionError("blocks are fetched")

    def fetches(self) -> Fetches:
        return Fetches(
            lambda number: self.store.read(self.numbers[number]), [24] * len(self.numbers), 3
        )


def stored_partitions(store: Store, size: int) -> list[Partition]:
    """Return partitions of so many of its 12 blocks."""
    grid = BlockGrid(((3,) * 12,))
    return [
        Partition(
            PartitionBlocks(
                Location("here"),
                BlockIndexes.of(grid, np.arange(first, first + size)),
                np.full(size, 24),
                StoredSource(store, range(first, first + size)),
            )
        )
        for first in range(0, 12, size)
    ]


@pytest.mark.parametrize("size", [1, 4])
def test_a_team_reads_ahead_into_the_next_partitions(size: int) -> None:
    store = Store([0.0] * 12)
    parts = stored_partitions(store, size)
    ahead: list[int] = []

    def total(part: Partition) -> int:
        found = sum(int(block[0]) for block in part)
        later = [begun for one in parts if (begun := one._blocks.begun) is not None]
        ahead.append(sum(len(one._begun) for one in later))
        return found

    team = Team(total, operator.add, threads=1, queues="central", partitions=len(parts))
    assert team(lambda: 1, *parts) == sum(range(12))
    assert set(store.reads.values()) == {1}
    # Three of the following blocks, as far as there are any.
    left = [12 - at * size for at in range(1, len(parts) + 1)]
    assert ahead == [min(3, count) for count in left]
    assert FOLLOWING.get() is None


def test_a_team_that_fails_reads_nothing_more() -> None:
    store = Store([0.0] * 12)
    parts = stored_partitions(store, 1)

    def fail(part: Partition) -> int:
        list(part)
        raise OSError("no more")

    team = Team(fail, operator.add, threads=1, queues="central", partitions=len(parts))
    with pytest.raises(OSError, match="no more"):
        team(lambda: 1, *parts)
    assert sum(store.reads.values()) <= 1 + 3
    del parts
    gc.collect()
    assert window_of("").nbytes == 0


def test_the_table_of_a_pass_shows_the_depth_and_what_was_not_used() -> None:
    zarr = pytest.importorskip("zarr")
    from zarr.testing.store import LatencyStore

    memory = zarr.storage.MemoryStore()
    zarr.create_array(memory, data=np.arange(64), chunks=(2,))
    array = zarr.open_array(LatencyStore(memory, get_latency=0.005), mode="r")

    def first_of(part: Partition) -> int:
        blocks: Any = iter(part)
        found = int(next(blocks)[0])
        wait_until(lambda: all(one.running() or one.done() for one, _ in blocks._blocks._begun))
        return found

    with split(array, partitions_per_location=1, prefetch=3) as parts:
        assert parts[0].submit(first_of).result() == 0
        (found,) = parts.metrics()
        assert (found.read_ahead, found.unused_reads) == (3, 3)
        assert parts[0].submit(lambda part: sum(len(block) for block in part)).result() == 64
        (found,) = parts.metrics()
        assert (found.read_ahead, found.unused_reads) == (3, 0)
        assert "ahead  unused" in repr(parts.metrics())


@pytest.mark.parametrize(("prefetch", "depth"), [("auto", 64), (3, 3), (False, 0)])
def test_a_file_is_mapped_before_the_turn_of_its_blocks(prefetch: Any, depth: int) -> None:
    advised: list[int] = []
    grid = BlockGrid(((1,) * 80,))
    mapped = ReadableCollection(
        grid, np.full(80, 2**20), lambda at: at, will_need=advised.append, stored=True
    )
    for at in in_turn(mapped, np.arange(80), prefetch):
        assert advised == list(range(1, min(at + depth, 79) + 1 if depth else 1))


def test_the_system_reads_a_mapped_block(tmp_path: Path) -> None:
    path = tmp_path / "mapped.npy"
    np.save(path, np.zeros((64, 2**17)))
    mapped = open_memmap(np.load(path, mmap_mode="r"), threads=2)
    assert mapped.will_need is not None
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    nbytes = int(mapped.nbytes[1])
    if cached(path) >= nbytes:
        pytest.skip("this file system keeps its files in memory")
    deadline = time.monotonic() + 60
    while cached(path) < nbytes:
        assert time.monotonic() < deadline, cached(path)
        mapped.will_need(1)  # a busy system may not follow an advice
        time.sleep(0.01)


def cached(path: Path) -> int:
    """Return how many bytes of a file are in memory."""
    if shutil.which("fincore") is None:
        pytest.skip("fincore of util-linux is not installed")
    return int(subprocess.check_output(["fincore", "-bnr", "-o", "RES", str(path)]))
