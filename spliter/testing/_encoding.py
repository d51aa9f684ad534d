"""Test data whose values are their own global indexes.

The element at ``(i, j, ...)`` of the whole collection is its number in C order, so an error
of a backend in blocks or indexes shows in the values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from spliter import BlockGrid
from spliter._planning.grid import IntArray


def index_encoded_array(shape: Sequence[int]) -> IntArray:
    """Make an array of int64 in which each value is its own C-order index.

    Examples
    --------
    >>> index_encoded_array((2, 3)).tolist()
    [[0, 1, 2], [3, 4, 5]]
    """
    return np.arange(math.prod(shape), dtype=np.int64).reshape(shape)


def index_encoded_block(index: Sequence[int], chunks: Sequence[Sequence[int]]) -> IntArray:
    """Make the block of an index-encoded array at a block index, without the rest of the array.

    `chunks` are the sizes of the blocks along each axis.

    Examples
    --------
    >>> index_encoded_block((1, 0), [(1, 2), (2, 1)]).tolist()
    [[3, 4], [6, 7]]
    """
    block = np.zeros((), dtype=np.int64)
    for at, sizes in zip(index, chunks, strict=True):
        along = np.arange(sizes[at], dtype=np.int64) + sum(sizes[:at])
        block = np.add.outer(block * sum(sizes), along)
    return block


def index_encoded_blocks(chunks: Sequence[Sequence[int]]) -> list[IntArray]:
    """Make all blocks of an index-encoded array, in C order of the grid.

    Examples
    --------
    >>> [block.tolist() for block in index_encoded_blocks([(2, 0, 1)])]
    [[0, 1], [], [2]]
    """
    grid = BlockGrid.from_chunks(chunks)
    everywhere = np.arange(grid.nblocks, dtype=np.int64)
    return [index_encoded_block(index, grid.chunks) for index in grid.indexes(everywhere)]


def rows_in(block: Any, extent: Sequence[int]) -> IntArray:
    """Read the row numbers out of a block of an index-encoded array of shape `extent`.

    The block has at least one element per row.

    Examples
    --------
    >>> rows_in(index_encoded_block((1, 0), [(1, 2), (2, 1)]), (3, 3)).tolist()
    [1, 2]
    """
    first_of_each_row = block.reshape(len(block), -1)[:, 0] if len(block) else block.reshape(0)
    return np.asarray(first_of_each_row, dtype=np.int64) // math.prod(extent[1:])
