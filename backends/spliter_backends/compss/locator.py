"""Find the blocks of dislib ds-arrays, collections made by tasks, and lists of futures."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from spliter import BlockGrid, Location, UnsupportedCollectionError
from spliter.backend import Blocks, Locator
from spliter_backends._shared.process_blocks import LocalBlocks
from spliter_backends._shared.readable import (
    ReadableCollection,
    is_block,
    open_list,
    open_values,
    packages_of,
)
from spliter_backends.compss.api import Future, runtime_is_up
from spliter_backends.compss.blocks import CompssBlocks, CompssObjects
from spliter_backends.compss.collection import CompssCollection
from spliter_backends.compss.executor import EXECUTOR
from spliter_backends.compss.outcome import host_name
from spliter_backends.compss.source import concatenate_columns


class CompssLocator(Locator):
    """Finds the blocks of collections whose blocks are COMPSs objects.

    Examples
    --------
    >>> import numpy as np
    >>> locator = CompssLocator()
    >>> locator.recognises([np.zeros(3)]), locator.recognises(np.zeros(3))
    (True, False)
    """

    def recognises(self, collection: Any) -> bool:
        """Return whether its blocks can be passed to PyCOMPSs tasks.

        Returns ``True`` for ds-arrays, results of ``make_blocks`` and ``map_blocks``, lists of
        PyCOMPSs futures, and lists of blocks in this process (which other backends accept as well:
        this one splits them if it is requested by name).
        """
        if isinstance(collection, list | tuple):
            return bool(collection) and (
                isinstance(collection[0], Future) or is_block(collection[0])
            )
        return isinstance(collection, CompssCollection) or _is_dsarray(collection)

    def open(self, collections: Sequence[Any]) -> Blocks:
        """Open collections, without determining the locations of their blocks yet."""
        members = [_open(*numbered) for numbered in enumerate(collections)]
        if runtime_is_up():
            return CompssBlocks(members, EXECUTOR)
        return LocalBlocks(list(map(_readable, members)), Location(host_name()), EXECUTOR)


def _is_dsarray(value: Any) -> bool:
    if "dislib" not in packages_of(value):
        return False
    from dislib.data.array import Array

    return isinstance(value, Array)


def _open(number: int, collection: Any) -> CompssObjects:
    if _is_dsarray(collection):
        return _open_dsarray(collection)
    if isinstance(collection, CompssCollection):
        nbytes = None
        return CompssObjects(
            collection.grid, [(block,) for block in collection], nbytes, collection
        )
    if isinstance(collection, list | tuple) and collection:
        return _open_list(collection)
    which = f"aligned collection {number}" if number else "the collection"
    article = "an empty" if isinstance(collection, list | tuple) else "a"
    raise UnsupportedCollectionError(
        f"{which} is {article} {type(collection).__name__}, which the COMPSs backend does not "
        "support; pass a dislib ds-array, a result of make_blocks, or a list of PyCOMPSs futures "
        "or blocks"
    )


def _open_list(blocks: Sequence[Any]) -> CompssObjects:
    for position, block in enumerate(blocks):
        if not (isinstance(block, Future) or is_block(block)):
            raise UnsupportedCollectionError(
                f"element {position} of the list is a {type(block).__name__}, not a PyCOMPSs "
                "future and not a block (an array of at least one axis, a DataFrame, a sparse "
                "matrix or a list)"
            )
    if any(isinstance(block, Future) for block in blocks):
        grid = BlockGrid.of_unknown_sizes(len(blocks))
        return CompssObjects(grid, [(block,) for block in blocks], None, blocks)
    opened = open_list(blocks)
    return CompssObjects(opened.grid, [(block,) for block in blocks], opened.nbytes, blocks)


def _open_dsarray(array: Any) -> CompssObjects:
    """Open a ds-array; its blocks are its rows of blocks.

    dislib's own algorithms use rows of blocks too; a task concatenates several columns of blocks
    when it reads them.
    """
    rows = array.shape[0]
    chunks = _sizes(rows, array._top_left_shape[0], array._reg_shape[0], array._n_blocks[0])
    grid = BlockGrid((chunks, (int(array.shape[1]),)))
    return CompssObjects(grid, [tuple(row) for row in array._blocks], None, array)


def _sizes(extent: int, first: int, regular: int, count: int) -> tuple[int, ...]:
    """Return the sizes of blocks: a first one, regular ones, and the remainder."""
    ends = [min(first + regular * number, extent) for number in range(count - 1)]
    return tuple(int(end - start) for start, end in itertools.pairwise([0, *ends, extent]))


def _readable(member: CompssObjects) -> ReadableCollection:
    """Open blocks that are in this process, as all blocks are without a runtime."""
    if member.columns == 1:
        return open_values(member.grid, [parts[0] for parts in member.blocks])
    first = open_values(member.grid, [parts[0] for parts in member.blocks])
    nbytes = sum(
        open_values(member.grid, column).nbytes for column in zip(*member.blocks, strict=True)
    )
    return ReadableCollection(
        first.grid,
        np.asarray(nbytes, dtype=np.int64),
        lambda position: concatenate_columns(member.blocks[position]),
    )
