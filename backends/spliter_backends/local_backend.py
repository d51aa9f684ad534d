"""The local backend: collections in this process or its files, tasks on its threads.

Takes lists of in-memory blocks, NumPy memory maps, Zarr arrays, and Dask collections
whose blocks are values in their graph (persisted without a distributed client). No
engine is needed; every program written with ``split`` runs here unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from spliter import (
    Backend,
    BlockGrid,
    Blocks,
    Executor,
    LazyCollectionError,
    UnsupportedCollectionError,
)
from spliter_backends._local_blocks import (
    LocalBlocks,
    Opened,
    is_block,
    open_list,
    open_memmap,
    open_values,
    open_zarr,
)
from spliter_backends._local_executor import (
    LOCATION,
    LocalExecutor,
    LocalFuture,
    default_executor,
)

__all__ = ["BACKEND", "LocalExecutor", "LocalLocator"]


class LocalLocator:
    """Finds the blocks of collections that are in this process or its files.

    Parameters
    ----------
    executor : LocalExecutor, optional
        What runs the tasks; by default one with a thread per core, shared by all.

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
        """Whether the collection is one of this process.

        Parameters
        ----------
        collection : object
            Anything.

        Returns
        -------
        bool
            For an empty list too; ``open`` says what is wrong with it.
        """
        if _is_dask(collection):
            from spliter_backends._dask_graph import belongs_to_cluster

            listed = isinstance(collection, list | tuple)
            return not belongs_to_cluster(collection[0] if listed else collection)
        if isinstance(collection, list | tuple):
            return not collection or is_block(collection[0])
        return (isinstance(collection, np.memmap) or _is_zarr(collection)) and collection.ndim > 0

    def open(self, collections: Sequence[Any]) -> Blocks:
        """Open collections; nothing is read.

        Parameters
        ----------
        collections : sequence of collection
            One, or several that are split together; their kinds may differ.

        Returns
        -------
        Blocks
            Holds references to the blocks.

        Raises
        ------
        UnsupportedCollectionError
            If one is not of this backend, or has no blocks.
        LazyCollectionError
            If one is a Dask collection without blocks.
        """
        return LocalBlocks([self._open(*numbered) for numbered in enumerate(collections)], LOCATION)

    def _open(self, number: int, collection: Any) -> Opened:
        if _is_dask(collection):
            return _open_dask(collection)
        if not self.recognises(collection):
            raise UnsupportedCollectionError(
                f"aligned collection {number} is a {type(collection).__name__} whose blocks are "
                "not in this process, where those of the first collection are; pass a list of "
                "blocks in memory, a memory map or a Zarr array"
            )
        if isinstance(collection, np.memmap):
            return open_memmap(collection, self._tasks().threads)
        if isinstance(collection, list | tuple):
            return open_list(collection)
        return open_zarr(collection)

    def executor_for(self, blocks: Blocks) -> Executor:
        """Return what runs the tasks.

        Parameters
        ----------
        blocks : Blocks
            Opened by this locator.

        Returns
        -------
        Executor
            The same for all blocks.
        """
        return self._tasks()

    def _tasks(self) -> LocalExecutor:
        return self._executor or default_executor()


def _packages(value: Any) -> set[str]:
    return {base.__module__.partition(".")[0] for base in type(value).__mro__}


def _is_zarr(value: Any) -> bool:
    if "zarr" not in _packages(value):
        return False
    import zarr

    return isinstance(value, zarr.Array)


def _is_dask(value: Any) -> bool:
    """Whether it is a Dask collection, or a list of them (delayed values)."""
    if isinstance(value, list | tuple) and value:
        value = value[0]
    # Looked up on the type: a delayed value has any attribute it is asked for.
    return hasattr(type(value), "__dask_graph__")


def _open_dask(collection: Any) -> Opened:
    from spliter_backends._dask_graph import block_values

    if isinstance(collection, list | tuple):
        return _open_delayed(collection)
    found = block_values(collection)
    if found.lazy:
        raise LazyCollectionError(
            f"this Dask {type(collection).__name__} has not been computed, so its blocks are "
            "nowhere yet; call x = x.persist() and split that"
        )
    if found.on_cluster:
        raise UnsupportedCollectionError(
            f"the blocks of this Dask {type(collection).__name__} are on a cluster, not in this "
            "process; split it with backend='dask'"
        )
    return open_values(found.grid, found.values)


def _open_delayed(collection: Sequence[Any]) -> Opened:
    """Open a list of delayed values: each is one block."""
    from spliter_backends._dask_graph import LAZY, block_values

    values: list[Any] = []
    for position, element in enumerate(collection):
        found = block_values(element).values if _is_dask(element) else ()
        if len(found) != 1:
            raise UnsupportedCollectionError(
                f"element {position} of the list of delayed values is a "
                f"{type(element).__name__}, not one delayed value; split a Dask collection "
                "itself, not a list of them"
            )
        if found[0] is LAZY:
            raise LazyCollectionError(
                f"element {position} of the list has not been computed; call "
                "values = dask.persist(*values) and split that"
            )
        values.append(found[0])
    return open_values(BlockGrid.of_unknown_sizes(len(values)), values)


def executor_of_future(future: Any) -> Executor | None:
    """Return the executor for a future of this process.

    Parameters
    ----------
    future : object
        Anything.

    Returns
    -------
    Executor or None
        The one that made it; the shared one for a future of another pool of threads or
        processes; ``None`` for anything but a ``concurrent.futures.Future``.
    """
    if isinstance(future, LocalFuture):
        return future.executor
    return default_executor() if isinstance(future, Future) else None


BACKEND = Backend("local", LocalLocator(), executor_of_future)
