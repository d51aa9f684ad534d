"""What estimators take as input, how blocks of points are checked, and how results come back."""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from spliter import InvalidArgumentError, Split, SplitClosedError, gather, split
from spliter_apps import _results, _row_values
from spliter_apps._blocks import Schema, check_points, inspect
from spliter_apps._data import check_members, is_blocked, open_data

F8 = np.dtype("f8")


def describe(parts: Split) -> Schema:
    found: list[Schema] = gather(parts.map(inspect))
    return functools.reduce(Schema.merged, found)


def frame(rows: int = 2) -> pd.DataFrame:
    return pd.DataFrame({"a": np.arange(rows), "b": np.ones(rows)})


@pytest.mark.parametrize(
    "X",
    [
        np.zeros((3, 2)),
        np.ma.zeros((3, 2)),
        frame(),
        sp.csr_array((3, 2)),
        [[1, 2], [3, 4]],
        [[1.0, "a"]],
        [np.zeros(2), np.zeros(2)],
        [np.float64(1)],
        [1, 2],
        ["a"],
        [],
        [pd.Series([1, 2])],
        None,
        3,
        "text",
        object(),
    ],
    ids=lambda X: type(X).__name__,
)
def test_in_memory(X: Any) -> None:
    assert not is_blocked(X)


@pytest.mark.parametrize(
    "X",
    [
        split([np.zeros((2, 3))]),
        [np.zeros((2, 3)), np.zeros((1, 3))],
        (np.zeros((2, 3)), np.zeros((1, 3))),
        [frame(), frame()],
        [sp.csr_matrix((2, 3))],
        [sp.csr_array((2, 3))],
    ],
    ids=lambda X: type(X).__name__,
)
def test_blocked(X: Any) -> None:
    assert is_blocked(X)


def test_blocked_collections_of_engines() -> None:
    da = pytest.importorskip("dask.array")
    zarr = pytest.importorskip("zarr")
    assert is_blocked(da.zeros((4, 2), chunks=2))
    assert is_blocked(zarr.zeros((4, 2), chunks=(2, 2)))


class Arraylike:
    """What scikit-learn turns into an array."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.zeros((2, 2))


def test_what_turns_itself_into_an_array_is_in_memory() -> None:
    assert not is_blocked(Arraylike())


def test_array_is_cut_into_views() -> None:
    X, y = np.arange(10.0).reshape(5, 2), np.arange(5)
    with open_data(X, y, block_rows=2, partitions_per_location=1) as data:
        assert data.in_memory
        assert data.parts.grid.chunks == ((2, 2, 1), (2,))
        (blocks,) = (partition.submit(list).result() for partition in data.parts)
        assert all(np.shares_memory(points, X) for points, _ in blocks)
        np.testing.assert_array_equal(np.concatenate([labels for _, labels in blocks]), y)
    with pytest.raises(SplitClosedError):
        list(data.parts)


def test_what_is_left_out() -> None:
    with open_data(np.zeros((4, 2)), None, np.ones(4)) as data:
        check_members(data, 2, "split(X, sample_weight)")
        with pytest.raises(InvalidArgumentError, match=r"made by split\(X, y\), got one of 2"):
            check_members(data, 3, "split(X, y)")


def test_split_is_used_as_it_is() -> None:
    parts = split([np.zeros((2, 2))])
    with open_data(parts) as data:
        assert data.parts is parts
        assert not data.in_memory
    assert len(list(parts)) == 1, "not closed"
    with pytest.raises(InvalidArgumentError, match=r"split\(X, y\)"):
        open_data(parts, [np.zeros(2)])


@pytest.mark.parametrize(
    "y",
    [
        np.array([5, 6, 7]),
        [5, 6, 7],
        (5, 6, 7),
        pd.Series([5, 6, 7], index=[2, 0, 1]),
        pd.Series([5.0, 6, 7], dtype="Float64"),
        ["a", "b", "c"],
        [[1, 2], [3, 4], [5, 6]],
        pd.DataFrame({"a": [1, 2, 3], "b": [1.5, 2, 3]}),
    ],
    ids=lambda y: type(y).__name__,
)
@pytest.mark.parametrize("most", [1, 2**20])
def test_labels_in_memory_next_to_blocks(
    y: Any, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_row_values, "MESSAGE_NBYTES", most)
    points = [np.zeros((2, 2)), np.zeros((0, 2)), np.zeros((1, 2))]
    with open_data(points, y, np.arange(3.0), materialize=False) as data:
        blocks = [block for part in data.parts.map(list) for block in part.result()]
    labels = [labels for _, labels, _ in blocks]
    assert [len(of_block) for of_block in labels] == [2, 0, 1]
    expected = np.asarray(y)
    np.testing.assert_array_equal(np.concatenate(labels), expected)
    assert np.concatenate(labels).dtype == expected.dtype
    assert [weights.tolist() for *_, weights in blocks] == [[0, 1], [], [2]]


def test_labels_in_memory_next_to_blocks_of_other_kinds() -> None:
    da = pytest.importorskip("dask.array")
    zarr = pytest.importorskip("zarr")
    array = np.zeros((4, 2))
    for points in (
        da.from_array(array, chunks=(3, 2)).persist(scheduler="synchronous"),
        zarr.array(array, chunks=(3, 2)),
    ):
        with open_data(points, [1, 2, 3, 4], partitions_per_location=1, materialize=False) as data:
            (blocks,) = (part.result() for part in data.parts.map(list))
        assert [labels.tolist() for _, labels in blocks] == [[1, 2, 3], [4]]


@pytest.mark.parametrize(
    ("y", "says"),
    [
        (np.zeros(4), "y has 4 entries and the points have 3 rows"),
        ("text", "one entry for each row of the points, got 'text'"),
        (2.5, "one entry for each row"),
        ([[1], [2, 3]], "y: .*inhomogeneous"),
        (sp.csr_array((3, 1)), "[Ss]parse"),
    ],
    ids=str,
)
def test_labels_in_memory_that_do_not_fit_the_blocks(y: Any, says: str) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        open_data([np.zeros((2, 2)), np.zeros((1, 2))], y)


def test_points_cut_along_features() -> None:
    zarr = pytest.importorskip("zarr")
    with pytest.raises(InvalidArgumentError, match="one block along axis 1"):
        open_data(zarr.zeros((4, 4), chunks=(2, 2)))


# Blocks of points


def test_checked_points_keep_floats() -> None:
    for dtype in ("f4", "f8"):
        block = np.ones((2, 2), dtype)
        assert check_points(block, "block") is block
    assert check_points(np.ones((2, 2), "i4"), "block").dtype == F8
    assert check_points(frame(), "block").dtype == F8
    assert check_points(np.ones((0, 2)), "block").shape == (0, 2)
    with pytest.raises(InvalidArgumentError, match=r"block: .*[Ss]parse"):
        check_points(sp.csr_array((2, 2)), "block")


@pytest.mark.parametrize(
    ("block", "says"),
    [
        (np.array([[np.nan, 1]]), "NaN"),
        (np.array([[np.inf, 1]]), "infinity"),
        (np.zeros(3), "2D array"),
        (np.zeros((1, 1, 1)), "dim 3"),
        (np.array([["a"]]), "convert|numeric"),
        (np.array([[1j]]), "[Cc]omplex"),
        (np.array([["2024-01-01"]], "M8[s]"), "dates"),
        (pd.DataFrame({"a": pd.to_timedelta([3], unit="s")}), "durations"),
        (np.ma.masked_array([[1.0]], mask=[[True]]), "masked"),
        (pd.DataFrame({"a": ["x"]}), "convert"),
        (np.zeros((2, 0)), "0 feature"),
    ],
)
def test_unusable_blocks_are_named(block: Any, says: str) -> None:
    with pytest.raises(InvalidArgumentError, match=rf"(?s)block \(1,( 0)?\): .*({says})"):
        describe(split([np.zeros((1, 1)), block], partitions_per_location=1))


def test_schema_of_all_blocks() -> None:
    parts = split([np.zeros((2, 3), "f4"), np.zeros((0, 3), "f8")], partitions_per_location=2)
    assert describe(parts) == Schema(2, 3, None, F8)
    assert describe(split([np.zeros((2, 3), "f4")])) == Schema(2, 3, None, np.dtype("f4"))
    assert describe(split([frame(), frame(3)])) == Schema(5, 2, ("a", "b"), F8)
    found = describe(split([sp.csr_array((2, 3))]))
    assert found == Schema(2, 3, None, F8, is_sparse=True)


# Results


@pytest.mark.parametrize("most", [0, 10**9])
def test_combined_here_or_by_tasks(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_results, "MAX_GATHERED_NBYTES", most)
    parts: Split = split([np.full(1, i) for i in range(5)], partitions_per_location=3)
    sums = parts.map(lambda part: int(sum(block.sum() for block in part)))
    assert _results.combine(operator.add, sums, 8) == 10
    assert _results.wait(sums[0]) == 1
