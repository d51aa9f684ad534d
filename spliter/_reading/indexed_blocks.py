"""Sizes and indexes of a partition's blocks, which are known wherever the partition is."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from spliter._errors import UnknownItemIndexError
from spliter._planning.grid import BlockGrid, BlockIndexes, IntArray, block_indexes


class IndexedBlocks:
    """Blocks by their sizes and indexes; base class of :class:`spliter.Partition`.

    Parameters
    ----------
    indexes : BlockIndexes
        Indexes of the blocks and of their items.
    nbytes : ndarray of int64, shape (n,)
        Bytes of each block.
    resolve_items : weak reference to a method, optional
        Counts the items of all blocks of the Split.
    """

    __slots__ = ("_indexes", "_nbytes", "_resolve_items")

    def __init__(
        self,
        indexes: BlockIndexes,
        nbytes: IntArray,
        resolve_items: weakref.WeakMethod[Callable[[], BlockGrid]] | None = None,
    ) -> None:
        self._indexes = indexes
        self._nbytes = nbytes
        self._resolve_items = resolve_items

    def __len__(self) -> int:
        """Return the number of blocks."""
        return len(self._indexes.positions)

    @property
    def nbytes(self) -> int:
        """Total bytes of its blocks (of the first collection), as far as known."""
        return int(self._nbytes.sum())

    @property
    def block_nbytes(self) -> IntArray:
        """Bytes of each block (of the first collection); shape (len(self),)."""
        return self._nbytes

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Shape of its blocks concatenated along axis 0.

        ``None`` along an axis of unknown size, or along which the collection has several blocks.
        """
        return (self._indexes.count_rows(), *self._indexes.trailing_shape)

    def get_indexes(self) -> list[tuple[int, ...]]:
        """Return the block index of every block, in iteration order.

        Returns
        -------
        list of tuple of int
            Coordinates in the collection's block grid, one tuple per block.
        """
        return block_indexes(self._indexes.grid_shape, self._indexes.positions)

    def get_item_indexes(self) -> IntArray:
        """Return the global index of every item (row), in iteration order.

        If block sizes are unknown (NaN chunks, DataFrames), the first call on the client
        counts the rows, with one task per partition for the whole Split. At the location this
        works only if the rows were counted before the task was submitted.

        Returns
        -------
        ndarray of int64, shape (n_items,)
            Row numbers in the whole collection. In a grid with several columns of blocks, the
            rows of each block appear separately.

        Raises
        ------
        UnknownItemIndexError
            If the sizes are unknown and cannot be counted: at the location, after the Split was
            deleted, or on the engine's event loop.
        """
        if self._indexes.item_counts is None:
            if self._resolve_items is None:
                raise UnknownItemIndexError(
                    "rows cannot be numbered, because the sizes of the blocks are unknown; call "
                    "split.resolve_item_indexes() on the client before submitting tasks"
                )
            resolve = self._resolve_items()
            if resolve is None:
                raise UnknownItemIndexError(
                    "rows cannot be numbered, because the sizes of the blocks are unknown and the "
                    "Split was deleted; keep it, or call its resolve_item_indexes() first"
                )
            self.number_items(resolve())
        return self._indexes.rows()

    @property
    def has_known_items(self) -> bool:
        """Whether item indexes are known without counting rows."""
        return self._indexes.item_counts is not None

    def number_items(self, grid: BlockGrid) -> None:
        """Fill in sizes that have become known (called by the Split)."""
        self._indexes = BlockIndexes.of(grid, self._indexes.positions)

    @property
    def indexes(self) -> BlockIndexes:
        """Indexes of its blocks and items, as arrays (for backends)."""
        return self._indexes
