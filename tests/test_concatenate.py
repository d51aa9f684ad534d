"""Blocks as one: every kind keeps its type, and memory is taken once."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from spliter import InvalidArgumentError
from spliter.backend import concatenate

MOST_EXTRA = 1.1
"""Memory taken at the peak, in bytes of the blocks themselves."""

MOST_EXTRA_OF_OLD_FRAMES = 1.15
"""The same for DataFrames of pandas before 3, which takes 1.12 times as much."""


@given(
    st.data(),
    hnp.array_shapes(min_dims=0, max_dims=2, max_side=3),
    st.sampled_from(["f8", "f4", "i8", "u1", "?", "M8[s]", "c16", "S3", "i4,f8", "O"]),
    st.lists(st.integers(0, 4), min_size=1, max_size=6),
    st.sampled_from("CF"),
)
def test_arrays(data: Any, trailing: Any, dtype: str, rows: list[int], order: Any) -> None:
    blocks = [
        np.asarray(np.arange(n * int(np.prod(trailing))).reshape(n, *trailing), order=order).astype(
            dtype
        )
        if dtype != "i4,f8"
        else np.zeros((n, *trailing), dtype)
        for n in rows
    ]
    whole = concatenate(blocks)
    assert type(whole) is np.ndarray
    assert whole.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(whole, np.concatenate(blocks))


def test_a_single_block_comes_back_as_it_is() -> None:
    block = np.arange(3)
    assert concatenate([block]) is block


def test_tuples_element_by_element() -> None:
    x, y = concatenate([(np.zeros((2, 3)), pd.Series([1, 2])), (np.ones((1, 3)), pd.Series([3]))])
    assert x.shape == (3, 3)
    assert y.tolist() == [1, 2, 3]


@pytest.mark.parametrize("masks", [(True, True), (True, False), (False, False)])
def test_masked(masks: tuple[bool, bool]) -> None:
    blocks: list[Any] = [
        np.ma.masked_array(np.arange(4), mask=[False, masked, False, False], fill_value=-7)
        for masked in masks
    ]
    whole = concatenate(blocks)
    assert isinstance(whole, np.ma.MaskedArray)
    assert np.ma.getmaskarray(whole).tolist() == [
        flag for masked in masks for flag in (False, masked, False, False)
    ]
    assert whole.fill_value == -7
    assert whole.data.tolist() == [0, 1, 2, 3] * 2


def test_masked_beside_plain() -> None:
    whole = concatenate([np.arange(2), np.ma.masked_array([5, 6], mask=[True, False])])
    assert np.ma.getmaskarray(whole).tolist() == [False, False, True, False]


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csr_array, sp.csc_array, sp.coo_matrix])
def test_sparse(kind: Any) -> None:
    dense = np.arange(12, dtype=np.float32).reshape(4, 3) % 3
    whole = concatenate([kind(dense[:1]), kind(dense[1:1]), kind(dense[1:])])
    assert type(whole) is kind
    assert whole.dtype == np.float32
    np.testing.assert_array_equal(whole.toarray(), dense)


def test_sparse_beside_dense() -> None:
    dense = np.arange(12.0).reshape(4, 3) % 3
    for blocks in ([dense, sp.csc_array(dense)], [sp.csc_array(dense), dense]):
        whole = concatenate(blocks)
        assert type(whole) is sp.csc_array
        np.testing.assert_array_equal(whole.toarray(), np.concatenate([dense, dense]))


def test_frames() -> None:
    frame = pd.DataFrame(
        {
            "i": np.arange(4, dtype="i4"),
            "f": np.arange(4.0),
            "s": ["a", "b", "c", None],
            "t": pd.date_range("2020", periods=4),
            "n": pd.array([1, None, 3, 4], dtype="Int64"),
            "c": pd.Categorical(["x", "y", "x", "y"]),
        }
    )
    whole = concatenate([frame[:1], frame[1:1], frame[1:]])
    pd.testing.assert_frame_equal(whole, frame)


def test_categories_are_united() -> None:
    first = pd.DataFrame({"c": pd.Categorical(["a", "b"]), "v": [1, 2]})
    other = pd.DataFrame({"c": pd.Categorical(["b", "z"]), "v": [3, 4]})
    before = first.copy()
    whole = concatenate([first, other])
    assert whole["c"].dtype == pd.CategoricalDtype(["a", "b", "z"])
    assert whole["c"].tolist() == ["a", "b", "b", "z"]
    pd.testing.assert_frame_equal(first, before)
    series = concatenate([first["c"], other["c"]])
    assert series.dtype == pd.CategoricalDtype(["a", "b", "z"])


def test_categories_of_blocks_without_rows_do_not_count() -> None:
    full = pd.DataFrame({"c": pd.Categorical(["a", "b"]), "v": [1, 2]})
    empty = pd.DataFrame({"c": pd.Categorical([]), "v": np.array([], int)})
    assert empty["c"].cat.categories.dtype != full["c"].cat.categories.dtype
    for blocks in ([full, empty], [empty, full], [full[:0], full, empty, full]):
        whole = concatenate(blocks)
        assert whole["c"].dtype == pd.CategoricalDtype(["a", "b"])
        pd.testing.assert_series_equal(whole["c"], concatenate([block["c"] for block in blocks]))
        assert whole["c"].tolist() == [each for block in blocks for each in block["c"]]
    assert concatenate([empty, full[:0]])["c"].dtype == empty["c"].dtype


def test_categories_of_several_dtypes_are_refused_with_the_way_out() -> None:
    names = pd.Series(["a"], name="c", dtype="category")
    numbers: Any = pd.Series([1], name="c", dtype="category")
    with pytest.raises(InvalidArgumentError, match=r"'c' are of several dtypes .*int64.*rename"):
        concatenate([names, numbers])
    converted = concatenate([names, numbers.cat.rename_categories(str)])
    assert converted.tolist() == ["a", "1"]


def test_tables_with_columns_that_are_null() -> None:
    blocks = [pa.table({"a": [1], "b": ["x"]}), pa.table({"b": [None], "a": [2]}), pa.table({})]
    assert concatenate(blocks).equals(pa.table({"a": [1, 2], "b": ["x", None]}))


@pytest.mark.parametrize("kind", [pd.DataFrame, pa.table])
def test_columns_are_matched_by_name(kind: Any) -> None:
    blocks = [kind({"a": [1], "b": [2]}), kind({"b": [4], "a": [3]})]
    assert concatenate(blocks)["a"].to_numpy().tolist() == [1, 3]
    for other in ({"a": [1]}, {"a": [1], "z": [2]}, {"a": [1], "b": [2], "z": [2]}):
        with pytest.raises(InvalidArgumentError, match=r"columns \['a'.*expected \['a', 'b'\]"):
            concatenate([*blocks, kind(other)])


def test_repeated_columns_are_refused_next_to_others() -> None:
    frame = pd.DataFrame([[1, 2, 3]], columns=["a", "b", "b"])
    assert concatenate([frame, frame]).shape == (2, 3)
    for other in (["a", "b"], ["a", "a", "b"]):
        blocks = [frame, pd.DataFrame([range(len(other))], columns=other)]
        for several in (blocks, blocks[::-1]):
            with pytest.raises(InvalidArgumentError, match="has columns"):
                concatenate(several)


def test_categories_of_columns_in_another_order_are_united() -> None:
    first = pd.DataFrame({"c": pd.Categorical(["a"]), "v": [1]})
    whole = concatenate([first, first.assign(c=pd.Categorical(["z"]))[["v", "c"]]])
    assert whole["c"].dtype == pd.CategoricalDtype(["a", "z"])


def test_series_index_and_lists() -> None:
    assert concatenate([pd.Series([1, 2], name="a"), pd.Series([3], name="a")]).name == "a"
    assert concatenate([pd.Index([1]), pd.Index([2, 3])]).tolist() == [1, 2, 3]
    assert concatenate([[1, "a"], [], [None]]) == [1, "a", None]


def test_arrays_of_other_libraries() -> None:
    import sparse

    whole = concatenate([sparse.COO.from_numpy(np.eye(2)), sparse.COO.from_numpy(np.ones((1, 2)))])
    assert isinstance(whole, sparse.COO)
    np.testing.assert_array_equal(whole.todense(), [[1, 0], [0, 1], [1, 1]])


@pytest.mark.parametrize(
    "blocks",
    [
        [],
        [np.zeros((2, 3)), np.zeros((2, 4))],
        [np.zeros((2, 3)), np.zeros(2)],
        [np.zeros(2), [1, 2]],
        [object(), object()],
        [{1}, {2}],
        [pd.DataFrame({"a": [1]}), np.zeros((1, 1))],
        [pd.DataFrame({"a": [1]}), pd.Series([1])],
        [sp.csr_array(np.ones(2)), sp.csr_array(np.ones(2))],
        [sp.csr_array(np.eye(2)), np.ma.masked_array(np.eye(2), np.eye(2) > 0)],
        [[1, 2], np.zeros(2)],
    ],
    ids=lambda blocks: "-".join(type(block).__name__ for block in blocks) or "none",
)
def test_what_cannot_be_one_is_refused(blocks: list[Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="concatenate"):
        concatenate(blocks)


def masked(rows: int) -> Any:
    return np.ma.masked_array(np.ones((rows, 20)), mask=np.zeros((rows, 20), bool))


KINDS: dict[str, Callable[[int], Any]] = {
    "ndarray": lambda rows: np.ones((rows, 20)),
    "masked": masked,
    "csr": lambda rows: sp.random_array((rows, 200), density=0.1, format="csr"),
    "frame": lambda rows: pd.DataFrame({f"c{i}": np.arange(rows) + i / 2 for i in range(20)}),
}


def nbytes(block: Any) -> int:
    if isinstance(block, np.ma.MaskedArray):
        return int(block.data.nbytes + np.ma.getmaskarray(block).nbytes)
    if sp.issparse(block):
        csr: Any = block
        return int(csr.data.nbytes + csr.indices.nbytes + csr.indptr.nbytes)
    if isinstance(block, pd.DataFrame):
        return int(block.memory_usage(index=False).sum())
    return int(block.nbytes)


@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_taken_once(kind: str) -> None:
    blocks = [KINDS[kind](500) for _ in range(100)]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        whole = concatenate(blocks)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    own = sum(map(nbytes, blocks))
    assert nbytes(whole) == pytest.approx(own, rel=0.01)
    old_frames = kind == "frame" and int(pd.__version__.partition(".")[0]) < 3
    assert peak - before <= (MOST_EXTRA_OF_OLD_FRAMES if old_frames else MOST_EXTRA) * own
