"""The local backend: the kinds of collections it takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import sparse
import zarr

from spliter import (
    InvalidArgumentError,
    LazyCollectionError,
    Partition,
    Split,
    UnsupportedCollectionError,
    gather,
    split,
)
from spliter._plan import Plan
from spliter._planning.options import SplitOptions
from spliter.testing import index_encoded_array, index_encoded_block
from spliter_backends._shared import readable as local_blocks
from spliter_backends.local import LocalExecutor, LocalLocator

WAIT = 30


def blocks_of(parts: Split) -> list[Any]:
    """Return the blocks in collection order, as tasks see them."""
    found: dict[tuple[int, ...], Any] = {}
    for future in parts.map(lambda partition: list(partition.items())):
        found.update(future.result(WAIT))
    return [found[index] for index in sorted(found)]


def unlike(first: Any, second: Any) -> bool:
    return first is not second


# Lists of blocks


@pytest.mark.parametrize(
    ("blocks", "chunks", "nbytes"),
    [
        ([np.zeros((3, 2)), np.zeros((0, 2))], ((3, 0), (2,)), 48),
        ([np.zeros((3, 2)), np.zeros((1, 4))], ((3, 1),), 80),
        ([np.zeros((3, 2)), np.zeros(1)], ((3, 1),), 56),
        ([np.array([None, "a"], dtype=object)], ((2,),), 16),
        ([np.ma.masked_array([1.0, 2.0], [False, True])], ((2,),), 18),
        ([np.ma.masked_array([1.0, 2.0])], ((2,),), 16 + 1),
        ([np.zeros(2, dtype=[("a", "f8"), ("b", "i4")])], ((2,),), 24),
        ([pd.DataFrame({"a": [1.0, 2.0]}), pd.DataFrame({"a": [3.0]})], ((2, 1), (1,)), None),
        ([pd.Series([1.0, 2.0])], ((2,),), None),
        ([scipy.sparse.csr_array(np.eye(3))], ((3,), (3,)), 24 + 12 + 16),
        ([scipy.sparse.coo_array(np.eye(3))], ((3,), (3,)), 24 + 24),
        (
            [scipy.sparse.csr_matrix(np.eye(3)), scipy.sparse.csr_matrix((1, 3))],
            ((3, 1), (3,)),
            None,
        ),
        ([sparse.COO.from_numpy(np.eye(3))], ((3,), (3,)), 24 + 48),
        ([[1, 2], [], ["a"]], ((2, 0, 1),), None),
    ],
)
def test_blocks_of_any_kind_arrive_as_they_are(
    blocks: list[Any], chunks: tuple[tuple[int, ...], ...], nbytes: int | None
) -> None:
    parts = split(blocks)
    assert parts.grid.chunks == chunks
    assert not any(map(unlike, blocks_of(parts), blocks)), "the caller's own objects"
    if nbytes is not None:
        assert parts.nbytes == nbytes
    assert parts.nbytes > 0
    assert parts.locations == ("local",)


def test_changing_the_list_does_not_change_the_split() -> None:
    blocks = [np.zeros(1), np.ones(1)]
    parts = split(blocks)
    blocks.clear()
    assert len(blocks_of(parts)) == 2


def test_partitions_are_as_many_as_threads() -> None:
    blocks = [np.zeros(1)] * 10
    executor = LocalExecutor(threads=3)
    locator = LocalLocator(executor)
    opened = locator.open([blocks])
    assert len(Split(Plan(opened, opened.executor, SplitOptions()))) == 3
    assert len(split(blocks)) == LocalExecutor().threads


@pytest.mark.parametrize("empty", [[], ()])
def test_an_empty_list_is_refused(empty: Any) -> None:
    with pytest.raises(UnsupportedCollectionError, match="at least one block"):
        split(empty)


@pytest.mark.parametrize("wrong", [3, "text", None, np.float64(1), np.array(1.0), {"a": 1}, (1,)])
def test_an_element_that_is_no_block_is_named(wrong: Any) -> None:
    with pytest.raises(UnsupportedCollectionError, match=f"element 1 .* a {type(wrong).__name__},"):
        split([np.ones(2), wrong])


def test_collections_of_different_kinds_go_together(tmp_path: Path) -> None:
    stored = zarr.create_array(tmp_path / "z", shape=(5,), chunks=(2,), dtype="int64")
    stored[:] = np.arange(5)
    persisted = dask.persist(da.arange(5, chunks=2), scheduler="sync")[0]
    parts = split([[0, 1], [2, 3], [4]], stored, persisted)
    for block, *others in blocks_of(parts):
        assert [list(other) for other in others] == [block, block]


def test_aligned_with_what_is_not_local_is_refused() -> None:
    with pytest.raises(UnsupportedCollectionError, match=r"aligned collection 1 .* dict"):
        split([np.ones(1)], {})
    with pytest.raises(LazyCollectionError, match="persist"):
        split([np.ones(1)], da.ones(1))


# Memory maps


def memmap(path: Path, shape: tuple[int, ...], dtype: str = "int64") -> Any:
    array = np.memmap(path, dtype=dtype, mode="w+", shape=shape)
    array[:] = index_encoded_array(shape)
    return array


def test_memory_map_is_cut_into_views_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_blocks, "MEMMAP_BLOCK_BYTES", 10 * 24)
    array = memmap(tmp_path / "m", (95, 3))
    parts = split(array)
    assert parts.grid.chunks == ((10,) * 9 + (5,), (3,))
    assert parts.nbytes == array.nbytes
    for at, block in enumerate(blocks_of(parts)):
        assert np.shares_memory(block, array)
        np.testing.assert_array_equal(block, index_encoded_block((at, 0), parts.grid.chunks))


@pytest.mark.parametrize(
    ("rows", "threads", "blocks"), [(8, 4, 4), (9, 4, 3), (3, 4, 3), (1, 4, 1), (100, 1, 1)]
)
def test_small_memory_maps_have_a_block_per_thread_as_far_as_rows_go(
    rows: int, threads: int, blocks: int, tmp_path: Path
) -> None:
    opened = local_blocks.open_memmap(memmap(tmp_path / "m", (rows, 2)), threads)
    assert opened.grid.shape == (blocks, 1)
    assert opened.grid.extent == (rows, 2)


def test_rows_larger_than_a_block_stay_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_blocks, "MEMMAP_BLOCK_BYTES", 8)
    assert split(memmap(tmp_path / "m", (3, 5))).grid.chunks == ((1, 1, 1), (5,))


def test_memory_map_without_rows(tmp_path: Path) -> None:
    try:
        empty = np.memmap(tmp_path / "m", dtype="int64", mode="w+", shape=(0, 2))
    except ValueError:
        pytest.skip("this NumPy maps no empty files")
    parts = split(empty)
    assert (parts.grid.chunks, parts.nbytes) == (((0,), (2,)), 0)
    assert [block.shape for block in blocks_of(parts)] == [(0, 2)]


# Zarr arrays


def stored(path: Path, shape: tuple[int, ...], **layout: Any) -> Any:
    array = zarr.create_array(path / "z", shape=shape, dtype="int64", **layout)
    array[...] = index_encoded_array(shape)
    return array


@pytest.mark.parametrize(
    ("layout", "chunks"),
    [
        ({"chunks": (2, 3)}, ((2, 2, 1), (3, 1))),
        ({"chunks": (5, 4)}, ((5,), (4,))),
        ({"chunks": (1, 2), "shards": (2, 4)}, ((2, 2, 1), (4,))),
    ],
)
def test_zarr_blocks_are_shards_or_chunks(
    layout: dict[str, Any], chunks: tuple[tuple[int, ...], ...], tmp_path: Path
) -> None:
    array = stored(tmp_path, (5, 4), **layout)
    parts = split(array)
    assert parts.grid.chunks == chunks
    assert parts.nbytes == array.nbytes
    for index, block in zip(np.ndindex(parts.grid.shape), blocks_of(parts), strict=True):
        np.testing.assert_array_equal(block, index_encoded_block(index, chunks))


def test_zarr_blocks_are_read_when_their_turn_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = stored(tmp_path, (6,), chunks=(2,))
    read: list[Any] = []
    original = zarr.Array.__getitem__

    def counted(self: Any, selection: Any) -> Any:
        read.append(selection)
        return original(self, selection)

    monkeypatch.setattr(zarr.Array, "__getitem__", counted)
    (partition,) = split(array, partitions_per_location=1, prefetch=False)
    blocks = iter(partition)
    assert read == []
    next(blocks)
    assert len(read) == 1
    list(blocks)
    assert len(read) == 3


def test_zarr_array_without_rows(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "z", shape=(0, 3), chunks=(2, 3), dtype="int64")
    assert [block.shape for block in blocks_of(split(array))] == [(0, 3)]


def test_zarr_array_without_axes_is_refused(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "z", shape=(), dtype="int64")
    with pytest.raises(UnsupportedCollectionError, match=r"has no axis, .*of at least one axis"):
        split(array)


def test_zarr_group_is_refused() -> None:
    with pytest.raises(UnsupportedCollectionError, match=r"one of its arrays: group\['name'\]"):
        split(zarr.group())


# Dask collections without a cluster


def persisted(*collections: Any) -> Any:
    found = dask.persist(*collections, scheduler="sync")
    return found if len(found) > 1 else found[0]


def test_sizes_that_dask_does_not_know_are_looked_up() -> None:
    values = da.arange(10, chunks=4)
    parts = split(persisted(values[values % 3 == 0]))
    assert parts.grid.chunks == ((2, 1, 1),)
    assert parts[0].shape[0] is not None


def test_sizes_in_several_columns_are_looked_up_once_per_row_of_blocks() -> None:
    values = da.from_array(index_encoded_array((6, 4)), chunks=(2, 2))
    few = persisted(values[da.from_array(np.array([1, 0, 0, 0, 1, 1], bool), chunks=2)])
    assert split(few).grid.chunks == ((1, 0, 2), (2, 2))


def test_dask_dataframes_series_and_bags_of_values() -> None:
    frame = dd.from_pandas(pd.DataFrame({"a": range(5)}), npartitions=2)
    rows = [len(block) for block in blocks_of(split(persisted(frame)))]
    assert sum(rows) == 5
    assert split(persisted(frame)).grid.chunks == (tuple(rows),)
    assert sum(int(block.sum()) for block in blocks_of(split(persisted(frame.a)))) == 10
    bag = persisted(db.from_sequence(range(5), npartitions=2))
    assert [item for block in blocks_of(split(bag)) for item in block] == [0, 1, 2, 3, 4]


def test_iterators_are_refused() -> None:
    once = persisted(
        db.from_sequence(range(5), npartitions=2).map_partitions(lambda part: map(abs, part))
    )
    for read in (list, Partition.materialize, lambda part: list(part.batches())):
        with pytest.raises(InvalidArgumentError, match=r"a block is an iterator \(map\)"):
            gather(split(once).map(read))
    with pytest.raises(UnsupportedCollectionError, match="element 0 of the list is a generator"):
        split([(row for row in range(3))])


def test_delayed_values() -> None:
    values = persisted(dask.delayed(np.ones)(2), dask.delayed(np.ones)(3))
    parts = split(list(values))
    assert parts.grid.chunks == ((2, 3),)
    assert [block.tolist() for block in blocks_of(parts)] == [[1, 1], [1, 1, 1]]


@pytest.mark.parametrize(
    "lazy",
    [
        lambda: da.ones(4, chunks=2),
        lambda: da.ones(4, chunks=2).persist(scheduler="sync") + 1,
        lambda: [dask.delayed(int)(2)],
    ],
)
def test_lazy_dask_collections_are_refused(lazy: Callable[[], Any]) -> None:
    for backend in (None, "local"):
        with pytest.raises(LazyCollectionError, match="persist"):
            split(lazy(), backend=backend)


@pytest.mark.parametrize("backend", [None, "local"])
@pytest.mark.parametrize("left_behind", [{}, {"scheduler": "dask.distributed"}])
def test_lazy_dask_collections_are_computed_here_if_asked(
    backend: str | None, left_behind: dict[str, str]
) -> None:
    values = np.arange(6).reshape(6, 1)
    with (
        dask.config.set(left_behind),
        split(
            da.from_array(values, chunks=2) + 1,
            [dask.delayed(np.ones)(2) for _ in range(3)],
            persist=True,
            backend=backend,
        ) as parts,
    ):
        pairs = blocks_of(parts)
    np.testing.assert_array_equal(np.concatenate([first for first, _ in pairs]), values + 1)
    # Collections that cannot be lazy are taken as they are.
    assert len(blocks_of(split([np.ones(2)], persist=True))) == 1


@pytest.mark.parametrize("other", [np.ones(2), da.ones(4, chunks=2).persist(scheduler="sync")])
def test_lists_of_delayed_values_hold_nothing_else(other: Any) -> None:
    values = [*persisted(dask.delayed(int)(2), dask.delayed(int)(3)), other]
    with pytest.raises(UnsupportedCollectionError, match="element 2"):
        split(values, backend="local")
