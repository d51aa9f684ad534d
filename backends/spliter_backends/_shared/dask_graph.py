"""Extract keys, block values and the block grid from a Dask collection.

Shared by the Dask backend (whose blocks are futures) and the local backend (whose blocks are the
values themselves, in a collection persisted without a distributed client). Only the graph is read;
nothing is computed and no cluster is queried.

A block exists only if its key leads, through aliases, to a future or a value. A lazy expression
over persisted data does *not* exist although its graph contains the parent's futures: scanning the
graph for futures would find the wrong blocks.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import compress
from typing import Any, Final, Literal

import dask
import numpy as np
from dask._task_spec import Alias, DataNode, GraphNode, TaskRef
from dask.base import is_dask_collection
from dask.core import flatten
from dask.utils import ensure_dict

from spliter import BlockGrid, UnsupportedCollectionError
from spliter.backend import IntArray, is_sparse
from spliter_backends._shared.dask_client import has_dask_client


class _Lazy(Enum):
    LAZY = "lazy"


LAZY: Final = _Lazy.LAZY
"""Placeholder for a block that has not been computed."""


FUSED_FILES: Final = (
    "as it does when it fuses small Parquet files while it persists a frame; persist it as "
    "frame.map_partitions(copy.copy).persist() and select from that"
)
"""Why Dask loses blocks of frames, and the remedy: a frame whose blocks are the fused ones."""


@dataclass(frozen=True, eq=False)
class BlockValues:
    """The blocks of one Dask collection, in C order of its block grid.

    grid: Block grid; sizes along axis 0 are unknown for DataFrames, bags and delayed.
    values: For each block a future, the block itself, or :data:`LAZY`.
    nbytes: Bytes of each block if the collection's metadata determine them.
    meta: An empty block, for arrays and DataFrames; ``None`` for other collections.
    divisions: Of DataFrames, if known.
    """

    grid: BlockGrid
    values: Sequence[Any]
    nbytes: IntArray | None
    meta: Any = None
    divisions: tuple[Any, ...] | None = None

    @property
    def lazy(self) -> bool:
        """Whether a block has not been computed."""
        return any(value is LAZY for value in self.values)

    @property
    def on_cluster(self) -> bool:
        """Whether at least one block is a future."""
        return any(isinstance(value, TaskRef) for value in self.values)


def is_array(collection: Any) -> bool:
    """Return whether a Dask collection has chunks along axes."""
    # Checked on the type, because a Delayed has any attribute.
    return hasattr(type(collection), "chunks")


def block_values(collection: Any) -> BlockValues:
    """Return the blocks of a Dask collection: futures, values or :data:`LAZY`."""
    values = _values(collection)
    if not is_array(collection):
        meta = collection._meta if hasattr(type(collection), "_meta") else None
        grid = BlockGrid.of_unknown_sizes(len(values))
        return BlockValues(grid, values, None, meta, _divisions(collection, len(values)))
    if not collection.chunks:
        raise UnsupportedCollectionError(
            "a Dask array without axes has no blocks; split an array of at least one axis"
        )
    grid = BlockGrid.from_chunks(collection.chunks)
    return BlockValues(grid, values, _dense_sizes(collection, grid), collection._meta)


def example_block(meta: Any, grid: BlockGrid) -> Any:
    """Return a small block to call functions on, to infer the type of their results.

    An array of one row or a frame of a few, with the values Dask uses to infer types; else None.
    `meta` is the empty block of :class:`BlockValues`; the grid gives the size of the trailing axes.
    """
    one_row = (1, *(max(axis[0], 1) for axis in grid.chunks[1:]))
    if isinstance(meta, np.ndarray):
        return np.ones_like(meta, shape=one_row)
    if is_sparse(meta):
        return type(meta)(np.ones(one_row, meta.dtype))
    if meta is None or (not hasattr(meta, "to_frame") and not hasattr(meta, "iloc")):
        return None
    from dask.dataframe.dispatch import meta_nonempty

    example = meta_nonempty(meta)
    if hasattr(example, "iloc") and example.index.dtype.kind == "i":
        example.index += 1  # other labels than those that a new index has
    return example


def persist_collections(collections: Sequence[Any], **settings: Any) -> list[Any]:
    """Compute the Dask collections, and lists of delayed objects, that need it; return all.

    On a cluster their blocks may still be pending. Other objects are returned unchanged.
    """
    # Clients that are closed in the order of their creation leave this setting behind.
    if dask.config.get("scheduler", None) == "dask.distributed" and not has_dask_client():
        settings = {"scheduler": "threads"} | settings
    needed = [needs_computing(collection) for collection in collections]
    # In one call, so that shared intermediate results are computed once.
    computed = iter(dask.persist(*compress(collections, needed), **settings))
    return [
        next(computed) if was_needed else collection
        for collection, was_needed in zip(collections, needed, strict=True)
    ]


def needs_computing(collection: Any) -> bool:
    """Return whether some blocks of a Dask collection are not where they can be split.

    True if a block is not computed. In a program with a distributed client also if a block is a
    value in the graph, like the slices of ``da.from_array(ndarray)``. Of a list, the Dask
    collections in it are checked.
    """
    if isinstance(collection, list | tuple):
        return any(is_dask_collection(value) and needs_computing(value) for value in collection)
    if not is_dask_collection(collection):
        return False
    values = _values(collection)
    if has_dask_client():
        return not all(isinstance(value, TaskRef) for value in values)
    return any(value is LAZY for value in values)


def first_value(collection: Any) -> Any:
    """Return the first block as :class:`BlockValues` does, ``None`` if there is none; cheap."""
    key = next(iter(flatten(collection.__dask_keys__())), None)
    return None if key is None else _follow(collection.__dask_graph__(), key)


def belongs_to_cluster(collection: Any) -> bool:
    """Return whether the Dask backend, rather than the local one, must split a collection.

    Returns false if its blocks are values in the graph and there is no distributed client. A
    program with a client is expected to use it: it gets an error that says to persist the
    collection. A lazy collection belongs to the cluster whenever ``distributed`` is installed. Of a
    list of delayed objects, pass the first.
    """
    if importlib.util.find_spec("distributed") is None:
        return False
    value = first_value(collection)
    return value is None or value is LAZY or isinstance(value, TaskRef) or has_dask_client()


def _divisions(collection: Any, nblocks: int) -> tuple[Any, ...] | None:
    """Return the known divisions of a frame, of which Dask may have fused blocks."""
    if not getattr(type(collection), "known_divisions", None) or not collection.known_divisions:
        return None
    return collection.divisions if len(collection.divisions) == nblocks + 1 else None


def _dense_sizes(array: Any, grid: BlockGrid) -> IntArray | None:
    """Return sizes computed from shapes, for plain NumPy arrays of a fixed item size."""
    meta = array._meta
    plain = isinstance(meta, np.ndarray) and not isinstance(meta, np.ma.MaskedArray)
    if not plain or array.dtype.hasobject:
        return None
    return grid.block_sizes(array.dtype.itemsize)


def _values(collection: Any) -> list[Any]:
    """Return for each block a future, the block itself, or :data:`LAZY`."""
    graph = ensure_dict(collection.__dask_graph__())
    keys = list(flatten(collection.__dask_keys__()))
    found = [key for key in keys if key in graph]
    if len(found) < len(keys) and _are_all_blocks(graph, found):
        keys = found
    return [_follow(graph, key) for key in keys]


def _are_all_blocks(graph: Mapping[Any, Any], keys: Sequence[Hashable]) -> bool:
    """Return whether keys of a persisted frame lead to all blocks, so that none is lost.

    Dask fuses small Parquet files while it persists a frame, and still gives the frame a key for
    each file: the first keys are aliases of the fused blocks, the others are not in the graph.
    """
    blocks = sum(not isinstance(node, Alias) for node in graph.values())
    return len(keys) == blocks and all(isinstance(graph[key], Alias) for key in keys)


def _follow(graph: Mapping[Any, Any], key: Hashable) -> Any:
    """Follow aliases from a key to a future, a value, or an uncomputed task."""
    for _ in range(len(graph) + 1):
        if key not in graph:
            raise UnsupportedCollectionError(
                f"Dask has lost block {key} of this collection, {FUSED_FILES}"
            )
        value = graph[key]
        if isinstance(value, TaskRef):  # a future: the most frequent case
            return value
        if isinstance(value, Alias):
            key = value.target
        elif isinstance(value, DataNode):
            return value.value
        elif isinstance(value, GraphNode) or is_dask_collection(value):
            return LAZY
        elif isinstance(value, tuple) and value and callable(value[0]):
            return LAZY
        elif isinstance(value, tuple | str) and _is_key(graph, value):
            key = value
        else:
            return value
    return LAZY


def _is_key(graph: Mapping[Any, Any], value: tuple[Any, ...] | str) -> Literal[True, False]:
    try:
        return value in graph
    except TypeError:  # a tuple with an unhashable element is data
        return False
