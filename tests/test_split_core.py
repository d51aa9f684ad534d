"""Split and Partition on an engine whose blocks move at the test's word."""

from __future__ import annotations

import gc
import math
import operator
import pickle
import sys
from typing import Any

import numpy as np
import pytest

from spliter import (
    AlignmentError,
    BlockGrid,
    Movement,
    Partition,
    Split,
    SplitClosedError,
    UnknownItemIndexError,
    split,
)
from tests.fake_engine import BLOCK_BYTES, fake_split

VALUES = [[0, 1], [2], [], [3, 4, 5]]
UNKNOWN = BlockGrid.of_unknown_sizes(4)


def planned(parts: Split) -> list[tuple[str, list[tuple[int, ...]]]]:
    return [(partition.location, partition.get_indexes()) for partition in parts[:]]


def items_of(partition: Partition) -> list[int]:
    return [item for block in partition for item in block]


def test_partitions_follow_the_placement() -> None:
    parts, _, _ = fake_split(VALUES, ["A", "B", "A", "B"])
    assert planned(parts) == [("A", [(0,), (2,)]), ("B", [(1,), (3,)])]
    assert parts.locations == ("A", "B")
    assert (parts.nblocks, parts.nbytes) == (4, 4 * BLOCK_BYTES)
    assert [partition.nbytes for partition in parts] == [2 * BLOCK_BYTES] * 2
    assert parts[0].block_nbytes.tolist() == [BLOCK_BYTES] * 2
    assert [partition.shape for partition in parts] == [(2,), (4,)]
    assert parts.moved == Movement(1, 10, 2, 20)
    assert (parts.moved.blocks, parts.moved.nbytes) == (3, 30)


def test_tasks_are_pinned_and_partitions_arrive_untied() -> None:
    parts, _, executor = fake_split(VALUES, ["A", "B", "A", "B"])
    tied = parts.map(lambda partition, plus: (partition.executor, plus), 5)
    assert [future.result() for future in tied] == [(None, 5)] * 2
    assert [call.location for call in executor.calls] == ["A", "B"]
    assert [future.result() for future in parts.map(items_of)] == [[0, 1], [2, 3, 4, 5]]


def test_at_its_location_a_partition_calls_instead_of_submitting() -> None:
    (partition, _), _, executor = fake_split(VALUES, ["A", "B", "A", "B"])
    assert partition.at_location().submit(items_of) == [0, 1]
    assert executor.calls == []


def test_plan_is_kept_while_nothing_has_moved() -> None:
    parts, blocks, _ = fake_split(VALUES, ["A", "B", "A", "B"])
    first = list(parts)
    blocks.holders[0] = ["B"]  # nobody has noticed yet
    assert list(parts) == first
    assert len(blocks.asked) == 1


def test_drift_is_planned_anew_when_the_next_iteration_starts() -> None:
    parts, blocks, _ = fake_split(VALUES, ["A", "B", "C", "C"])
    a, b, c = parts
    blocks.holders[0] = ["B"]
    blocks.counter.drifted = True
    assert parts[0] is a, "indexing does not plan"
    again = list(parts)
    assert planned(parts) == [("B", [(0,), (1,)]), ("C", [(2,), (3,)])]
    assert again[1] is c, "what has not changed is kept"
    assert blocks.asked[1:] == [[[0, 1]]], "and its source is not asked for again"
    # The old ones still work: the engine finds the blocks, wherever they are.
    assert items_of(b.at_location()) == [2]


def test_each_pass_has_all_items_though_blocks_move_in_between() -> None:
    parts, blocks, _ = fake_split(VALUES, "AABB")
    for holders in ("ABBB", "BBBA", "CCCC"):
        blocks.holders = [[name] for name in holders]
        blocks.counter.drifted = True
        found = [item for future in parts.map(items_of) for item in future.result()]
        assert sorted(found) == [0, 1, 2, 3, 4, 5]


def test_a_thread_that_must_not_wait_keeps_the_old_plan() -> None:
    parts, blocks, executor = fake_split(VALUES, ["A", "B", "C", "C"])
    first = list(parts)
    executor.may_block, blocks.counter.drifted = False, True
    assert list(parts) == first
    executor.may_block = True
    blocks.holders = [["A"]] * 4
    assert len(list(parts)) == 1


def test_refresh_plans_anew_at_once() -> None:
    parts, blocks, _ = fake_split(VALUES, ["A", "B", "C", "C"])
    blocks.holders = [["A"]] * 4
    parts.refresh()
    assert planned(parts) == [("A", [(0,), (1,), (2,), (3,)])]


def test_known_sizes_number_the_items_without_a_task() -> None:
    parts, _, executor = fake_split(VALUES, ["A", "B", "A", "B"])
    assert [part.get_item_indexes().tolist() for part in parts] == [[0, 1], [2, 3, 4, 5]]
    assert parts[0].get_item_indexes().dtype == np.int64
    parts.resolve_item_indexes()
    assert executor.calls == []


def test_unknown_sizes_are_asked_for_once_per_split() -> None:
    parts, _, executor = fake_split(VALUES, ["A", "B", "A", "B"], UNKNOWN)
    assert [partition.shape for partition in parts] == [(None,)] * 2
    for partition in parts:
        items = [item for (index,) in partition.get_indexes() for item in VALUES[index]]
        assert partition.get_item_indexes().tolist() == items
    assert len(executor.calls) == len(parts)
    assert parts.grid.chunks == ((2, 1, 0, 3),)
    assert [partition.shape for partition in parts] == [(2,), (4,)]


def test_partitions_made_after_sizes_are_known_know_them() -> None:
    parts, blocks, _ = fake_split(VALUES, ["A", "B", "C", "C"], UNKNOWN)
    parts.resolve_item_indexes()
    blocks.holders = [["A"]] * 4
    parts.refresh()
    assert parts[0].shape == (6,)


def test_resolved_sizes_travel_with_the_partition() -> None:
    parts, _, _ = fake_split(VALUES, ["A"] * 4, UNKNOWN)
    with pytest.raises(UnknownItemIndexError, match="resolve_item_indexes"):
        parts[0].at_location().get_item_indexes()
    parts.resolve_item_indexes()
    assert parts[0].at_location().get_item_indexes().tolist() == [0, 1, 2, 3, 4, 5]


def test_sizes_cannot_be_asked_for_where_waiting_is_not_possible() -> None:
    parts, _, executor = fake_split(VALUES, ["A"] * 4, UNKNOWN)
    executor.may_block = False
    with pytest.raises(UnknownItemIndexError, match="to_thread"):
        parts[0].get_item_indexes()
    with pytest.raises(UnknownItemIndexError, match="to_thread"):
        parts.resolve_item_indexes()


def test_sizes_cannot_be_asked_for_without_the_split() -> None:
    parts, _, _ = fake_split(VALUES, ["A"] * 4, UNKNOWN)
    partition = parts[0]
    del parts
    gc.collect()
    with pytest.raises(UnknownItemIndexError, match=r"Split was deleted"):
        partition.get_item_indexes()


def test_closing_reaches_blocks_and_every_partition_made() -> None:
    parts, blocks, _ = fake_split(VALUES, ["A", "B", "C", "C"])
    before_drift = parts[0]
    blocks.holders = [["A"]] * 4
    parts.refresh()
    with parts as itself:
        assert itself is parts
    parts.close()
    assert blocks.closed >= 1
    with pytest.raises(SplitClosedError, match="split again"):
        list(before_drift)
    with pytest.raises(SplitClosedError, match="split again"):
        before_drift.submit(items_of)
    for refused in (
        lambda: parts[0],
        lambda: list(parts),
        lambda: parts.take([0]),
        lambda: parts.map_reduce(len, operator.add),
        parts.metrics,
        parts.refresh,
        parts.resolve_item_indexes,
    ):
        with pytest.raises(SplitClosedError):
            refused()
    assert repr(parts) == "<Split: closed>"


def test_partition_pickles_without_its_executor() -> None:
    parts, _, _ = fake_split(VALUES, ["A"] * 4)
    partition = pickle.loads(pickle.dumps(parts[0]))
    assert partition.executor is None
    assert (partition.location, len(partition), partition.nbytes) == ("A", 4, 4 * BLOCK_BYTES)
    assert partition.get_indexes() == [(0,), (1,), (2,), (3,)]
    assert [index for index, _ in partition.items()] == partition.get_indexes()


def test_a_partition_says_it_is_small() -> None:
    parts = split([np.zeros(1_000_000)] * 3, partitions_per_location=1)
    assert sys.getsizeof(parts[0]) < 5_000


def split_of_grids(*chunks: Any) -> None:
    grids = [BlockGrid.from_chunks(each) for each in chunks]
    fake_split(["a"] * grids[0].nblocks, ["A"] * grids[0].nblocks, *grids)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([(3, 2)], [(3, 2)]),
        ([(3, 2), (4,)], [(3, 2)]),
        ([(3, 2)], [(3, 2), (7,)]),
        ([(3, 2), (2, 2)], [(3, 2), (9,)]),
        ([(math.nan, 2)], [(3, 2)]),
        ([(3, 2)], [(math.nan, math.nan)]),
        ([()], [()]),
    ],
)
def test_aligned(first: Any, second: Any) -> None:
    split_of_grids(first, second)


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ([(3, 2)], [(5,)], r"1 has 1 block \(5\).*2 blocks \(3, 2\).*rechunk"),
        ([(3, 2)], [(2, 3)], r"block 0 .* has 3 rows .* and 2 .*2 blocks \(3, 2\).*\(2, 3\)"),
        ([(3, 2)], [(3, 1)], "block 1 .* has 2 rows .* and 1"),
        ([(math.nan, 2)], [(3, 1)], r"\(\?, 2\)"),
        ([(3, 2)], [(3, 2), (1, 1)], r"\(2, 2\) blocks; only the first"),
        ([(1,) * 20], [(1,) * 19], r"\(1, 1, 1, 1, 1, 1, 1, 1, \.\.\.\)"),
    ],
)
def test_misaligned(first: Any, second: Any, says: str) -> None:
    with pytest.raises(AlignmentError, match=says.replace("1 has", "2 has", 1)):
        split_of_grids(first, first, second)
