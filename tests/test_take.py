"""Rows by global index: the same as NumPy and pandas pick from the whole collection."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given

from spliter import BlockGrid, InvalidArgumentError, ItemIndexError, split
from spliter._planning.take import plan_rows
from spliter.backend import take_rows
from tests.fake_engine import fake_split

LENGTHS = (3, 0, 5, 1, 0)
ROWS = sum(LENGTHS)
WANTED = [7, 0, -1, 0, 4, 8]
TABLE = np.arange(4.0 * ROWS).reshape(ROWS, 4)
RECORDS = np.zeros(ROWS, dtype=[("t", "f8"), ("name", "U3"), ("v", "i2", (2,))])
RECORDS["t"], RECORDS["v"] = TABLE[:, 0], TABLE[:, :2]
FRAME = pd.DataFrame({"a": np.arange(ROWS), "b": list("abcdefghi"), 3: TABLE[:, 1]})
MASKED = np.ma.masked_where(TABLE % 5 == 0, TABLE)
ARROW = pa.table({"a": np.arange(ROWS), "b": list("abcdefghi"), "c": TABLE[:, 1]})


def cut(whole: Any) -> list[Any]:
    ends = np.cumsum(LENGTHS)
    return [
        take_rows(whole, slice(end - rows, end)) for end, rows in zip(ends, LENGTHS, strict=True)
    ]


def same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, pd.DataFrame | pd.Series | pa.Table):
        assert found.equals(expected)
    elif hasattr(expected, "toarray"):
        np.testing.assert_array_equal(found.toarray(), expected.toarray())
    else:
        np.testing.assert_array_equal(np.ma.getmaskarray(found), np.ma.getmaskarray(expected))
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype


@pytest.mark.parametrize(
    "whole",
    [
        TABLE,
        TABLE[:, 0],
        TABLE.reshape(ROWS, 2, 2),
        np.asfortranarray(TABLE),
        RECORDS,
        MASKED,
        sp.csr_array(TABLE),
        sp.csc_matrix(TABLE),
        FRAME,
        FRAME["b"],
        ARROW,
    ],
    ids=lambda whole: f"{type(whole).__name__}{len(whole.shape)}",
)
@pytest.mark.parametrize("wanted", [WANTED, [], range(ROWS)], ids=["some", "none", "all"])
def test_rows_of_blocks_of_any_kind(whole: Any, wanted: Any) -> None:
    with split(cut(whole), partitions_per_location=2) as parts:
        same(parts.take(wanted), take_rows(whole, np.arange(ROWS)[np.array(wanted, np.int64)]))


@pytest.mark.parametrize(
    ("whole", "columns", "expected"),
    [
        (TABLE, [3, 0], TABLE[WANTED][:, [3, 0]]),
        (TABLE, (-1,), TABLE[WANTED][:, [3]]),
        (TABLE.reshape(ROWS, 2, 2), [1], TABLE.reshape(ROWS, 2, 2)[WANTED][:, [1]]),
        (MASKED, [2, 1], MASKED[WANTED][:, [2, 1]]),
        (sp.csr_array(TABLE), [3, 0], sp.csr_array(TABLE[WANTED][:, [3, 0]])),
        (FRAME, [3, "a"], FRAME.iloc[WANTED][[3, "a"]]),
        (ARROW, ["c", "a"], ARROW.take(np.arange(ROWS)[WANTED]).select(["c", "a"])),
    ],
    ids=["integers", "negative", "n-D", "masked", "sparse", "labels", "table"],
)
def test_columns(whole: Any, columns: Any, expected: Any) -> None:
    same(split(cut(whole), partitions_per_location=2).take(WANTED, columns), expected)


@pytest.mark.parametrize("holders", [["A", "A"], ["A", "B"]], ids=["at one", "at two"])
@pytest.mark.parametrize("kind", ["frame", "table", "fields"])
def test_other_columns_may_differ_wherever_blocks_are(holders: list[str], kind: str) -> None:
    wide = pd.DataFrame({"a": [0, 1], "b": [2, 3], "d": [4, 5]})
    make: Any = {
        "frame": lambda frame: frame,
        "table": pa.Table.from_pandas,
        "fields": lambda frame: frame.to_records(index=False).view(np.ndarray),
    }[kind]
    parts, _, _ = fake_split([make(wide[["a", "b"]]), make(wide)], holders)
    found = parts.take([0, 3], columns=["b"])
    assert np.asarray(found["b"]).tolist() == [2, 3]
    with pytest.raises(InvalidArgumentError, match="column 'd' is unknown"):
        parts.take([0, 3], columns=["d"])


def test_positions_are_not_those_of_blocks_of_other_widths() -> None:
    parts, _, _ = fake_split([np.zeros((2, 2)), np.ones((2, 3))], ["A", "A"])
    with pytest.raises(ValueError, match="match exactly"):
        parts.take([0, 3], columns=[-1])


def test_byte_order_does_not_depend_on_the_rows() -> None:
    for whole in (
        TABLE.astype(">f4"),
        MASKED.astype(">f4"),
        RECORDS.astype(RECORDS.dtype.newbyteorder(">")),
    ):
        parts = split(cut(whole), partitions_per_location=2)
        dtypes = {parts.take(rows).dtype for rows in ([0], WANTED)}
        dtypes.add(parts[0].at_location().materialize().dtype)
        assert dtypes == {whole.dtype}


def test_aligned_collections_give_a_tuple() -> None:
    parts = split(cut(TABLE), cut(FRAME), cut(list(range(ROWS))), partitions_per_location=2)
    points, frame, numbers = parts.take(WANTED, [1])
    same(points, TABLE[WANTED][:, [1]])
    same(frame, FRAME.iloc[WANTED])
    assert numbers == [7, 0, 8, 0, 4, 8]


def test_one_task_for_each_partition_that_has_rows() -> None:
    values = [np.arange(at, at + 2) for at in range(0, 8, 2)]
    parts, _, executor = fake_split(values, ["A", "B", "C", "A"])
    np.testing.assert_array_equal(parts.take([6, 1, 1, 7]), [6, 1, 1, 7])
    np.testing.assert_array_equal(parts.take([2, 5]), [2, 5])
    assert [call.location for call in executor.calls] == ["A", "B", "C"]


@given(
    lengths=st.lists(st.integers(0, 4), min_size=1, max_size=8),
    owners=st.lists(st.integers(0, 2), min_size=8, max_size=8),
    numbers=st.lists(st.integers(0, 10**6), max_size=20),
)
def test_any_rows_of_any_grid(lengths: list[int], owners: list[int], numbers: list[int]) -> None:
    grid = BlockGrid.from_chunks([lengths])
    rows = sum(lengths)
    items = np.array([number % rows for number in numbers if rows], np.int64)
    holders = np.array(owners[: len(lengths)])
    positions = [np.flatnonzero(holders == owner) for owner in np.unique(holders)]
    planned, order = plan_rows(grid, positions, items)
    found = [
        grid.row_starts[positions[number][some.blocks]] + some.rows
        for number, some in planned.items()
    ]
    sent = np.concatenate([np.empty(0, np.int64), *found])
    np.testing.assert_array_equal(sent[order], items)
    assert len(sent) == len(np.unique(items)), "each row is sent once"
    assert all((np.diff(some.blocks) >= 0).all() for some in planned.values())


@pytest.mark.parametrize("index", [ROWS, -ROWS - 1, 2**62])
def test_indices_out_of_range(index: int) -> None:
    with pytest.raises(ItemIndexError, match=f"index {index} is out of range .* of 9 rows"):
        split(cut(TABLE)).take([0, index])
    with pytest.raises(IndexError):
        TABLE.take([0, index], axis=0)


@pytest.mark.parametrize(
    ("indices", "named"),
    [
        ([1.5], "1.5"),
        ([2**70], "whole numbers"),
        (["1"], "whole numbers"),
        (3, "got 3"),
        ([[1]], "whole numbers"),
        ([[1], [2, 3]], "whole numbers"),
        (np.ones(ROWS, bool), "flatnonzero"),
    ],
)
def test_indices_that_are_no_list_of_integers(indices: Any, named: str) -> None:
    with pytest.raises(InvalidArgumentError, match=named):
        split(cut(TABLE)).take(indices)


@pytest.mark.parametrize(
    ("whole", "columns", "named"),
    [
        (TABLE, [4], "column 4 is unknown"),
        (TABLE, [-5], "column -5 is unknown"),
        (TABLE, [True], "column True is unknown"),
        (TABLE, [0.5], "column 0.5 is unknown"),
        (TABLE, ["a"], "column 'a' is unknown"),
        (TABLE, [1, 1], "column 1 is repeated"),
        (TABLE, [3, -1], "twice"),
        (TABLE, 1, r"pass \[1\]"),
        (TABLE[:, 0], [0], "no columns"),
        (list(range(ROWS)), [0], "no columns"),
        (RECORDS, ["q"], "column 'q' is unknown; the fields of the blocks are 't'"),
        (RECORDS, "t", r"pass \['t'\]"),
        (RECORDS, [0], "column 0 is unknown"),
        (FRAME, ["q"], "column 'q' is unknown"),
        (FRAME, ["a", "a"], "column 'a' is repeated"),
        (pd.concat([FRAME, FRAME], axis=1), ["a"], "several columns.*rename them"),
        (pd.concat([FRAME], axis=1, keys=["x"]), ["x"], "pass tuples of 2 labels"),
        (TABLE, [0.0], "column 0.0 is unknown"),
        (TABLE, np.array([[0]]), r"column array\(\[0\]\) is unknown"),
        (TABLE, np.array(0), "must be a list"),
        (TABLE, [True, False, True, False], r"of a mask, pass numpy.flatnonzero\(mask\)"),
    ],
)
def test_columns_that_cannot_be_used(whole: Any, columns: Any, named: str) -> None:
    with pytest.raises(InvalidArgumentError, match=named):
        split(cut(whole)).take([0], columns)


def test_blocks_in_several_columns() -> None:
    grid = BlockGrid.from_chunks([(1, 1), (1, 1)])
    parts, _, _ = fake_split([np.ones((1, 1))] * 4, ["A"] * 4, grid)
    with pytest.raises(InvalidArgumentError, match="rechunk"):
        parts.take([0])
