"""Find the blocks of collections in this process or in its files.

Supports lists of in-memory blocks, NumPy memory maps, Zarr arrays, opened files, and Dask
collections whose blocks are values in their graph (persisted without a distributed client). No
engine is needed; every program written with ``split`` runs here unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from spliter import BlockGrid, LazyCollectionError, UnsupportedCollectionError
from spliter.backend import Blocks, Locator, log_event
from spliter_backends._shared.dask_client import has_dask_client
from spliter_backends._shared.process_blocks import LocalBlocks
from spliter_backends._shared.readable import (
    ReadableCollection,
    is_block,
    open_list,
    open_memmap,
    open_values,
    open_zarr,
    packages_of,
)
from spliter_backends._shared.stored import StoredCollection, open_stored
from spliter_backends.local.executor import LOCATION, LocalExecutor, default_executor

if TYPE_CHECKING:
    from spliter_backends._shared.dask_graph import BlockValues


class LocalLocator(Locator):
    """Finds the blocks of collections that are in this process or its files.

    Parameters
    ----------
    executor : LocalExecutor, optional
        Runs the tasks; by default a shared one with a thread per core.

    Examples
    --------
    >>> import numpy as np
    >>> locator = LocalLocator()
    >>> locator.recognises([np.zeros(3)]), locator.recognises([1, 2, 3])
    (True, False)
    """

    def __init__(self, executor: LocalExecutor | None = None) -> None:
        self._executor = executor

    def recognises(self, collection: Any) -> bool:
        """Return whether the collection is in this process, or is an empty list."""
        if _is_dask(collection):
            from spliter_backends._shared.dask_graph import belongs_to_cluster

            return not belongs_to_cluster(_first(collection))
        if isinstance(collection, list | tuple):
            if not collection or is_block(collection[0]):
                return True
            return hasattr(type(collection[0]), "__next__")  # an iterator, which open() refuses
        if isinstance(collection, StoredCollection):
            return True
        return (isinstance(collection, np.memmap) or _is_zarr(collection)) and collection.ndim > 0

    def persist(self, collections: Sequence[Any]) -> Sequence[Any]:
        """Compute lazy Dask collections in this process; return others unchanged."""
        if not any(_is_dask(collection) for collection in collections):
            return collections
        from spliter_backends._shared.dask_graph import persist_collections

        return persist_collections(collections, scheduler="threads")

    def open(self, collections: Sequence[Any]) -> Blocks:
        """Open collections, whose kinds may differ; nothing is read."""
        if any(map(_is_zarr, collections)) and has_dask_client():
            log_event(
                "read here",
                "a Zarr array is read by this process; spliter_backends.zarr.on_workers(x) has the "
                "workers of the Dask client read it",
                engine="local",
            )
        return LocalBlocks(
            [self._open(*numbered) for numbered in enumerate(collections)], LOCATION, self._tasks()
        )

    def _open(self, number: int, collection: Any) -> ReadableCollection:
        if _is_dask(collection):
            return _open_dask(collection)
        if not self.recognises(collection):
            which = f"aligned collection {number}" if number else "the collection"
            raise UnsupportedCollectionError(
                f"{which} is a {type(collection).__name__}, which the local backend does not "
                "support; pass a list of blocks in memory, a memory map, a Zarr array, or a Dask "
                "collection persisted without a distributed client"
            )
        if isinstance(collection, np.memmap):
            return open_memmap(collection, self._tasks().threads)
        if isinstance(collection, list | tuple):
            return open_list(collection)
        if isinstance(collection, StoredCollection):
            return open_stored(collection)
        return open_zarr(collection)

    def _tasks(self) -> LocalExecutor:
        return self._executor or default_executor()


def _is_zarr(value: Any) -> bool:
    if "zarr" not in packages_of(value):
        return False
    import zarr

    return isinstance(value, zarr.Array)


def _first(collection: Any) -> Any:
    """Return the first element of a list, anything else unchanged."""
    return collection[0] if isinstance(collection, list | tuple) and collection else collection


def _is_dask(value: Any) -> bool:
    """Return whether it is a Dask collection, or a list of them (delayed values)."""
    # Checked on the type, because a delayed value has any attribute. (xarray's objects have the
    # method too, but their own backend.)
    first = _first(value)
    return hasattr(type(first), "__dask_graph__") and "dask" in packages_of(first)


def _open_dask(collection: Any) -> ReadableCollection:
    """Open a Dask collection, or a list of delayed values, each of which is one block."""
    from spliter_backends._shared.dask_graph import block_values

    listed = isinstance(collection, list | tuple)
    found = _delayed_values(collection) if listed else block_values(collection)
    name = f"{'list of ' if listed else ''}Dask {type(_first(collection)).__name__}"
    if found.lazy:
        raise LazyCollectionError(
            f"this {name} has not been computed, so its blocks have no location; persist it "
            "(x.persist(), or dask.persist(*values) for a list) and split that, or use "
            "split(x, persist=True)"
        )
    if found.on_cluster:
        raise UnsupportedCollectionError(
            f"the blocks of this {name} are on a cluster, not in this process; split it and its "
            "aligned collections with backend='dask'"
        )
    return open_values(found.grid, found.values)


def _delayed_values(elements: Sequence[Any]) -> BlockValues:
    """Return the values of a list of delayed objects."""
    from spliter_backends._shared.dask_graph import BlockValues, block_values

    values: list[Any] = []
    for position, element in enumerate(elements):
        found = block_values(element).values if _is_dask(element) else ()
        if len(found) != 1:
            raise UnsupportedCollectionError(
                f"element {position} of the list of delayed values is a "
                f"{type(element).__name__}, not one delayed value; split a Dask collection "
                "itself, not a list of them"
            )
        values.append(found[0])
    return BlockValues(BlockGrid.of_unknown_sizes(len(values)), values, None)
