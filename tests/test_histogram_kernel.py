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
from hypothesis import given
from hypothesis import strategies as st

from spliter_apps.histogram.blocks import block_members
from spliter_apps.histogram.edges import (
    resolve_edges,
)
from spliter_apps.histogram.kernel import _Accumulator, count_points

Array = npt.NDArray[Any]


def counted(
    sample: Array,
    edges: Sequence[Array],
    weights: Array | None = None,
    cuts: Sequence[int] = (),
    tile_rows: int | None = None,
) -> Array:
    """Accumulate the sample in blocks cut at the given rows."""
    bounds = [0, *sorted(cuts), len(sample)]
    blocks = (
        sample[start:stop] if weights is None else (sample[start:stop], weights[start:stop])
        for start, stop in itertools.pairwise(bounds)
    )
    return count_points(blocks, edges, weights is not None, tile_rows)


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
    blocks = [
        (np.zeros((1, 1)), weights[:1]),
        (np.zeros((2, 1), np.int64), weights[1:3]),
        (np.zeros((1, 1)), weights[3:]),
    ]
    found = count_points(blocks, edges, weighted=True)
    np.testing.assert_array_equal(found, expected(np.zeros((4, 1)), edges, weights))


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
        np.testing.assert_array_equal(count_points([block], edges), expected(sample, edges))


def test_columns_of_a_dataframe_keep_their_dtypes() -> None:
    # As one array of floats the integers would be rounded.
    frame = pd.DataFrame({"big": [2**53, 2**53 + 1], "x": [0.5, 0.5]})
    edges = [np.array([2**53 + 1, 2**53 + 5]), np.array([0.0, 1.0])]
    assert count_points([frame], edges).tolist() == [[1.0]]


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
        count_points([sample], edges)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # 0.8 MB of histogram and 1 MB of scratch, for 16 MB of points.
    assert peak < 3e6


@pytest.mark.parametrize("block_rows", [1, 10, 1000])
def test_tiles_are_filled_across_blocks(block_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    binned: list[int] = []
    count = _Accumulator._count

    def counting(self: _Accumulator, columns: Any, *args: Any, **kwargs: Any) -> None:
        binned.append(len(columns[0]))
        count(self, columns, *args, **kwargs)

    monkeypatch.setattr(_Accumulator, "_count", counting)
    sample = np.random.default_rng(6).random((1000, 2))
    edges = resolve_edges(3, [(0, 1)] * 2, 2)
    counted(sample, edges, cuts=range(block_rows, 1000, block_rows), tile_rows=128)
    assert sum(binned) == 1000
    assert len(binned) <= 9 and max(binned) <= 128


def test_values_away_from_edges_are_not_compared_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[int] = []
    compare = _Accumulator._compare

    def counting(self: _Accumulator, axis: Any, column: Array, bins: Any) -> Any:
        compared.append(len(column))
        return compare(self, axis, column, bins)

    monkeypatch.setattr(_Accumulator, "_compare", counting)
    sample = np.random.default_rng(7).uniform(0.001, 0.999, (10_000, 3))
    edges = resolve_edges(10, [(0, 1)] * 3, 3)
    np.testing.assert_array_equal(counted(sample, edges), expected(sample, edges))
    assert compared == []
    sample[5000, 1] = 0.5
    np.testing.assert_array_equal(counted(sample, edges, tile_rows=1000), expected(sample, edges))
    assert compared == [1000]
