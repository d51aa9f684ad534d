"""Edges of bins, the extent of data, densities: as by NumPy; and what a histogram refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import sparse
from hypothesis import given
from hypothesis import strategies as st

from spliter import AlignmentError, InvalidArgumentError, SplIterError
from spliter_apps.histogram.blocks import real_array
from spliter_apps.histogram.edges import (
    Extent,
    columns_without_range,
    finish,
    resolve_edges,
)
from spliter_apps.histogram.kernel import count_points
from tests.test_histogram_kernel import Array, cases, counted

BINS_AND_RANGES: list[tuple[Any, Any]] = [
    (10, None),
    (np.int8(3), None),
    (np.array(4), None),
    ((2, 5), None),
    (np.array([3, 1]), [(0, 1), (-3.5, 2)]),
    ([4, [0, 1, 5]], [None, None]),
    ([[0.0, 0.5, 0.7], np.array([1, 2, 2, 3])], None),
    (5, [(0, 1), None]),
    (5, np.array([[0, 1], [2, 3]])),
    (5, [(2, 2), (0, 0)]),
    (3, [(0.1, np.nextafter(0.1, 1)), (0, 1)]),
    ([np.array([0, 1], np.float32), True], None),
    ([2, [0, 1]], [None, "ignored, as in NumPy"]),
]


@pytest.mark.parametrize(("bins", "range_"), BINS_AND_RANGES)
@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int8, np.int64, np.float32, np.float64])
def test_edges_are_those_of_numpy(bins: Any, range_: Any, dtype: Any) -> None:
    sample = np.random.default_rng(8).integers(0, 100, (40, 2)).astype(dtype)
    theirs = np.histogramdd(sample, bins=bins, range=range_)[1]
    ours = resolve_edges(bins, range_, 2, list(sample.min(axis=0)), list(sample.max(axis=0)))
    for mine, his in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, his)
        assert mine.dtype == his.dtype


@pytest.mark.parametrize("bins", [4, [2, [0, 1]]])
def test_edges_without_data_are_those_of_numpy(bins: Any) -> None:
    theirs = np.histogramdd(np.empty((0, 2)), bins=bins)[1]
    for mine, his in zip(resolve_edges(bins, None, 2), theirs, strict=True):
        np.testing.assert_array_equal(mine, his)


@pytest.mark.parametrize(
    ("bins", "range_", "message"),
    [
        (0, None, "must be positive"),
        ((1, -2), None, r"bins\[1\]. must be positive"),
        (2.0, None, "must be an integer"),
        ("auto", None, "must be numbers or edges"),
        (["auto", 3], None, "must be a number or edges"),
        (None, None, "must be an integer"),
        ((1, 2, 3), None, "dimension"),
        ([[0, 1]], None, "dimension"),
        ([[2, 1], 3], None, "monotonically increasing"),
        ([[[0, 1]], 3], None, "1-D"),
        ([[[0, 1], [2]], 3], None, "not an array of edges"),
        ([[], 3], None, "at least one"),
        (3, [(0, 1)], "one entry per column"),
        (3, 7, "one entry per column"),
        (3, (0, 1), "pair of numbers"),
        (3, [(0, 1, 2), None], "pair of numbers"),
        (3, [("a", "b"), None], "pair of numbers"),
        (3, [(1, 0), None], "max must be larger than min"),
        (3, [(0, np.inf), None], "not finite"),
        (3, [(np.nan, 1), None], "not finite"),
        (3, [(-1.7e308, 1.7e308), None], "narrower range"),
    ],
)
def test_bins_and_ranges_that_are_refused(bins: Any, range_: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message) as refused:
        resolve_edges(bins, range_, 2)
    assert isinstance(refused.value, ValueError) and isinstance(refused.value, SplIterError)
    with pytest.raises(InvalidArgumentError, match=message):
        columns_without_range(bins, range_, 2)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_data_that_are_not_finite_need_a_range(bad: float) -> None:
    low, high = ([0.0, bad], [1.0, bad])
    with pytest.raises(InvalidArgumentError, match=r"autodetected range of .* column 1"):
        resolve_edges(2, None, 2, low, high)
    assert len(resolve_edges(2, [None, (0, 1)], 2, low, high)) == 2
    assert len(resolve_edges([2, [0, 1]], None, 2, low, high)) == 2


@given(
    rows=st.integers(0, 3000),
    ndim=st.integers(1, 4),
    order=st.sampled_from(["C", "F"]),
    dtype=st.sampled_from(["f8", "f4", "i8", "u1", "?"]),
    nan=st.booleans(),
    cut=st.integers(0, 3000),
)
def test_extent_is_that_of_numpy(
    rows: int, ndim: int, order: Any, dtype: str, nan: bool, cut: int
) -> None:
    rng = np.random.default_rng([rows, ndim, cut])
    values = rng.permutation(rows * ndim).reshape(rows, ndim)
    sample = np.array(values, order=order).astype(dtype)
    if nan and rows and sample.dtype.kind == "f":
        sample[rng.integers(rows), 0] = np.nan
    parts = [Extent.of([part]) for part in (sample[:cut], sample[cut:])]
    extent = parts[0].merged(parts[1])
    assert extent.ncolumns == ndim
    if not rows:
        assert (extent.low, extent.high) == ((), ())
        return
    np.testing.assert_array_equal(extent.low, sample.min(axis=0))
    np.testing.assert_array_equal(extent.high, sample.max(axis=0))
    assert {np.asarray(value).dtype for value in extent.low + extent.high} == {sample.dtype}


@pytest.mark.parametrize("row", [0, 1023, 1024, 2047, 2048, 2100])
def test_extremes_are_found_in_every_row(row: int) -> None:
    sample = np.zeros((2101, 2))
    sample[row] = -1, 1
    extent = Extent.of([sample])
    assert (extent.low, extent.high) == ((-1, 0), (0, 1))


def test_extents_of_different_width_do_not_mix() -> None:
    with pytest.raises(InvalidArgumentError, match="got 1 and 2"):
        Extent(1).merged(Extent(2))


@given(cases())
def test_density_is_that_of_numpy(
    case: tuple[Array, tuple[Array, ...], list[int], int],
) -> None:
    sample, edges, _, _ = case
    with np.errstate(all="ignore"):
        theirs = np.histogramdd(sample, bins=list(edges), density=True)[0]
        ours = finish(counted(sample, edges), edges, density=True)
    np.testing.assert_array_equal(ours, theirs)


def test_density_of_nothing_warns_as_numpy_does() -> None:
    with pytest.warns(RuntimeWarning, match="invalid value"):
        result = finish(np.zeros(2), (np.arange(3.0),), density=True)
    assert np.isnan(result).all()


BLOCKS_REFUSED: list[tuple[Any, str]] = [
    (np.zeros((3, 2), complex), "complex128"),
    (np.zeros((3, 2), object), "dtype object"),
    (np.full((3, 2), "a"), "<U1"),
    (np.zeros((3, 2), "M8[s]"), "datetime64"),
    (np.zeros((3, 2), [("a", "f8")]), "real numbers"),
    (np.ma.masked_equal(np.zeros((3, 2)), 0), "filled"),
    (np.zeros((3, 3)), r"as many columns as range has pairs, or bins has members \(2\), got 3"),
    (np.zeros(3), r"as range has pairs, or bins has members \(2\), got 1"),
    (np.zeros((3, 2, 1)), r"shape \(n, ndim\)"),
    (np.zeros(()), "has no rows"),
    ((np.zeros(3), np.zeros(4)), r"\[3, 4\]"),
    ((), "has no rows"),
    ([[1.0, 2.0]], "got a list"),
    (3.0, "of type float has no rows"),
    (scipy.sparse.csr_matrix((3, 2)), "dense"),
    (sparse.COO.from_numpy(np.eye(2)), "dense"),
    (
        pd.DataFrame({"a": [1.0], "day": pd.to_datetime(["2020-01-01"])}),
        "column 1 has dtype datetime",
    ),
    (pd.DataFrame({"a": [1.0], "name": ["x"]}), "column 'name'"),
]


@pytest.mark.parametrize(("block", "message"), BLOCKS_REFUSED)
def test_blocks_that_are_refused(block: Any, message: str) -> None:
    with pytest.raises((InvalidArgumentError, AlignmentError), match=message):
        count_points([block], [np.array([0.0, 1.0])] * 2)


def test_a_mask_that_masks_nothing_is_no_matter() -> None:
    block = np.ma.masked_invalid(np.array([[0.5], [0.7]]))
    assert count_points([block], [np.array([0.0, 1.0])]).tolist() == [2.0]
    assert type(real_array(block, "it")) is np.ndarray


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(2), r"\[3, 2\]"),
        (np.ones((3, 1)), r"shape \(n,\)"),
        (np.ones(3, complex), "complex128"),
        (np.ones(3, np.longdouble), "cannot be converted to float64"),
        (np.ma.masked_equal(np.ones(3), 1), "masked"),
        ([1.0, 1.0, 1.0], "got a list"),
    ],
)
def test_weights_that_are_refused(weights: Any, message: str) -> None:
    with pytest.raises((InvalidArgumentError, AlignmentError), match=message):
        count_points([(np.zeros((3, 1)), weights)], [np.array([0.0, 1.0])], weighted=True)


def test_weights_of_a_series() -> None:
    block = pd.DataFrame({"a": [0.5, 0.7]}), pd.Series([1, 2], dtype="Int64")
    assert count_points([block], [np.array([0.0, 1.0])], weighted=True).tolist() == [3.0]


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ((), "at least one column"),
        ((np.array([0.0, np.nan]),), "NaN"),
        ((np.array([1.0, 0.0]),), "monotonically increasing"),
        ((np.array([]),), "at least one real number"),
        ((np.zeros((2, 2)),), "1-D"),
        ((np.array(["a", "b"]),), "dtype <U1"),
        ((np.arange(2**13),) * 5, "an array cannot hold"),
    ],
)
def test_edges_that_are_refused(edges: Sequence[Array], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        count_points([], edges)
