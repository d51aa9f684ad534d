"""The histogram on collections of this process: lists of blocks, arrays in memory, files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import spliter_apps.histogram.histogram as implementation
from spliter import AlignmentError, InvalidArgumentError, UnsupportedCollectionError, split
from spliter_apps import histogramdd
from tests.engine_cases import HISTOGRAM, one_case_of
from tests.engine_collections import ListsOfBlocks, cut
from tests.histogram_suite import HistogramTests, assert_same, points

Array = npt.NDArray[Any]


class TestListsOfBlocks(ListsOfBlocks, HistogramTests):
    """Lists of arrays."""


@one_case_of(*HISTOGRAM)
class TestDaskWithoutACluster(ListsOfBlocks, HistogramTests):
    """Values in the graph of a Dask collection, computed in this process."""

    def collection(self, array: Array, rows: Sequence[int]) -> Any:
        chunks = (tuple(rows), *((size,) for size in array.shape[1:]))
        return da.from_array(array, chunks=chunks).persist(scheduler="synchronous")


@given(
    grid=st.lists(st.integers(0, 12), min_size=1, max_size=8),
    ndim=st.integers(1, 3),
    nbins=st.integers(1, 6),
    seed=st.integers(0, 2**32),
    ranged=st.booleans(),
    weighted=st.booleans(),
    nan=st.booleans(),
)
def test_random_grids(
    grid: list[int], ndim: int, nbins: int, seed: int, ranged: bool, weighted: bool, nan: bool
) -> None:
    rng = np.random.default_rng(seed)
    sample = rng.normal(size=(sum(grid), ndim)).round(1)
    limits = [(-1.0, 1.0)] * ndim if ranged else None
    if nan and ranged and len(sample):
        sample[rng.integers(len(sample)), rng.integers(ndim)] = np.nan
    # Whole numbers: their sums are exact in any order.
    weights = rng.integers(-100, 100, len(sample)) if weighted else None
    found = histogramdd(
        cut(sample, grid), nbins, limits, weights=None if weights is None else cut(weights, grid)
    )
    assert_same(found, np.histogramdd(sample, nbins, limits, weights=weights))


# --- arrays in memory and files --------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 7, 90, 1000])
def test_an_array_in_memory_is_cut(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(implementation, "BLOCK_ROWS", rows)
    sample, weights = points(), np.arange(90)
    assert_same(histogramdd(sample, 3, weights=weights), np.histogramdd(sample, 3, weights=weights))
    listed = histogramdd(sample, 3, weights=weights.tolist())
    assert_same(listed, np.histogramdd(sample, 3, weights=weights))
    columns = tuple(sample.T)
    assert_same(
        histogramdd(columns, 3, weights=weights), np.histogramdd(sample, 3, weights=weights)
    )


def test_a_zarr_array(tmp_path: Path) -> None:
    sample = points()
    x = zarr.create_array(tmp_path / "x.zarr", data=sample, chunks=(25, 3))
    w = zarr.create_array(tmp_path / "w.zarr", data=np.arange(90.0), chunks=(25,))
    found = histogramdd(x, 3, weights=w)
    assert_same(found, np.histogramdd(sample, 3, weights=np.arange(90.0)))


def test_a_zarr_array_with_its_columns_cut(tmp_path: Path) -> None:
    x = zarr.create_array(tmp_path / "x.zarr", data=points(), chunks=(25, 2))
    with pytest.raises(InvalidArgumentError, match=r"grid of \(4, 2\) blocks; rechunk"):
        histogramdd(x)


@pytest.mark.parametrize("weighted", [False, True])
def test_dask_columns_in_several_blocks(weighted: bool) -> None:
    sample, weights = points(), np.arange(90.0)
    chunks = ((50, 40), (1, 2))
    x = da.from_array(sample, chunks=chunks).persist(scheduler="synchronous")
    w = da.from_array(weights, chunks=chunks[:1]).persist(scheduler="synchronous")
    found = histogramdd(x, 3, weights=w if weighted else None)
    assert_same(found, np.histogramdd(sample, 3, weights=weights if weighted else None))
    mixed = histogramdd((x, w), 3)
    assert_same(mixed, np.histogramdd(np.column_stack([sample, weights]), 3))


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bins", "options", "words"),
    [
        (3, {}, "has dates, which NumPy does not divide"),
        (3, {"range": [np.array(["2024-01", "2024-03"], "M8[M]")]}, "has dates"),
        ([[0.0, 1.0]], {}, "dates .datetime64. need edges that are dates"),
        ([np.arange(3).astype("m8[D]")], {}, "dates .datetime64. need edges that are dates"),
        ([np.array(["2024-01", "NaT"], "M8[M]")], {}, "NaN or NaT"),
        ([np.array(["2024-02", "2024-01"], "M8[M]")], {}, "monotonically"),
        ([np.array(["2024-01", "2024-02"], "M8[M]")], {"density": True}, "density=True needs"),
    ],
)
def test_dates_that_have_no_bins(bins: Any, options: dict[str, Any], words: str) -> None:
    when = np.datetime64("2024-01-01") + np.arange(60)
    with pytest.raises(InvalidArgumentError, match=words):
        histogramdd(cut(when, [20, 40]), bins, **options)


@pytest.mark.parametrize("nweights", [89, 91])
def test_more_or_fewer_weights_than_points(nweights: int) -> None:
    with pytest.raises(AlignmentError):
        histogramdd(points(), weights=np.ones(nweights))


def test_an_empty_tuple() -> None:
    with pytest.raises(InvalidArgumentError, match="at least one column"):
        histogramdd(())


def test_a_single_value() -> None:
    with pytest.raises(InvalidArgumentError, match="single value"):
        histogramdd(np.ones(()))


def test_not_a_collection() -> None:
    with pytest.raises(UnsupportedCollectionError):
        histogramdd("points")


def test_masked_blocks() -> None:
    block = np.ma.masked_equal(np.array([[0.0, 1.0], [2.0, 3.0]]), 2)
    with pytest.raises(InvalidArgumentError, match="filled") as caught:
        histogramdd([block], 3)
    (advised,) = re.findall(r"map_blocks\(.*\)(?=, which)", str(caught.value))
    made = eval(f"parts.{advised}", {"parts": split([block, np.ones((1, 2))]), "numpy": np})
    assert_same(
        histogramdd(made, 2, [(0, 4)] * 2),
        np.histogramdd(np.array([[0.0, 1.0], [1.0, 1.0]]), 2, [(0, 4)] * 2),
    )


def test_blocks_of_different_width() -> None:
    with pytest.raises(InvalidArgumentError, match="columns"):
        histogramdd([np.zeros((3, 2)), np.zeros((3, 1))])


def test_a_list_of_columns_is_not_taken_for_columns() -> None:
    # NumPy would see two columns of three values; here it is one column in two blocks.
    blocks = [np.array([0.0, 1.0, 2.0]), np.array([3.0, 4.0, 5.0])]
    assert_same(histogramdd(blocks, 2), np.histogramdd(np.concatenate(blocks), 2))


# --- the paper's program ---------------------------------------------------------------------
