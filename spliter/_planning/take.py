"""Read rows by their global index: one task per partition that has any of them.

The client finds the block of each distinct row by bisection. Each task picks its rows, block by
block, and returns them as one block; the client puts them into the requested order::

    take([7, 0, 7])     distinct  0 | 7
                        tasks     partition 0: row 0      partition 1: row 7
                        answers   [x0]                    [x7]
                        result    [x7, x0, x7]
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spliter._errors import InvalidArgumentError, ItemIndexError
from spliter._planning.grid import BlockGrid, IntArray


def check_items(indices: Any, n_items: int) -> IntArray:
    """Return item indexes as integers from 0 on; negative ones count from the end.

    Examples
    --------
    >>> check_items([2, -1], 5)
    array([2, 4])
    """
    try:
        found = np.asarray(indices)
    except ValueError:
        found = np.empty(())
    if found.dtype.kind == "b":
        raise InvalidArgumentError(
            "indices must be integers, got a mask of bool; pass numpy.flatnonzero(mask)"
        )
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise InvalidArgumentError(
            f"indices must be a list of whole numbers (int64), got {reprlib.repr(indices)}"
        )
    outside = (found < -n_items) | (found >= n_items)
    if outside.any():
        raise ItemIndexError(
            f"index {found[outside][0]} is out of range for a collection of {n_items} rows"
        )
    items = found.astype(np.int64)
    return np.where(items < 0, items + n_items, items)


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows that one task picks from the blocks of its partition.

    Parameters
    ----------
    blocks : ndarray of int64, shape (n,)
        Number of the block of each row in the partition; never decreasing.
    rows : ndarray of int64, shape (n,)
        Number of each row in its block.
    """

    blocks: IntArray
    rows: IntArray

    def by_block(self) -> tuple[list[int], list[IntArray]]:
        """Return the numbers of the blocks that have rows, and the rows of each.

        Without any row these are no rows of the first block.
        """
        numbers, first = np.unique(self.blocks, return_index=True)
        return numbers.tolist() or [0], np.split(self.rows, first[1:])


def plan_rows(
    grid: BlockGrid, positions: Sequence[IntArray], items: IntArray
) -> tuple[dict[int, Rows], IntArray]:
    """Find the partition, block and row of each item.

    Parameters
    ----------
    grid : BlockGrid
        One block along every axis but the first; the rows of each are known.
    positions : sequence of ndarray of int64
        Blocks of each partition.
    items : ndarray of int64, shape (n,)
        Item indexes, in any order and repeated.

    Returns
    -------
    dict of int to Rows
        Distinct rows of each partition that has any, in the order of the partitions.
    ndarray of int64, shape (n,)
        Where each item is among these rows.

    Examples
    --------
    >>> grid = BlockGrid.from_chunks([(2, 3)])
    >>> rows, order = plan_rows(grid, [np.array([1]), np.array([0])], np.array([4, 0, 4]))
    >>> rows[0].rows, rows[1].rows, order
    (array([2]), array([0]), array([0, 1, 0]))
    """
    distinct, inverse = np.unique(items, return_inverse=True)
    # Of blocks that start at the same row, all but the last are empty.
    blocks = np.searchsorted(grid.row_starts, distinct, side="right") - 1
    owner = np.empty((2, grid.nblocks), np.int64)
    for number, own in enumerate(positions):
        owner[:, own] = np.full(len(own), number), np.arange(len(own))
    partition, block = owner[:, blocks]
    order = np.argsort(partition, kind="stable")
    numbers, first = np.unique(partition[order], return_index=True)
    # Without items np.split() returns one part nevertheless.
    parts = zip(numbers.tolist(), np.split(order, first[1:]), strict=False)
    rows = {
        number: Rows(block[at], (distinct - grid.row_starts[blocks])[at]) for number, at in parts
    }
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    return rows, places[inverse]
