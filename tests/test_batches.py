"""Batches: all rows in order, in views of large blocks and one buffer for small ones."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given

from spliter import (
    AlignmentError,
    InvalidArgumentError,
    Partition,
    PartitionMetrics,
    batches,
    split,
)
from spliter._reading.batches import MAX_AUTO_NBYTES
from spliter.backend import concatenate
from tests.test_take import ARROW, FRAME, MASKED, RECORDS, TABLE, cut, same


def partition_of(*collections: Any, **options: Any) -> Partition:
    (partition,) = split(*collections, partitions_per_location=1, **options)
    return partition.at_location()


def copied(batch: Any) -> Any:
    return tuple(map(copied, batch)) if isinstance(batch, tuple) else batch[:].copy()


@given(
    lengths=st.lists(st.integers(0, 40) | st.integers(900, 2500), max_size=12),
    nbytes=st.integers(1, 20_000),
    columns=st.none() | st.permutations(range(3)).map(lambda chosen: chosen[:2]),
)
def test_any_blocks(lengths: list[int], nbytes: int, columns: list[Any] | None) -> None:
    whole = np.arange(3.0 * sum(lengths)).reshape(-1, 3)
    blocks = np.split(whole, np.cumsum(lengths)[:-1]) if lengths else []
    found = []
    for batch in batches(blocks, nbytes, columns):
        assert 0 < len(batch) <= max(nbytes // 24, 1)
        found.append(batch.copy())
    expected = whole if columns is None else whole[:, columns]
    np.testing.assert_array_equal(np.concatenate([expected[:0], *found]), expected)


@pytest.mark.parametrize("nbytes", ["auto", 100, 1])
@pytest.mark.parametrize(
    "whole",
    [TABLE, TABLE[:, 0], RECORDS, MASKED, sp.csr_array(TABLE), FRAME, FRAME["b"]],
    ids=lambda whole: f"{type(whole).__name__}{whole.ndim}",
)
def test_blocks_of_any_kind(whole: Any, nbytes: Any) -> None:
    same(concatenate(map(copied, partition_of(cut(whole)).batches(nbytes))), whole)


@pytest.mark.parametrize("nbytes", [80, 10_000])
def test_tables(nbytes: int) -> None:
    found = list(partition_of(cut(ARROW)).batches(nbytes))
    assert all(batch.nbytes <= nbytes for batch in found)
    same(concatenate(found), ARROW)


@pytest.mark.parametrize("nbytes", ["auto", 60])
def test_fields_are_packed(nbytes: Any) -> None:
    found = concatenate(map(copied, partition_of(cut(RECORDS)).batches(nbytes, ["v", "t"])))
    assert found.dtype == np.dtype([("v", "i2", (2,)), ("t", "f8")])
    same(found["t"], RECORDS["t"])


@pytest.mark.parametrize("nbytes", ["auto", 100, 7])
def test_aligned_collections_are_cut_alike(nbytes: Any) -> None:
    parts = partition_of(cut(TABLE), cut(RECORDS), cut(FRAME))
    found = [copied(batch) for batch in parts.batches(nbytes, [1])]
    assert all(len({len(member) for member in batch}) == 1 for batch in found)
    points, records, frame = concatenate(found)
    same(points, TABLE[:, [1]])
    same(records, RECORDS)
    same(frame, FRAME)


def test_large_blocks_are_views_and_small_ones_share_a_buffer() -> None:
    large, small = np.arange(100_000.0), [np.full(10, at, float) for at in range(50)]
    found = list(batches([*small, large, *small], nbytes=200_000))
    assert [len(batch) for batch in found] == [500, 25_000, 25_000, 25_000, 25_000, 500]
    assert all(np.shares_memory(batch, large) for batch in found[1:-1])
    assert np.shares_memory(found[0], found[-1])
    (whole,) = batches([large], nbytes=large.nbytes)
    assert whole is large


def test_materialized_partitions_are_cut() -> None:
    blocks = [np.arange(at, at + 10) for at in range(0, 1000, 10)]
    parts = split(blocks, partitions_per_location=1, materialize=True)
    (sizes,) = (future.result() for future in parts.map(lengths, 4000))
    assert sizes == [500, 500]


def lengths(partition: Partition, nbytes: int) -> list[int]:
    return [len(batch) for batch in partition.batches(nbytes)]


def test_a_pass_is_measured() -> None:
    parts = split(cut(TABLE), partitions_per_location=1)
    (future,) = parts.map(lengths, 10_000)
    assert future.result() == [len(TABLE)]
    (measured,) = parts.metrics()
    assert isinstance(measured, PartitionMetrics)
    assert measured.nbytes == TABLE.nbytes


def test_memory() -> None:
    partition = partition_of([np.ones((100, 5)) for _ in range(2000)])
    sum(map(len, partition.batches()))  # imports
    tracemalloc.start()
    try:
        sum(map(len, partition.batches()))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= MAX_AUTO_NBYTES + 2**20


@given(st.lists(st.integers(0, 40), min_size=1, max_size=12), st.integers(1, 25))
def test_rows_are_limited(lengths: list[int], rows: int) -> None:
    whole = np.arange(float(sum(lengths)))
    found = [one.copy() for one in batches(np.split(whole, np.cumsum(lengths)[:-1]), rows=rows)]
    assert all(0 < len(batch) <= rows for batch in found)
    np.testing.assert_array_equal(np.concatenate([whole[:0], *found]), whole)


def test_with_a_limit_of_rows_larger_blocks_are_joined() -> None:
    blocks = [np.ones((2000, 5))] * 10
    assert [len(batch) for batch in batches(blocks)] == [2000] * 10
    assert [len(batch) for batch in batches(blocks, rows=4100)] == [4000] * 5


@pytest.mark.parametrize("nbytes", [0, -1, 1.5, True, "large", None])
def test_sizes_that_cannot_be_used(nbytes: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="nbytes"):
        partition_of(cut(TABLE)).batches(nbytes)
    if nbytes not in {"large", None}:
        with pytest.raises(InvalidArgumentError, match="rows"):
            batches(cut(TABLE), rows=nbytes)


@pytest.mark.parametrize("columns", [None, [1, 0]])
@pytest.mark.parametrize("nbytes", ["auto", 100])
def test_blocks_of_different_kinds_are_not_joined(columns: Any, nbytes: Any) -> None:
    kinds: list[Any] = [
        TABLE,
        TABLE.astype("f4"),
        MASKED,
        sp.csr_array(TABLE),
        TABLE[:, :3].astype("i8"),
    ]
    found = {
        kind: concatenate(run)
        for kind, run in itertools.groupby(
            map(copied, batches(itertools.chain(*map(cut, kinds)), nbytes, columns)), kind_of
        )
    }
    for kind, whole in zip(found.values(), kinds, strict=True):
        same(kind, whole if columns is None else whole[:, columns])


def kind_of(batch: Any) -> tuple[Any, ...]:
    return type(batch), batch.dtype, batch.shape[1]


@pytest.mark.parametrize("block", [3.0, np.array(1), ()])
def test_objects_without_rows(block: Any) -> None:
    for before in [], [[1]]:
        with pytest.raises(InvalidArgumentError, match="has no rows"):
            list(batches([*before, block]))


def test_tuples_of_different_lengths() -> None:
    with pytest.raises(AlignmentError, match=r"\[3, 2\]"):
        list(batches([(np.ones(3), np.ones(2)), (np.ones(3), np.ones(3))]))


def test_frames_with_a_column_that_is_named_dtype() -> None:
    pd = pytest.importorskip("pandas")
    frames = [pd.DataFrame({"dtype": np.arange(40) + start}) for start in (0, 40, 80)]
    found = [batch["dtype"].tolist() for batch in batches(frames, rows=30)]
    assert [number for batch in found for number in batch] == list(range(120))
    assert max(map(len, found)) <= 30


def test_frames_with_other_columns_have_batches_of_their_own() -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": [3, 4]})
    blocks = [frame, frame[["b", "a"]], frame.rename(columns={"b": "z"}), frame]
    found = list(batches(blocks, nbytes=10_000))
    assert [list(batch) for batch in found] == [["a", "b"], ["a", "z"], ["a", "b"]]
    assert [batch["a"].tolist() for batch in found] == [[1, 2, 1, 2], [1, 2], [1, 2]]
