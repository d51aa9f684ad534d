"""Batches: all rows in order, in views of large blocks and one buffer for small ones."""

from __future__ import annotations

import tracemalloc
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given

from spliter import BlockGrid, InvalidArgumentError, Partition, PartitionMetrics, split
from spliter._batches import MAX_AUTO_NBYTES, batch_nbytes, batches
from spliter.backend import concatenate
from tests.fake_engine import fake_split
from tests.test_take import FRAME, MASKED, RECORDS, TABLE, cut, same


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


@pytest.mark.parametrize(
    ("whole", "columns", "expected"),
    [
        (MASKED, [2, 0], MASKED[:, [2, 0]]),
        (FRAME, ["b"], FRAME[["b"]]),
        (sp.csr_array(TABLE), [1], sp.csr_array(TABLE[:, [1]])),
    ],
)
@pytest.mark.parametrize("nbytes", ["auto", 50])
def test_columns_of_other_kinds(whole: Any, columns: Any, expected: Any, nbytes: Any) -> None:
    same(concatenate(map(copied, partition_of(cut(whole)).batches(nbytes, columns))), expected)


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
    assert peak <= batch_nbytes("auto") + 2**20


def test_default_size() -> None:
    assert 2**15 <= batch_nbytes("auto") <= MAX_AUTO_NBYTES
    assert batch_nbytes(5) == 5


@pytest.mark.parametrize("nbytes", [0, -1, 1.5, True, "large", None])
def test_sizes_that_cannot_be_used(nbytes: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="nbytes"):
        partition_of(cut(TABLE)).batches(nbytes)


@pytest.mark.parametrize(
    ("blocks", "columns", "named"),
    [
        ([TABLE, TABLE.astype("f4")], None, "joined to a batch"),
        ([TABLE, TABLE[:, :2]], None, "joined to a batch"),
        ([TABLE, TABLE.astype("f4")], [0], "joined to a batch"),
        ([TABLE], [9], "unknown"),
        ([TABLE], [0, 0], "repeated"),
        ([[1, 2]], [0], "no columns"),
    ],
)
def test_blocks_that_cannot_be_used(blocks: Any, columns: Any, named: str) -> None:
    with pytest.raises(InvalidArgumentError, match=named):
        list(partition_of(blocks).batches(columns=columns))


def test_blocks_in_several_columns() -> None:
    grid = BlockGrid.from_chunks([(1, 1), (1, 1)])
    parts, _, _ = fake_split([np.ones((1, 1))] * 4, ["A"] * 4, grid)
    with pytest.raises(InvalidArgumentError, match="rechunk"):
        parts[0].at_location().batches()
