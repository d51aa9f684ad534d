"""The histogram on a Dask cluster of real worker processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("distributed")

import dask
import dask.array as da
import dask.dataframe as dd
from distributed import Client

from spliter import InvalidArgumentError, LazyCollectionError, split
from spliter_apps import histogramdd
from tests.dask_workers import workers_of
from tests.engine_cases import HISTOGRAM, one_case_of
from tests.histogram_suite import HistogramTests, assert_same, cut, points

pytestmark = [
    pytest.mark.backend("dask"),
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("client"),
]

Array = npt.NDArray[Any]


def same(block: Any) -> Any:
    """Return the block; what makes it a task's result."""
    return block


@one_case_of(*HISTOGRAM)
class TestDask(HistogramTests):
    """Persisted arrays and DataFrames."""

    def collection(self, array: Array, rows: Sequence[int]) -> Any:
        chunks = (tuple(rows), *((size,) for size in array.shape[1:]))
        return da.from_array(array, chunks=chunks).persist()

    def frames(self, frame: Any, rows: Sequence[int]) -> Any:
        return dd.from_map(same, cut(frame, rows)).persist()


def test_unknown_chunk_sizes() -> None:
    sample, weights = points(), np.arange(90.0)
    x = da.from_array(sample, chunks=(20, 3))
    w = da.from_array(weights, chunks=20)
    chosen = x[:, 0] > 3
    x, w = dask.persist(x[chosen], w[chosen])
    assert np.isnan(x.chunks[0]).all()
    mine = sample[:, 0] > 3
    assert_same(
        histogramdd(x, 3, weights=w), np.histogramdd(sample[mine], 3, weights=weights[mine])
    )
    unlike = da.from_array(weights, chunks=20).persist()
    with pytest.raises(ValueError, match="rows"):
        histogramdd(x, 3, weights=unlike)


@pytest.mark.parametrize("weighted", [False, True])
def test_columns_in_several_blocks(weighted: bool) -> None:
    sample, weights = points(), np.arange(90.0)
    x = da.from_array(sample, chunks=((50, 0, 40), (1, 2))).persist()
    w = da.from_array(weights, chunks=((50, 0, 40),)).persist() if weighted else None
    theirs = np.histogramdd(sample, 3, weights=weights if weighted else None)
    assert_same(histogramdd(x, 3, weights=w), theirs)


def test_what_columns_have_moved_is_told(client: Client) -> None:
    sample = points()
    here, there = workers_of(client)
    x = da.from_array(sample[:, :1], chunks=(30, 1)).persist(workers=[here])
    y = da.from_array(sample[:, 1:], chunks=(30, 2)).persist(workers=[there])
    both = da.concatenate([x, y], axis=1)
    assert both.numblocks == (3, 2)
    with split(both.blocks[:, 0], both.blocks[:, 1]) as parts:
        assert_same(histogramdd(parts, 3), np.histogramdd(sample, 3))
        assert (parts.moved.blocks, parts.moved.nbytes) == (3, sample[:, 1:].nbytes)


def test_lazy_sample() -> None:
    x = da.from_array(points(), chunks=(30, 3))
    with pytest.raises(LazyCollectionError, match="persist"):
        histogramdd(x, 3)
    with pytest.raises(LazyCollectionError, match="persist"):
        histogramdd(x.rechunk((30, 1)), 3)
    with pytest.raises(LazyCollectionError, match="persist"):
        histogramdd(x.persist() + 1, 3)


def test_masked_blocks() -> None:
    x = da.ma.masked_equal(da.from_array(points(), chunks=(30, 3)), 2).persist()
    with pytest.raises(InvalidArgumentError, match="filled"):
        histogramdd(x, 3)
