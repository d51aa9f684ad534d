"""Columns of a materialized partition: the same as NumPy and pandas select from the whole."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given

from spliter import BlockGrid, InvalidArgumentError, split
from spliter._machine.cache import USUAL_NBYTES, cache_nbytes
from spliter._machine.llvm import is_installed
from spliter._reading.column_copy import copy_columns
from spliter._reading.columns import MIN_PACKED_ROWS, _field_packer
from spliter.backend import take_rows
from tests.fake_engine import fake_split
from tests.test_take import ARROW, FRAME, LENGTHS, MASKED, RECORDS, ROWS, TABLE, cut, same


def materialized(*collections: Any, **options: Any) -> Any:
    (partition,) = split(*collections, partitions_per_location=1)
    return partition.at_location().materialize(**options)


@pytest.mark.parametrize(
    ("whole", "columns", "expected"),
    [
        (TABLE, [3, 0], TABLE[:, [3, 0]]),
        (TABLE, [-1], TABLE[:, [3]]),
        (TABLE, [], TABLE[:, []]),
        (np.asfortranarray(TABLE), [2, 1], TABLE[:, [2, 1]]),
        (TABLE.reshape(ROWS, 2, 2), [1], TABLE.reshape(ROWS, 2, 2)[:, [1]]),
        (TABLE.astype(">i4"), [1], TABLE.astype(">i4")[:, [1]]),
        (TABLE.astype(object), [1, 0], TABLE.astype(object)[:, [1, 0]]),
        (MASKED, [3, 0, 1], MASKED[:, [3, 0, 1]]),
        (sp.csr_array(TABLE), [3, 0], sp.csr_array(TABLE[:, [3, 0]])),
        (FRAME, [3, "a"], FRAME[[3, "a"]]),
        (FRAME.astype({"b": "category"}), ["b"], FRAME.astype({"b": "category"})[["b"]]),
        (FRAME.set_index("b"), [3], FRAME.set_index("b")[[3]]),
        (ARROW, ["c", "a"], ARROW.select(["c", "a"])),
        (ARROW, None, ARROW),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, list) else str(value),
)
def test_same_as_selecting_from_the_whole(whole: Any, columns: Any, expected: Any) -> None:
    same(materialized(cut(whole), columns=columns), expected)


@pytest.mark.parametrize("columns", [None, [3, 1]])
@pytest.mark.parametrize("whole", [TABLE, MASKED, TABLE.reshape(ROWS, 4, 1)])
def test_arrays_as_columns_are_in_fortran_order(whole: Any, columns: list[int] | None) -> None:
    found = materialized(cut(whole), columns=columns, as_columns=True)
    same(found, whole if columns is None else whole[:, columns])
    assert found.flags.f_contiguous


@pytest.mark.parametrize("columns", [None, ["v", "t"]])
@pytest.mark.parametrize("whole", [RECORDS, np.ma.array(RECORDS)], ids=["plain", "masked"])
def test_fields(whole: Any, columns: list[str] | None) -> None:
    if isinstance(whole, np.ma.MaskedArray):
        whole = whole.copy()
        whole["v"][3] = np.ma.masked
    columns_found = materialized(cut(whole), columns=columns, as_columns=True)
    assert list(columns_found) == (columns or ["t", "name", "v"])
    found = materialized(cut(whole), columns=columns or ["t", "name", "v"])
    assert found.dtype.itemsize == sum(found.dtype[name].itemsize for name in found.dtype.names)
    for name, column in columns_found.items():
        assert column.flags.c_contiguous
        same(column, whole[name])
        same(found[name], whole[name])


FIELDS = [("t", ">f8"), ("n", "u1"), ("v", "i2", (2, 3)), ("s", "S5"), ("x", "f4")]
MANY = np.zeros(MIN_PACKED_ROWS, np.dtype(FIELDS, align=True))
for name in ("t", "n", "v", "x"):
    MANY[name] = np.random.default_rng(0).integers(0, 99, MANY[name].shape)
MANY["s"] = [b"%d" % row for row in range(len(MANY))]


@pytest.mark.parametrize(
    "rows",
    [MANY, MANY[::-1], np.repeat(MANY, 3)[::3], np.ma.masked_array(MANY, MANY["n"] > 50)],
    ids=["contiguous", "reversed", "strided", "masked"],
)
def test_fields_of_many_rows_are_packed(rows: Any, tmp_path: Path) -> None:
    columns = ["x", "v", "n", "t"]
    expected = rows[columns]
    blocks = [rows, rows[:10], rows[:0]]
    if not isinstance(rows, np.ma.MaskedArray):
        blocks.append(np.memmap(tmp_path / "rows", rows.dtype, "w+", shape=len(rows)))
        blocks[-1][:] = rows
    before = _field_packer.cache_info()
    found = materialized(blocks, columns=columns)
    after = _field_packer.cache_info()
    assert after.hits + after.misses - before.hits - before.misses == (2 if is_installed() else 0)
    assert found.dtype.itemsize == 4 + 12 + 1 + 8
    for name in columns:
        same(found[: len(rows)][name], expected[name])
        same(found[len(rows) + 10 :][name], expected[name][: len(found) - len(rows) - 10])
    chosen = np.arange(len(rows))[::-1]
    picked = split([rows], partitions_per_location=1).take(chosen, columns=columns)
    for name in columns:
        same(picked[name], rows[name][chosen])


def test_objects_among_fields_are_copied() -> None:
    rows = np.zeros(MIN_PACKED_ROWS, [("a", "i4"), ("o", "O"), ("b", "f8")])
    rows["o"] = "text"
    for columns in (["o", "a"], ["b"]):
        same(materialized([rows], columns=columns)[columns[0]], rows[columns[0]])


def test_tables_without_rows_may_have_no_columns() -> None:
    same(materialized([pa.table({}), ARROW], columns=["c"]), ARROW.select(["c"]))


def test_frames_as_columns() -> None:
    frame = FRAME.assign(kind=pd.Categorical(list("xyxyxyxyx")))
    found = materialized(cut(frame), as_columns=True)
    assert list(found) == list(frame.columns)
    for label in ("a", 3):
        same(found[label], frame[label].to_numpy())
        assert found[label].flags.writeable
    assert found["kind"].equals(frame["kind"].array)


def test_frames_whose_blocks_differ_in_dtype_or_categories() -> None:
    blocks = [
        pd.DataFrame({"n": [1, 2], "c": pd.Categorical(["x", "y"])}),
        pd.DataFrame({"n": [1.5], "c": pd.Categorical(["z"])}),
    ]
    same(materialized(blocks, columns=["c", "n"]), materialized(blocks)[["c", "n"]])


def test_aligned_collections_keep_all_their_columns() -> None:
    found, records, numbers = materialized(
        cut(TABLE), cut(RECORDS), cut(list(range(ROWS))), columns=[2], as_columns=True
    )
    same(found, TABLE[:, [2]])
    same(records, RECORDS)
    assert numbers == list(range(ROWS))


def test_no_fields() -> None:
    found = split(cut(RECORDS)).take([0, 3], columns=[])
    assert found.dtype == np.dtype([]) and len(found) == 2


def test_unknown_sizes() -> None:
    grid = BlockGrid.of_unknown_sizes(len(LENGTHS))
    parts, _, _ = fake_split(cut(TABLE), ["A"] * len(LENGTHS), grid)
    same(parts[0].at_location().materialize(columns=[1]), TABLE[:, [1]])


@given(
    table=hnp.arrays(
        st.sampled_from(["f8", "i2", "S3", "c16"]),
        st.tuples(st.integers(0, 12), st.integers(1, 5), st.integers(1, 2)),
    ),
    ends=st.lists(st.integers(0, 12), max_size=4),
    chosen=st.permutations(range(5)),
    number=st.integers(0, 5),
    layout=st.sampled_from(["C", "F", "strided"]),
    as_columns=st.booleans(),
)
def test_any_columns_of_any_blocks(
    table: Any, ends: list[int], chosen: list[int], number: int, layout: str, as_columns: bool
) -> None:
    columns = [column for column in chosen if column < table.shape[1]][:number]
    source = np.repeat(table, 2, axis=1)[:, ::2] if layout == "strided" else table.copy(layout)
    blocks = np.split(source, sorted(min(end, len(table)) for end in ends))
    found = copy_columns(iter(blocks), len(table), list(columns), as_columns)
    same(found, table[:, columns])


FLOATS = np.zeros((50_000, 20))


@pytest.mark.parametrize("as_columns", [False, True])
@pytest.mark.parametrize(
    ("whole", "columns"),
    [
        (FLOATS, [2, 7, 11]),
        (np.asfortranarray(FLOATS), [2, 7, 11]),
        (np.zeros(50_000, dtype=[(name, "f8") for name in "abcdefgh"]), ["b", "g", "a"]),
        (np.ma.masked_array(FLOATS, FLOATS > 1), [2, 7, 11]),
        (pd.DataFrame(FLOATS), [2, 7, 11]),
    ],
    ids=["C", "Fortran", "fields", "masked", "frame"],
)
def test_memory(whole: Any, columns: list[Any], as_columns: bool) -> None:
    """Blocks of 2 MB: a copy of one shows."""
    blocks = [take_rows(whole, slice(at, at + 12_500)) for at in range(0, 50_000, 12_500)]
    (partition,) = split(blocks, partitions_per_location=1)
    partition = partition.at_location()
    partition.materialize(columns=columns, as_columns=as_columns)  # imports
    tracemalloc.start()
    try:
        found = partition.materialize(columns=columns, as_columns=as_columns)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) == (3 if isinstance(found, dict) else 50_000)
    assert held >= 3 * 50_000 * 8
    assert peak <= held + 2**20


@pytest.mark.parametrize(
    ("blocks", "options", "named"),
    [
        ([TABLE, TABLE.astype("f4")], {"columns": [0]}, r"\(4,\) float64 and \(4,\) float32"),
        ([TABLE, TABLE[:, :3]], {"columns": [0]}, r"\(4,\) float64 and \(3,\) float64"),
        ([TABLE, FRAME], {"columns": [0]}, "a DataFrame"),
        ([FRAME, TABLE], {"columns": ["a"]}, "a DataFrame and a ndarray"),
        ([sp.csr_array(TABLE), TABLE], {"columns": [0]}, "a csr_array and a ndarray"),
        ([FRAME, FRAME[["a"]]], {"columns": ["a"]}, r"columns \[.a.\], expected \[.a., .b., 3\]"),
        ([TABLE], {"columns": [0, 0]}, "repeated"),
        ([TABLE], {"columns": [9]}, "unknown"),
        ([TABLE], {"columns": "a"}, "must be a list"),
        ([TABLE[:, 0]], {"as_columns": True}, "no columns"),
        ([sp.csr_array(TABLE)], {"as_columns": True}, "sparse csr"),
        ([[1, 2]], {"columns": [0]}, "no columns"),
        ([ARROW], {"columns": [0]}, "column 0 is unknown; .* are 'a', 'b', 'c'"),
        ([ARROW], {"as_columns": True}, "type Table cannot be returned as columns"),
        ([pd.concat([FRAME, FRAME], axis=1)], {"as_columns": True}, "same label"),
    ],
)
def test_refusals(blocks: list[Any], options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidArgumentError, match=named):
        materialized(blocks, **options)


@pytest.mark.parametrize(("declared", "named"), [(8, "more than"), (12, "fewer than")])
def test_sizes_that_are_not_as_declared(declared: int, named: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{named} the {declared}"):
        copy_columns(cut(TABLE), declared, [0], False)


def test_cache(tmp_path: Path) -> None:
    for number, (level, size, cpus) in enumerate(
        [("1", "48K", "0"), ("2", "2048K", "0-1,8,9"), ("3", "32768K", "0-15")]
    ):
        folder = tmp_path / "found" / f"index{number}"
        folder.mkdir(parents=True)
        for name, value in (("level", level), ("size", size), ("shared_cpu_list", cpus)):
            (folder / name).write_text(value + "\n", encoding="ascii")
    assert cache_nbytes(tmp_path / "found") == 2**21 // 4
    (tmp_path / "found" / "index1" / "size").write_text("?", encoding="ascii")
    assert cache_nbytes.__wrapped__(tmp_path / "found") == USUAL_NBYTES
    assert cache_nbytes(tmp_path / "none") == USUAL_NBYTES
    assert cache_nbytes() > 0
