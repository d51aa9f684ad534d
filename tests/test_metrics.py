"""What passes over a Split took: records at the location, the table, the counters."""

from __future__ import annotations

import gc
import operator
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spliter import Location, Partition, Schedule, Split, gather, split
from spliter._planning.grid import BlockIndexes
from spliter._planning.passes import Pass
from spliter._reading.measured import MeasuredBlocks
from spliter.metrics import RECORDS, Metrics, PartitionMetrics, report
from spliter.metrics._prometheus import HELP, Totals
from spliter.metrics._records import TOTALS
from spliter.metrics._report import idle_seconds

BLOCKS = [np.ones(at + 1) for at in range(12)]


def total(part: Partition) -> float:
    return float(sum(block.sum() for block in part))


def rest(part: Partition) -> None:
    for _ in part:
        time.sleep(0.05)


def measured(seconds: float, begun: float = 0.0, thread: int = 0, **more: Any) -> Pass:
    """Return a pass over one block."""
    values: dict[str, Any] = {
        "split": "a",
        "positions": np.array([thread]),
        "nbytes": 8,
        "thread": (1, thread),
        "begun": begun,
        "duration": seconds,
        "cpu": seconds,
        "seconds": np.array([seconds], np.float32),
        "waiting": 0.0,
    }
    return Pass(**values | more)


@dataclass(frozen=True)
class Shared:
    """What the table shows of a partition."""

    location: Location
    holders: tuple[Location, ...]
    indexes: BlockIndexes
    nbytes: int


def slow(blocks: list[Any], seconds: float) -> Iterator[Any]:
    for block in blocks:
        time.sleep(seconds)
        yield block


def test_seconds_of_each_block_and_of_reading() -> None:
    blocks = MeasuredBlocks(slow([1, 2, 3], 0.05), "each", np.arange(3), 24)
    for block in blocks:
        time.sleep(0.3 * (block == 2))
    (one,) = RECORDS.take("each")
    assert one.is_whole
    assert one.seconds.argmax() == 1
    assert one.seconds[1] >= 0.3
    assert one.waiting >= 0.15
    assert one.duration >= 0.45
    assert one.cpu < one.duration
    assert one.begun < time.time()


def test_a_loop_left_early_is_measured() -> None:
    for _ in MeasuredBlocks(iter([1, 2, 3]), "early", np.arange(3), 24):
        break
    (one,) = RECORDS.take("early")
    assert (len(one.seconds), one.is_whole) == (1, False)


def test_a_loop_may_be_collected_while_its_thread_holds_the_locks() -> None:
    left = MeasuredBlocks(iter([1, 2]), "collected", np.arange(2), 16)
    next(left)
    with RECORDS._lock, TOTALS._lock:
        del left  # as the garbage collector does, in the middle of any allocation
    (one,) = RECORDS.take("collected")
    assert not one.is_whole


def test_a_failed_read_is_not_measured() -> None:
    def fail() -> Iterator[int]:
        yield 1
        raise OSError

    with pytest.raises(OSError, match=r"^$"):
        list(MeasuredBlocks(fail(), "failed", np.arange(2), 16))
    gc.collect()
    assert RECORDS.take("failed") == []


def test_a_used_block_is_released_before_the_next_one_is_read() -> None:
    alive: list[weakref.ref[Any]] = []

    def make() -> Iterator[Any]:
        for _ in range(3):
            assert not alive or alive[-1]() is None
            block = np.ones(3)
            alive.append(weakref.ref(block))
            yield block
            del block

    blocks = MeasuredBlocks(make(), "released", np.arange(3), 24)
    for _ in range(2):
        next(blocks).sum()
    # A generator keeps what it has yielded; the wrapper must not.
    assert alive[0]() is None


def test_records_of_the_splits_measured_last_are_kept() -> None:
    for number in range(200):
        RECORDS.keep([measured(1.0, split=f"many {number}")])
    assert RECORDS.take("many 0") == []
    assert len(RECORDS.take("many 199")) == 1


def test_idle_time_before_the_last_core_is_done() -> None:
    # Two threads: one runs 2 s and 1 s, the other 1 s. A third core has nothing.
    passes = [measured(2.0), measured(1.0, begun=2.0), measured(1.0, thread=1)]
    assert idle_seconds(passes, cores=2) == pytest.approx(2.0)
    assert idle_seconds(passes, cores=3) == pytest.approx(2.0 + 3.0)
    assert idle_seconds(passes, cores=1) == 0


@pytest.fixture
def four() -> Iterator[Split]:
    with split([np.ones(1)] * 4, partitions_per_location=4) as parts:
        yield parts


def table(parts: Split, cpu: float, cores: int) -> Metrics:
    passes = [measured(1.0, thread=number, cpu=cpu) for number in range(4)]
    return report(parts, passes, {Location("local"): cores})


def test_hint_if_threads_take_turns(four: Split) -> None:
    assert table(four, cpu=1.0, cores=4).hint is None
    hint = table(four, cpu=0.3, cores=4).hint
    assert hint is not None
    assert "30%" in hint
    assert "interpreter lock" in hint
    assert table(four, cpu=0.3, cores=1).hint is None  # one thread waits for nobody


def test_text_html_and_data_frame(four: Split) -> None:
    found = table(four, cpu=0.3, cores=4)
    header, row, hint = repr(found).splitlines()
    assert header.split()[:3] == ["location", "partitions", "blocks"]
    assert row.split() == ["local", "4", "4", "32", "B", "4", "1.2", "0", "0", "0", "0", "0"]
    assert "<td>local</td>" in found._repr_html_()
    assert hint[:7] in found._repr_html_()
    frame = pd.DataFrame(found)
    assert list(frame["cpu_seconds"]) == [0.3] * 4
    assert isinstance(found[0], PartitionMetrics)
    assert len(found[:2]) == 2


def test_partitions_of_earlier_plans_and_other_splits_are_ignored(four: Split) -> None:
    old = measured(1.0, positions=np.array([0, 1]))
    assert len(report(four, [old], {})) == 0


def test_partitions_that_ran_elsewhere_or_were_taken_count_as_steals(four: Split) -> None:
    local, elsewhere = Location("local"), Location("elsewhere")
    passes = [
        measured(1.0, thread=0, place=local),
        measured(1.0, thread=1, place=elsewhere),
        measured(1.0, thread=2, stolen=True),
    ]
    shared = [Shared(local, (local, elsewhere), part.indexes, part.nbytes) for part in four]
    found = report(shared, passes, {local: 4})
    assert [one.stolen for one in found] == [False, True, True]
    assert set(found.idle_seconds) == {local, elsewhere}
    # Where no other location may run it, the process asked first says nothing: it may have several.
    found = report(four, passes, {local: 4})
    assert [one.stolen for one in found] == [False, False, True]
    assert set(found.idle_seconds) == {local}


@pytest.mark.usefixtures("two_threads")
def test_a_team_counts_what_a_thread_took_from_another() -> None:
    both, others = threading.Barrier(2, timeout=30), threading.Barrier(2, timeout=30)
    in_order = Schedule("SS", order="contiguous")
    parts = split([np.full(1, at) for at in range(4)], schedule=in_order)

    def work(part: Partition) -> float:
        ((at,),) = part.get_indexes()
        if at in (0, 1):
            both.wait()  # the threads have begun with their own queues: 0 and 2, 1 and 3
        if at in (1, 3):
            others.wait()  # the thread of 1 is held until the other one has come to 3
        return total(part)

    parts.map_reduce(total, operator.add, queues="core", threads=1).result()
    assert not any(one.stolen for one in parts.metrics())
    before = TOTALS._values["steals"]
    assert parts.map_reduce(work, operator.add, queues="core").result() == sum(range(4))
    assert [one.stolen for one in parts.metrics()] == [False, False, False, True]
    assert TOTALS._values["steals"] == before + 1


@pytest.mark.usefixtures("two_threads")
def test_hint_after_a_real_pass_of_a_function_that_holds_the_lock() -> None:
    both = threading.Barrier(2, timeout=30)
    parts = split([np.ones(1)] * 2, partitions_per_location=2)

    def count(part: Partition) -> int:
        both.wait()
        return sum(number for _ in part for number in range(3_000_000))

    assert parts.map_reduce(count, operator.eq).result()
    assert len({one.location for one in parts.metrics()}) == 1
    assert "interpreter lock" in str(parts.metrics().hint)


def test_counters_whose_names_are_taken() -> None:
    pytest.importorskip("prometheus_client")
    TOTALS.add(passes=0)
    Totals().add(passes=1)  # as of a module that was imported again


def test_counters_of_this_process() -> None:
    prometheus_client = pytest.importorskip("prometheus_client")
    registry = prometheus_client.REGISTRY

    def value(name: str) -> float:
        return registry.get_sample_value(f"spliter_{name}_total") or 0.0

    parts = split(BLOCKS, partitions_per_location=3)
    gather(parts.map(total))  # the first pass registers the counters
    before = {name: value(name) for name in HELP}
    gather(parts.map(total))
    assert value("passes") - before["passes"] == 3
    assert value("blocks") - before["blocks"] == len(BLOCKS)
    assert value("bytes") - before["bytes"] == parts.nbytes
    assert value("seconds") > before["seconds"]
    assert b"spliter_blocks_total" in prometheus_client.generate_latest()
