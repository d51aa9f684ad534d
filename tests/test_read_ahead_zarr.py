"""Reading ahead from a Zarr store that is far away, or that does not answer."""

from __future__ import annotations

import asyncio
import operator
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from typing import Any

import numpy as np
import pytest

pytest.importorskip("zarr")

import contextlib

import zarr
from zarr.storage import MemoryStore, WrapperStore
from zarr.testing.store import LatencyStore

from spliter import Partition, Split, SplitClosedError, split
from spliter._reading import read_ahead as reading
from spliter._reading.read_ahead import CLOSE_SECONDS, _abandoned, wait_for_abandoned, window_of

WAIT = 30.0

TOTAL = sum(range(64))


class HeldStore(WrapperStore[Any]):
    """Answers at once, but for one chunk, whose reads wait."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.asked = threading.Event()
        self.answers = threading.Event()

    def _with_store(self, store: Any) -> HeldStore:
        copied = HeldStore(store)
        copied.asked, copied.answers = self.asked, self.answers
        return copied

    async def get(self, key: str, *args: Any, **kwargs: Any) -> Any:
        if key == "c/1":
            self.asked.set()
            while not self.answers.is_set():
                await asyncio.sleep(0.005)
        return await super().get(key, *args, **kwargs)


def numbers() -> MemoryStore:
    """Return a store of 64 numbers in 32 chunks."""
    memory = MemoryStore()
    zarr.create_array(memory, data=np.arange(64), chunks=(2,))
    return memory


@pytest.fixture
def held() -> Iterator[HeldStore]:
    store = HeldStore(numbers())
    yield store
    store.answers.set()
    wait(_abandoned, WAIT)


@pytest.fixture
def far() -> Any:
    """Array whose chunks are 5 ms away."""
    return zarr.open_array(LatencyStore(numbers(), get_latency=0.005), mode="r")


def leave(part: Partition, asked: threading.Event) -> None:
    """Leave a loop while its next block is being read."""
    for _ in part:
        assert asked.wait(WAIT)
        break


def closing(store: HeldStore) -> threading.Thread:
    """Close a Split whose loop was left during a read."""
    parts = split(zarr.open_array(store, mode="r"), partitions_per_location=1, prefetch=1)
    parts[0].submit(leave, store.asked).result()
    thread = threading.Thread(target=parts.close)
    thread.start()
    return thread


def test_close_waits_for_a_read_that_is_running(held: HeldStore) -> None:
    thread = closing(held)
    thread.join(CLOSE_SECONDS / 20)
    assert thread.is_alive()
    held.answers.set()
    thread.join(WAIT)
    assert not thread.is_alive()
    assert not _abandoned


def test_close_waits_a_bounded_time(held: HeldStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CLOSE_SECONDS", CLOSE_SECONDS / 100)
    thread = closing(held)
    thread.join(WAIT)
    assert not thread.is_alive()
    assert _abandoned


def total(part: Partition, tell: Callable[[], None], closed: threading.Event) -> int:
    """Sum of all numbers; the Split is closed after the first blocks."""
    found = 0
    for number, block in enumerate(part):
        found += int(block.sum())
        if number == 3:
            tell()
            assert closed.wait(WAIT)
    return found


def test_a_split_that_is_closed_during_a_loop(far: Any) -> None:
    reached, closed = threading.Event(), threading.Event()
    parts = split(far, partitions_per_location=1, prefetch=3)
    future = parts[0].submit(total, reached.set, closed)
    assert reached.wait(WAIT)
    window = window_of("")
    assert window.nbytes
    parts.close()
    closed.set()
    with contextlib.suppress(SplitClosedError):
        assert future.result(WAIT) == TOTAL
    wait_for_abandoned(parts._plan.token)
    assert (window.nbytes, window.loops) == (0, 0)
    assert not _abandoned


def reading_threads() -> int:
    """Return how many threads of this process read ahead."""
    return sum(thread.name.startswith("spliter-read") for thread in threading.enumerate())


def threads_of(parts: Split) -> int:
    """Return how many threads a pass has started."""
    reading._threads(os.getpid()).shutdown()
    reading._threads.cache_clear()
    assert reading_threads() == 0
    assert sum(parts[0].submit(lambda part: [int(x.sum()) for x in part]).result()) == TOTAL
    return reading_threads()


def test_blocks_in_memory_start_no_thread(far: Any) -> None:
    with split(np.split(np.arange(64), 32), partitions_per_location=1, prefetch=4) as parts:
        assert threads_of(parts) == 0
    with split(far, partitions_per_location=1, prefetch=4) as parts:
        assert threads_of(parts) > 0


def test_metrics_of_a_team_show_reads_of_the_next_partitions(far: Any) -> None:
    def sums(part: Partition) -> int:
        return sum(int(block.sum()) for block in part)

    for prefetch in (3, False):
        with split(far, schedule="SS", prefetch=prefetch) as parts:
            assert parts.map_reduce(sums, operator.add, threads=1).result() == TOTAL
            depths = [one.read_ahead for one in parts.metrics()]
        assert len(depths) == 32  # of one block each
        # Only the first one was read by its own loop.
        assert sorted(depths) == ([0] + [1] * 31 if prefetch else [0] * 32)
