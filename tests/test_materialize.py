"""When partitions are materialized, what tasks then see, and what a Split says about it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spliter import (
    BlockGrid,
    InvalidArgumentError,
    Location,
    Materialization,
    Partition,
    Split,
    split,
)
from spliter._plan import Plan
from spliter._planning.options import SplitOptions
from spliter_backends._shared.machine import available_memory
from spliter_backends.local import LocalExecutor
from tests.fake_engine import fake_split

HERE = Location("A")
ROOMY: dict[Location, int | None] = {HERE: 10**9}


def decided(
    rows: list[int],
    free: Mapping[Location, int | None] = ROOMY,
    nbytes: int = 100,
    partitions: int = 1,
) -> Materialization:
    """Return what is decided about blocks of so many rows, and of `nbytes` each."""
    parts, _, _ = fake_split(
        ["a"] * len(rows),
        ["A"] * len(rows),
        BlockGrid.from_chunks([rows, [3]]),
        partitions_per_location=partitions,
        materialize="auto",
        nbytes=nbytes,
        free=free,
    )
    return parts.materialization


@pytest.mark.parametrize(
    ("rows", "nbytes", "from_pass"),
    [
        (1, 8, 1),
        (240, 38_400, 1),
        (240, 38_401, 2),
        (480, 76_800, 2),
        (480, 76_801, 3),
        (10, 3_840_000, 100),
        (999, 8, 1),
        (999, 160_000, 5),
        (1000, 8, None),
    ],
)
def test_auto_by_rows_and_bytes_per_block(rows: int, nbytes: int, from_pass: int | None) -> None:
    assert decided([rows] * 10, nbytes=nbytes).from_pass == from_pass


@pytest.mark.parametrize(
    ("free", "says"),
    [
        ({HERE: 999}, "not materialized (too little free memory at A)"),
        ({HERE: -5}, "not materialized (too little free memory at A)"),
        ({HERE: 1000}, "materialized (about 10 rows per block)"),
        ({HERE: None}, "materialized (about 10 rows per block)"),
        ({}, "materialized (about 10 rows per block)"),
    ],
)
def test_auto_by_memory(free: Mapping[Location, int | None], says: str) -> None:
    assert str(decided([10] * 10, free)) == says


def test_auto_where_there_is_nothing_to_put_together() -> None:
    assert str(decided([10, 10], partitions=2)) == "not materialized (one block per partition)"
    assert str(decided([0, 0])) == "not materialized (no rows)"


@pytest.mark.parametrize("value", ["yes", None, 1.5, "Auto", [], "True"])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match='True, False or "auto"'):
        split([np.zeros(3)], materialize=value)


def number_of_blocks(partition: Partition) -> int:
    return sum(1 for _ in partition)


def passes(rows: int, materialize: Any, number: int) -> list[int]:
    """Blocks that tasks see, on each pass over ten blocks of one partition."""
    blocks = [np.zeros((rows, 20)) for _ in range(10)]
    with split(blocks, partitions_per_location=1, materialize=materialize) as parts:
        return [parts.map(number_of_blocks)[0].result() for _ in range(number)]


def test_tasks_see_one_block_from_that_pass_on() -> None:
    assert passes(5, False, 2) == [10, 10]
    assert passes(5, True, 2) == [1, 1]
    assert passes(5, "auto", 2) == [1, 1]
    assert passes(480, "auto", 4) == [10, 1, 1, 1]
    assert passes(720, "auto", 4) == [10, 10, 1, 1]
    assert passes(1000, "auto", 6) == [10] * 6


def test_sizes_are_not_asked_for_on_an_event_loop() -> None:
    _, blocks, executor = fake_split([np.zeros(3)] * 4, "AABB", BlockGrid.of_unknown_sizes(4))
    executor.may_block = False
    again = Split(Plan(blocks, executor, SplitOptions(1, materialize="auto")))
    assert str(again.materialization) == "not materialized (unknown number of rows per block)"
    executor.may_block = True
    again.resolve_item_indexes()
    assert str(again.materialization) == "materialized (about 3 rows per block)"


def test_partitions_planned_later_are_seen_alike() -> None:
    parts, blocks, _ = fake_split([np.zeros(2)] * 4, "AABB", materialize=True)
    blocks.holders = [["A"], ["A"], ["A"], ["B"]]
    blocks.counter.drifted = True
    assert [future.result() for future in parts.map(number_of_blocks)] == [1, 1]


def test_freed_when_the_split_is_dropped() -> None:
    def watch(partition: Partition) -> Any:
        return weakref.ref(partition.materialize())

    parts = split([np.zeros(3)] * 4, partitions_per_location=1)
    reference = parts.map(watch)[0].result()
    gc.collect()
    assert reference() is not None
    del parts
    gc.collect()
    assert reference() is None


def test_cut_by_blocks() -> None:
    blocks = [np.zeros((2, 3)), np.zeros((0, 3)), np.zeros((3, 3))]
    (partition,) = split(blocks, partitions_per_location=1)
    assert [piece.tolist() for piece in partition.cut(np.arange(5))] == [[0, 1], [], [2, 3, 4]]
    assert partition.cut(list("abcde")) == [["a", "b"], [], ["c", "d", "e"]]
    for wrong in (4, 6):
        with pytest.raises(InvalidArgumentError, match=f"each of 5 rows, got {wrong}"):
            partition.cut(np.arange(wrong))


def test_map_blocks_infers_what_the_function_returns() -> None:
    frames = [pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"a": [3]})]
    made = split(frames).map_blocks(lambda frame: frame.assign(b=frame["a"] * 2))
    pd.testing.assert_frame_equal(made[1], pd.DataFrame({"a": [3], "b": [6]}))
    aligned = split([np.ones((3, 2)), np.zeros((1, 2))], [np.arange(3), np.arange(1)])
    sums = aligned.map_blocks(lambda pair: pair[0].sum(axis=1) + pair[1])
    assert [block.tolist() for block in sums] == [[2, 3, 4], [0]]


def test_map_blocks_checks_the_trailing_shape() -> None:
    parts = split([np.zeros((3, 2)), np.zeros((2, 2))], partitions_per_location=1)
    with pytest.raises(InvalidArgumentError, match=r"shape \(3, 2\) for block \(0, 0\)"):
        parts.map_blocks(np.sqrt, dtype=float)
    with pytest.raises(InvalidArgumentError, match=r"got 2; rows of 3 columns have .*\(3,\)"):
        parts.map_blocks(np.sqrt, dtype=float, trailing_shape=2)  # type: ignore[arg-type]


def test_map_blocks_to_numbers_is_refused() -> None:
    parts = split([np.zeros((3, 2)), np.zeros((2, 2))], partitions_per_location=1)
    with pytest.raises(InvalidArgumentError, match="map_blocks returned a float64"):
        parts.map_blocks(np.sum)
    for fn in (np.sum, lambda block: float(block.sum())):
        with pytest.raises(InvalidArgumentError, match=r"returned .*0\.0\)? for block \(0, 0\)"):
            parts.map_blocks(fn, dtype=float)


def test_available_memory(tmp_path: Any) -> None:
    told = tmp_path / "meminfo"
    told.write_text("MemTotal:  100 kB\nMemAvailable:   42 kB\n", encoding="ascii")
    assert available_memory(str(told)) == 42 * 1024
    told.write_text("MemTotal:  100 kB\n", encoding="ascii")
    assert available_memory(str(told)) is None
    assert available_memory(str(tmp_path / "none")) is None
    assert set(LocalExecutor(1).free_memory([HERE])) == {HERE}
