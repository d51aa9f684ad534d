"""``map_blocks`` infers what a function returns, and makes Dask collections of the same kind."""

from __future__ import annotations

import gc
from typing import Any

import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client

from spliter import InvalidArgumentError, split
from tests.dask_backend.programs import spread
from tests.dask_backend.test_dask_split import held, until

pytestmark = [pytest.mark.backend("dask"), pytest.mark.timeout(120)]

FRAME = pd.DataFrame(
    {"a": np.arange(60), "b": np.arange(60) / 4, "c": pd.Categorical(["x", "y", "z"] * 20)},
    index=np.arange(100, 160),
)


@pytest.fixture
def frame(client: Client) -> Any:
    return dd.from_pandas(FRAME, npartitions=5).persist()


def test_blocks_are_freed_with_the_collection(client: Client) -> None:
    """The first test: the client keeps the errors of later ones, and what these refer to."""
    made = split(dd.from_pandas(FRAME, npartitions=5).persist()).map_blocks(pd.DataFrame.copy)
    assert len(made.compute()) == 60
    del made
    gc.collect()  # Dask's expressions refer to each other
    until(lambda: held(client, "map_over") == 0)


def test_dataframe_of_a_dataframe(frame: Any) -> None:
    def enriched(block: Any, factor: float) -> Any:
        return block.assign(scaled=block["b"] * factor, long=block["c"].astype(str).str.len())

    made = split(frame).map_blocks(enriched, factor=3.0)
    assert isinstance(made, dd.DataFrame)
    expected = enriched(FRAME, 3.0)
    assert made.npartitions == frame.npartitions
    assert list(made.columns) == list(expected.columns)
    assert made.dtypes["scaled"] == expected.dtypes["scaled"]
    pd.testing.assert_frame_equal(made.compute(), frame.map_partitions(enriched, 3.0).compute())
    # Like any other: further steps, and a Split once it is persisted.
    assert made["scaled"].sum().compute() == pytest.approx(expected["scaled"].sum())
    with split(made.persist()) as parts:
        assert parts.nblocks == frame.npartitions


def test_series_and_index_of_a_dataframe(frame: Any) -> None:
    parts = split(frame)
    series = parts.map_blocks(lambda block: block["a"] + 1)
    assert isinstance(series, dd.Series)
    pd.testing.assert_series_equal(series.compute(), FRAME["a"] + 1)
    index = parts.map_blocks(lambda block: block.index)
    assert isinstance(index, dd.Index)
    assert index.compute().tolist() == FRAME.index.tolist()


def test_arrays_of_a_dataframe(frame: Any) -> None:
    made = split(frame).map_blocks(lambda block: block[["a", "b"]].to_numpy())
    assert isinstance(made, da.Array)
    assert (made.dtype, made.shape[1]) == (np.dtype(float), 2)
    np.testing.assert_array_equal(made.compute(), FRAME[["a", "b"]].to_numpy())


def test_arrays_of_arrays(client: Client) -> None:
    x = da.arange(120, chunks=30).reshape((40, 3)).persist()
    y = da.ones(40, chunks=10, dtype=np.float32).persist()
    made = split(x).map_blocks(lambda block: block @ np.ones((3, 2), dtype=int))
    assert (made.dtype, made.shape, made.chunks[0]) == (np.dtype(int), (40, 2), x.chunks[0])
    np.testing.assert_array_equal(made.compute(), x.compute() @ np.ones((3, 2), dtype=int))
    pairs = split(x, y).map_blocks(lambda pair: pair[0].sum(axis=1) * pair[1])
    assert (pairs.dtype, pairs.shape) == (np.dtype(float), (40,))


def test_meta_says_what_cannot_be_inferred(frame: Any) -> None:
    def picky(block: Any) -> Any:
        assert len(block) > 5, "too short"
        return block[["a"]]

    parts = split(frame)
    with pytest.raises(InvalidArgumentError, match=r"(?s)too short.*or an empty result of it"):
        parts.map_blocks(picky)
    made = parts.map_blocks(picky, meta=FRAME[["a"]])
    pd.testing.assert_frame_equal(made.compute(), FRAME[["a"]])
    for collection in (spread(Client.current(), 4), db.from_sequence([1, 2], 2).persist()):
        with pytest.raises(InvalidArgumentError, match="cannot infer what the function returns"):
            split(collection).map_blocks(np.square)


def test_results_that_are_not_as_expected_are_refused_at_the_task(frame: Any) -> None:
    parts = split(frame)
    rows = np.zeros((1, 2))
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (lambda block: block[["b"]], {"meta": FRAME[["a"]]}, r"columns \['b'\] for block \(\d,\)"),
        (lambda block: block["b"], {"meta": FRAME[["a"]]}, "returned a Series for block"),
        (lambda block: block["b"], {"dtype": float}, "returned a Series .* dtype= is for arrays"),
        (lambda block: block.to_numpy(), {"dtype": float}, r"pass trailing_shape=\(3,\)"),
        (lambda block: block[["a"]].to_numpy(), {"meta": rows}, r"rows of shape \(2,\)"),
    ]
    for fn, options, message in cases:
        with pytest.raises(InvalidArgumentError, match=message):
            parts.map_blocks(fn, **options).compute()
    with pytest.raises(InvalidArgumentError, match="meta already determines"):
        parts.map_blocks(np.sqrt, meta=rows, dtype=float)
    with pytest.raises(InvalidArgumentError, match="needs a dtype"):
        parts.map_blocks(np.sqrt, trailing_shape=(2,))
