"""From a Dask collection to its blocks: keys, what stands behind each, and the grid.

Shared by the Dask backend (whose blocks are futures) and the local backend (whose blocks
are the values themselves, in a collection persisted without a distributed client). Only
the graph is looked at; nothing is computed and no cluster is asked.

A block counts as there only if its key leads, through aliases, to a future or a value. A
lazy expression over persisted data is *not* there although its graph contains the
parent's futures: looking at the keys of the graph alone would find the wrong blocks.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal

import numpy as np
from dask._task_spec import Alias, DataNode, GraphNode, TaskRef
from dask.base import is_dask_collection
from dask.core import flatten
from dask.utils import ensure_dict

from spliter import BlockGrid, UnsupportedCollectionError
from spliter._grid import IntArray


class _Lazy(Enum):
    LAZY = "lazy"


LAZY: Final = _Lazy.LAZY
"""Stands for a block that has not been computed."""


@dataclass(frozen=True, eq=False)
class BlockValues:
    """The blocks of one Dask collection, in C order of its block grid.

    Parameters
    ----------
    grid : BlockGrid
        Their arrangement; sizes along axis 0 unknown for DataFrames, bags and delayed.
    values : list
        For each block a future, the block itself, or :data:`LAZY`.
    nbytes : ndarray of int64 or None
        Bytes of each block where the collection's own metadata tells.
    """

    grid: BlockGrid
    values: Sequence[Any]
    nbytes: IntArray | None

    @property
    def lazy(self) -> bool:
        """Whether some block does not exist yet."""
        return any(value is LAZY for value in self.values)

    @property
    def on_cluster(self) -> bool:
        """Whether the blocks are futures, all of them or some."""
        return any(isinstance(value, TaskRef) for value in self.values)


def is_array(collection: Any) -> bool:
    """Whether a Dask collection has chunks along axes, as arrays do."""
    # Asked of the type: a Delayed makes up any attribute it is asked for.
    return hasattr(type(collection), "chunks")


def block_values(collection: Any) -> BlockValues:
    """Look up what stands behind each block of a Dask collection.

    Parameters
    ----------
    collection : dask collection
        Array, DataFrame, Series, Index, bag, item or delayed.

    Returns
    -------
    BlockValues
        Its blocks.

    Raises
    ------
    UnsupportedCollectionError
        For an array without axes.
    """
    keys = list(flatten(collection.__dask_keys__()))
    graph = ensure_dict(collection.__dask_graph__())
    values = [_follow(graph, key) for key in keys]
    if not is_array(collection):
        return BlockValues(BlockGrid.of_unknown_sizes(len(keys)), values, None)
    if not collection.chunks:
        raise UnsupportedCollectionError(
            "a Dask array without axes has one value and no blocks to iterate over"
        )
    grid = BlockGrid.from_chunks(collection.chunks)
    return BlockValues(grid, values, _dense_sizes(collection, grid))


def first_value(collection: Any) -> Any:
    """Look up the first block alone: cheap enough to recognise a collection by.

    Parameters
    ----------
    collection : dask collection
        Any.

    Returns
    -------
    object
        A future, a block, :data:`LAZY`, or ``None`` if there are no blocks.
    """
    key = next(iter(flatten(collection.__dask_keys__())), None)
    return None if key is None else _follow(collection.__dask_graph__(), key)


def belongs_to_cluster(collection: Any) -> bool:
    """Whether a Dask collection is for the Dask backend to split, or for the local one.

    Parameters
    ----------
    collection : dask collection
        Any; of a list of delayed objects, the first.

    Returns
    -------
    bool
        True if its blocks are futures; false if they are values in its graph and no
        distributed client is in use. A program that has a client meant to use it: it is
        told to persist the collection rather than run on this machine unasked. So is one
        whose collection is lazy, if it could have a client at all.
    """
    if importlib.util.find_spec("distributed") is None:
        return False
    value = first_value(collection)
    if value is None or value is LAZY or isinstance(value, TaskRef):
        return True
    from distributed.client import _get_global_client

    return _get_global_client() is not None


def _dense_sizes(array: Any, grid: BlockGrid) -> IntArray | None:
    """Sizes by shape, for blocks that are plain NumPy arrays of a fixed item size."""
    meta = array._meta
    plain = isinstance(meta, np.ndarray) and not isinstance(meta, np.ma.MaskedArray)
    if not plain or array.dtype.hasobject:
        return None
    return grid.block_sizes(array.dtype.itemsize)


def _follow(graph: Mapping[Any, Any], key: Hashable) -> Any:
    """Follow aliases from a key to a future, a value, or work still to do."""
    for _ in range(len(graph) + 1):
        value = graph[key]
        if isinstance(value, TaskRef):  # a future: most blocks of most calls
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
    except TypeError:  # a tuple with something unhashable inside is data
        return False
