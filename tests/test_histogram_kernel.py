"""The histogram's numerics against NumPy's: the same bin for every value, the same edges."""

from __future__ import annotations

import gc
import itertools
import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import scipy.sparse
import sparse
from hypothesis import given
from hypothesis import strategies as st

from spliter import InvalidArgumentError, SplIterError
from spliter_apps.histogram.blocks import block_members, real_array, weights_column
from spliter_apps.histogram.edges import (
    Extent,
    checked_edges,
    columns_without_range,
    finish,
    resolve_edges,
)
from spliter_apps.histogram.kernel import BinAxis, HistogramAccumulator

Array = npt.NDArray[Any]


def counted(
    sample: Array,
    edges: Sequence[Array],
    weights: Array | None = None,
    cuts: Sequence[int] = (),
    tile_rows: int | None = None,
) -> Array:
    """Accumulate the sample in blocks cut at the given rows."""
    accumulator = HistogramAccumulator(edges, weights is not None, tile_rows)
    bounds = [0, *sorted(cuts), len(sample)]
    for start, stop in itertools.pairwise(bounds):
        accumulator.add(sample[start:stop], None if weights is None else weights[start:stop])
    return accumulator.counts()


def expected(sample: Array, edges: Sequence[Array], weights: Array | None = None) -> Array:
    with np.errstate(all="ignore"):  # it subtracts infinite edges
        histogram: Array = np.histogramdd(sample, bins=list(edges), weights=weights)[0]
    return histogram


# --- the same bin for every value ------------------------------------------------------------

finite = st.floats(-1e6, 1e6)


@st.composite
def equal_edges(draw: st.DrawFn) -> Array:
    """Equally wide bins, from tiny to huge, some too narrow for the floats around them."""
    low = draw(st.one_of(finite, st.sampled_from([0.0, -0.5, 0.1, 1e-300, 1e15, 2.0**53, -1e300])))
    width = draw(st.sampled_from([1.0, 0.1, 1 / 3, 1e-3, 1e-12, 7e-16, 5e-324, 1e5, 1e300]))
    with np.errstate(all="ignore"):
        edges: Array = np.linspace(low, low + width, draw(st.integers(1, 40)) + 1)
    return edges


@st.composite
def any_edges(draw: st.DrawFn) -> Array:
    """Edges as a user might give them: unequal, repeated, infinite, too few."""
    of = draw(st.sampled_from([np.float64, np.float32, np.int64, np.int16]))
    if of in {np.int64, np.int16}:
        values = draw(st.lists(st.integers(-50, 50), min_size=1, max_size=8))
        return np.sort(np.array(values, dtype=of))
    outer = st.sampled_from([-np.inf, np.inf, 0.0, 1.0])
    near = st.floats(-10, 10, width=32)
    return np.sort(np.array(draw(st.lists(outer | near, min_size=1, max_size=8)), dtype=of))


@st.composite
def columns_for(draw: st.DrawFn, edges: Array, rows: int) -> Array:
    """Values that are hard to bin: edges, their neighbours among floats, and far away."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    edges64 = edges.astype(np.float64)
    finite_edges = edges64[np.isfinite(edges64)]
    low, high = finite_edges[[0, -1]] if len(finite_edges) else (0.0, 1.0)
    with np.errstate(all="ignore"):
        inner = low + (high - low) * rng.uniform(-0.2, 1.2, rows)
        on_edge = rng.choice(edges64, rows)
        pools = [
            inner,
            on_edge,
            np.nextafter(on_edge, np.inf),
            np.nextafter(on_edge, -np.inf),
            rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e308, -1e308], rows),
        ]
    weights = np.array(draw(st.lists(st.integers(0, 8), min_size=5, max_size=5))) + 1e-3
    chosen = rng.choice(5, size=rows, p=weights / weights.sum())
    return np.choose(chosen, pools)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Array, tuple[Array, ...], list[int], int]:
    edges = tuple(draw(st.lists(equal_edges() | any_edges(), min_size=1, max_size=3)))
    rows = draw(st.integers(0, 60))
    columns = [draw(columns_for(of, rows)) for of in edges]
    order = draw(st.sampled_from(["C", "F"]))
    sample: Array = np.stack(columns, axis=1)
    if order == "F":
        sample = np.asfortranarray(sample)
    cuts = draw(st.lists(st.integers(0, rows), max_size=6))
    return sample, edges, cuts, draw(st.sampled_from([1, 7, 64, 4096]))


@given(cases())
def test_counts_are_those_of_numpy(
    case: tuple[Array, tuple[Array, ...], list[int], int],
) -> None:
    sample, edges, cuts, tile_rows = case
    np.testing.assert_array_equal(
        counted(sample, edges, cuts=cuts, tile_rows=tile_rows), expected(sample, edges)
    )


@given(cases(), st.integers(0, 2**32))
def test_sums_of_weights_are_those_of_numpy_to_the_last_bit(
    case: tuple[Array, tuple[Array, ...], list[int], int], seed: int
) -> None:
    sample, edges, cuts, tile_rows = case
    weights = np.random.default_rng(seed).normal(size=len(sample))
    np.testing.assert_array_equal(
        counted(sample, edges, weights, cuts, tile_rows), expected(sample, edges, weights)
    )


@pytest.mark.parametrize("nbins", [1, 2, 3, 10, 49, 100, 1000])
@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (-1.1, 2.3), (0.1, 0.7), (1e9, 1e9 + 1), (-1e-9, 1e-9)]
)
def test_neighbours_of_every_edge_of_equal_bins(nbins: int, low: float, high: float) -> None:
    edges = np.linspace(low, high, nbins + 1)
    around = [edges]
    for direction in (np.inf, -np.inf):
        step = edges
        for _ in range(3):
            step = np.nextafter(step, direction)
            around.append(step)
    sample = np.concatenate(around)[:, None]
    assert BinAxis.of(edges).scale > 0, "these bins should not need a search"
    # Row by row, as one value that is compared with the edges makes its whole tile be.
    ours = counted(sample, [edges], tile_rows=1)
    np.testing.assert_array_equal(ours, expected(sample, [edges]))
    np.testing.assert_array_equal(counted(sample, [edges]), ours)


@pytest.mark.parametrize(
    "edges",
    [
        np.array([0.0, 1.0, 3.0]),
        np.array([0.0, 0.0, 0.0]),
        np.array([-np.inf, 0.0, np.inf]),
        np.array([0.0]),
        np.linspace(1, np.nextafter(1, 2), 11),
        np.linspace(0, 5e-324, 3),
        np.array([-1.7e308, 0.0, 1.7e308]),
    ],
)
def test_other_bins_are_searched(edges: Array) -> None:
    assert BinAxis.of(edges).scale == 0
    sample = np.concatenate([edges, np.nextafter(edges, np.inf), [np.nan, np.inf]])[:, None]
    np.testing.assert_array_equal(counted(sample, [edges]), expected(sample, [edges]))


REAL_DTYPES = [
    np.bool_,
    np.int8,
    np.uint8,
    np.int16,
    np.uint16,
    np.int32,
    np.uint32,
    np.int64,
    np.uint64,
    np.float16,
    np.float32,
    np.float64,
    np.longdouble,
]


@pytest.mark.parametrize("dtype", REAL_DTYPES)
@pytest.mark.parametrize("edges_dtype", [np.int8, np.int64, np.float32, np.float64, np.longdouble])
def test_every_real_dtype(dtype: Any, edges_dtype: Any) -> None:
    rng = np.random.default_rng(5)
    sample = rng.integers(0, 12, (500, 2)).astype(dtype)
    if sample.dtype.kind == "f":
        sample += rng.random((500, 2)).round(1).astype(dtype)
    edges = [np.array([0, 1, 2, 5, 11], edges_dtype), np.arange(0, 11, 2).astype(edges_dtype)]
    np.testing.assert_array_equal(
        counted(sample, edges, cuts=[100, 333], tile_rows=64), expected(sample, edges)
    )


@pytest.mark.parametrize(
    ("values", "edges"),
    [
        # Next to each other as integers, the same as floats.
        (np.array([2**53, 2**53 + 1, 2**53 + 2]), np.array([2**53, 2**53 + 1, 2**53 + 2])),
        (np.array([2**62, 2**62 + 1, 2**62 - 1]), np.array([2**62, 2**62 + 1])),
        (np.array([2**62, 2**62 + 1, 2**62 - 1]), np.array([2.0**62, 2.0**63])),
        (np.array([2**64 - 1, 2**63], np.uint64), np.array([2**63, 2**64 - 1], np.uint64)),
        (np.array([2**63 - 1, 2**63], np.uint64), np.array([0, 2**63 - 1], np.int64)),
        (np.array([2**53 + 1, 2**53]), np.array([0, 2**53 - 1])),
        (np.array([-(2**62), -(2**62) + 1]), np.array([-(2**62) + 1, 0])),
        (np.array([1, 1 + np.finfo(np.longdouble).eps], np.longdouble), np.array([0.0, 1.0])),
        (np.array([1.0, 2.0]), np.array([1, 1 + np.finfo(np.longdouble).eps], np.longdouble)),
        (np.array([1.0, 2.0]), np.array([-np.finfo(np.longdouble).max, 1], np.longdouble)),
        (np.array([16777217, 16777216], np.int32), np.array([0, 16777216], np.float32)),
    ],
)
def test_values_that_float64_cannot_tell_apart(values: Array, edges: Array) -> None:
    sample = values[:, None]
    np.testing.assert_array_equal(counted(sample, [edges]), expected(sample, [edges]))


def test_columns_may_need_different_arithmetic() -> None:
    big = np.array([2**53, 2**53 + 1, 2**53 + 1, 2**53])
    edges = [np.array([2**53, 2**53 + 1, 2**53 + 2]), np.linspace(0, 1, 4)]
    sample = np.stack([big, np.array([0, 1, 2, 0])], axis=1)
    np.testing.assert_array_equal(counted(sample, edges, cuts=[2]), expected(sample, edges))


def test_order_of_rows_is_kept_when_arithmetic_changes_between_blocks() -> None:
    edges = [np.array([0, 2**60])]
    weights = np.array([1e16, 1.0, 1.0, -1e16])
    accumulator = HistogramAccumulator(edges, weighted=True)
    accumulator.add(np.zeros((1, 1)), weights[:1])
    accumulator.add(np.zeros((2, 1), np.int64), weights[1:3])
    accumulator.add(np.zeros((1, 1)), weights[3:])
    np.testing.assert_array_equal(accumulator.counts(), expected(np.zeros((4, 1)), edges, weights))


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.int64, np.uint64, np.float32, np.float64])
def test_weights_of_every_dtype_that_fits(dtype: Any) -> None:
    sample = np.random.default_rng(1).random((50, 2))
    weights = (np.arange(50) % 5).astype(dtype)
    edges = resolve_edges(3, [(0, 1)] * 2, 2)
    np.testing.assert_array_equal(counted(sample, edges, weights), expected(sample, edges, weights))


def test_weights_that_do_not_add_up() -> None:
    edges = [np.arange(5.0)]
    sample = np.array([0, 0, 1, 1, 2, 3, -1])[:, None]
    weights = np.array([np.inf, -np.inf, 1e308, 1e308, np.nan, np.inf, np.nan])
    np.testing.assert_array_equal(counted(sample, edges, weights), expected(sample, edges, weights))


def test_nothing_added_and_blocks_without_rows() -> None:
    edges = resolve_edges((2, 3), [(0, 1)] * 2, 2)
    assert HistogramAccumulator(edges).counts().tolist() == [[0.0] * 3] * 2
    assert counted(np.empty((0, 2)), edges, cuts=[0, 0]).tolist() == [[0.0] * 3] * 2


def test_counts_are_a_copy_and_more_can_be_added() -> None:
    accumulator = HistogramAccumulator([np.array([0.0, 1.0])])
    accumulator.add(np.array([[0.5]]))
    early = accumulator.counts()
    accumulator.add(np.array([[0.5], [2.0]]))
    assert (early.tolist(), accumulator.counts().tolist()) == ([1.0], [2.0])
    assert early.dtype == np.float64


def test_views_with_any_strides() -> None:
    base = np.random.default_rng(2).random((60, 8))
    edges = resolve_edges(4, [(0, 1)] * 3, 3)
    read_only = base[::-2, 7:1:-2].astype(">f8")
    read_only.flags.writeable = False
    np.testing.assert_array_equal(counted(read_only, edges), expected(read_only, edges))


def test_blocks_of_several_kinds_of_columns() -> None:
    edges = resolve_edges(4, [(0, 1)] * 3, 3)
    sample = np.random.default_rng(3).random((30, 3))
    frame = pd.DataFrame({"a": sample[:, 0], "b": sample[:, 1]})
    blocks: list[Any] = [
        sample,
        (sample[:, 0], sample[:, 1], sample[:, 2]),
        (sample[:, :2], sample[:, 2]),
        (frame, pd.Series(sample[:, 2])),
        (frame["a"], sample[:, 1:]),
    ]
    for block in blocks:
        accumulator = HistogramAccumulator(edges)
        accumulator.add(block)
        np.testing.assert_array_equal(accumulator.counts(), expected(sample, edges))


def test_columns_of_a_dataframe_keep_their_dtypes() -> None:
    # As one array of floats the integers would be rounded.
    frame = pd.DataFrame({"big": [2**53, 2**53 + 1], "x": [0.5, 0.5]})
    accumulator = HistogramAccumulator([np.array([2**53 + 1, 2**53 + 5]), np.array([0.0, 1.0])])
    accumulator.add(frame)
    assert accumulator.counts().tolist() == [[1.0]]


def test_pandas_own_numbers_and_repeated_names() -> None:
    frame = pd.DataFrame(
        [[1, 1.5, True], [2, 2.5, False]], columns=pd.Index(["a", "a", "b"])
    ).astype({"b": "boolean"})
    frame["c"] = pd.array([None, 3], dtype="Int64")
    members = block_members(frame)
    np.testing.assert_array_equal(np.hstack(members), [[1, 1.5, 1, np.nan], [2, 2.5, 0, 3]])


# --- cost that does not depend on the blocks -------------------------------------------------


def test_scratch_memory_is_bounded() -> None:
    sample = np.random.default_rng(4).random((400_000, 5))
    edges = resolve_edges(10, [(0, 1)] * 5, 5)
    gc.collect()
    tracemalloc.start()
    try:
        accumulator = HistogramAccumulator(edges)
        accumulator.add(sample)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # 0.8 MB of histogram and 1 MB of scratch, for 16 MB of points.
    assert peak < 3e6


@pytest.mark.parametrize("block_rows", [1, 10, 1000])
def test_tiles_are_filled_across_blocks(block_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    binned: list[int] = []
    count = HistogramAccumulator._count

    def counting(self: HistogramAccumulator, columns: Any, *args: Any, **kwargs: Any) -> None:
        binned.append(len(columns[0]))
        count(self, columns, *args, **kwargs)

    monkeypatch.setattr(HistogramAccumulator, "_count", counting)
    sample = np.random.default_rng(6).random((1000, 2))
    edges = resolve_edges(3, [(0, 1)] * 2, 2)
    counted(sample, edges, cuts=range(block_rows, 1000, block_rows), tile_rows=128)
    assert binned == [128] * 7 + [104]


def test_values_away_from_edges_are_not_compared_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[int] = []
    compare = HistogramAccumulator._compare

    def counting(self: HistogramAccumulator, axis: Any, column: Array, bins: Any) -> Any:
        compared.append(len(column))
        return compare(self, axis, column, bins)

    monkeypatch.setattr(HistogramAccumulator, "_compare", counting)
    sample = np.random.default_rng(7).uniform(0.001, 0.999, (10_000, 3))
    edges = resolve_edges(10, [(0, 1)] * 3, 3)
    np.testing.assert_array_equal(counted(sample, edges), expected(sample, edges))
    assert compared == []
    sample[5000, 1] = 0.5
    np.testing.assert_array_equal(counted(sample, edges, tile_rows=1000), expected(sample, edges))
    assert compared == [1000]


# --- what is refused -------------------------------------------------------------------------

BLOCKS_REFUSED: list[tuple[Any, str]] = [
    (np.zeros((3, 2), complex), "complex128"),
    (np.zeros((3, 2), object), "dtype object"),
    (np.full((3, 2), "a"), "<U1"),
    (np.zeros((3, 2), "M8[s]"), "datetime64"),
    (np.zeros((3, 2), [("a", "f8")]), "real numbers"),
    (np.ma.masked_equal(np.zeros((3, 2)), 0), "filled"),
    (np.zeros((3, 3)), "3 columns where the histogram has 2"),
    (np.zeros(3), "1 columns where the histogram has 2"),
    (np.zeros((3, 2, 1)), r"shape \(n, ndim\)"),
    (np.zeros(()), r"shape \(n, ndim\)"),
    ((np.zeros(3), np.zeros(4)), r"\[3, 4\]"),
    ((), "0 columns"),
    ([[1.0, 2.0]], "got a list"),
    (3.0, "got a float"),
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
    accumulator = HistogramAccumulator([np.array([0.0, 1.0])] * 2)
    with pytest.raises(InvalidArgumentError, match=message):
        accumulator.add(block)
    assert accumulator.counts().tolist() == [[0.0]]


def test_a_mask_that_masks_nothing_is_no_matter() -> None:
    block = np.ma.masked_invalid(np.array([[0.5], [0.7]]))
    accumulator = HistogramAccumulator([np.array([0.0, 1.0])])
    accumulator.add(block)
    assert accumulator.counts().tolist() == [2.0]
    assert type(real_array(block, "it")) is np.ndarray


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (None, "needs weights"),
        (np.ones(2), "3 rows has 2 weights"),
        (np.ones((3, 1)), r"shape \(n,\)"),
        (np.ones(3, complex), "complex128"),
        (np.ones(3, np.longdouble), "do not fit float64"),
        (np.ma.masked_equal(np.ones(3), 1), "masked"),
        ([1.0, 1.0, 1.0], "got a list"),
    ],
)
def test_weights_that_are_refused(weights: Any, message: str) -> None:
    accumulator = HistogramAccumulator([np.array([0.0, 1.0])], weighted=True)
    with pytest.raises(InvalidArgumentError, match=message):
        accumulator.add(np.zeros((3, 1)), weights)
    assert accumulator.counts().tolist() == [0.0]


def test_weights_where_there_are_none() -> None:
    accumulator = HistogramAccumulator([np.array([0.0, 1.0])])
    with pytest.raises(InvalidArgumentError, match="no other may have any"):
        accumulator.add(np.zeros((1, 1)), np.ones(1))


def test_weights_of_a_series() -> None:
    np.testing.assert_array_equal(weights_column(pd.Series([1, 2], dtype="Int64")), [1.0, 2.0])


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ((), "at least one column"),
        ((np.array([0.0, np.nan]),), "NaN"),
        ((np.array([1.0, 0.0]),), "monotonically increasing"),
        ((np.array([]),), "at least one real number"),
        ((np.zeros((2, 2)),), "1-D"),
        ((np.array(["a", "b"]),), "dtype <U1"),
        ((np.arange(2**13),) * 5, "more than an array can hold"),
    ],
)
def test_edges_that_are_refused(edges: Sequence[Array], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        HistogramAccumulator(edges)


# --- edges and extent ------------------------------------------------------------------------

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
    ([2, [0, 1]], [None, "not looked at, as NumPy does"]),
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
        (3, [(-1.7e308, 1.7e308), None], "too wide"),
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


@pytest.mark.parametrize(
    ("bins", "range_", "columns"),
    [
        (10, None, (0, 1)),
        (10, [None, (0, 1)], (0,)),
        ([3, [0, 1]], None, (0,)),
        ([[0, 1], [0, 1]], None, ()),
        (3, [(0, 1)] * 2, ()),
    ],
)
def test_columns_without_range(bins: Any, range_: Any, columns: tuple[int, ...]) -> None:
    assert columns_without_range(bins, range_, 2) == columns


def test_given_edges_are_checked_and_kept() -> None:
    edges = np.array([0, 1, 1, 5], np.int16)
    assert checked_edges(edges, 0) is edges


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
    with pytest.raises(InvalidArgumentError, match="1 and 2 columns"):
        Extent(1).merged(Extent(2))


# --- density ---------------------------------------------------------------------------------


@given(cases())
def test_density_is_that_of_numpy(
    case: tuple[Array, tuple[Array, ...], list[int], int],
) -> None:
    sample, edges, _, _ = case
    with np.errstate(all="ignore"):
        theirs = np.histogramdd(sample, bins=list(edges), density=True)[0]
        ours = finish(counted(sample, edges), edges, density=True)
    np.testing.assert_array_equal(ours, theirs)


def test_counts_are_returned_as_they_are() -> None:
    counts = np.ones(3)
    assert finish(counts, (np.arange(4.0),), density=False) is counts
    np.testing.assert_array_equal(counts, 1)


def test_density_of_nothing_warns_as_numpy_does() -> None:
    with pytest.warns(RuntimeWarning, match="invalid value"):
        result = finish(np.zeros(2), (np.arange(3.0),), density=True)
    assert np.isnan(result).all()
