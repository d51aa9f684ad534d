"""Block indexes and item indexes: where each block is in its collection, and its rows.

Integer arithmetic only, no data and no engine. A *position* is the number of a block in C
order; a *block index* is its tuple of grid coordinates; an *item index* is the number of a
row (axis 0) in the whole collection. Unknown sizes (a Dask chunk of size NaN, a DataFrame
partition) are stored as ``-1``.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from spliter._errors import InvalidArgumentError, UnknownItemIndexError

IntArray: TypeAlias = npt.NDArray[np.int64]

UNKNOWN = -1


def _size(value: float) -> int:
    """Return a chunk size as an int, ``UNKNOWN`` for NaN."""
    if isinstance(value, float) and math.isnan(value):
        return UNKNOWN
    if not math.isfinite(value) or value != int(value) or value < UNKNOWN:
        raise InvalidArgumentError(f"a chunk size must be a whole number >= 0 or NaN, got {value}")
    return int(value)


def block_indexes(shape: tuple[int, ...], positions: IntArray) -> list[tuple[int, ...]]:
    """Return the block indexes of many positions in a grid of this shape."""
    if len(shape) == 1:
        return [(position,) for position in positions.tolist()]
    coordinates = np.unravel_index(positions, shape)
    return list(zip(*(axis.tolist() for axis in coordinates), strict=True))


def grid_rows(shape: tuple[int, ...], positions: IntArray) -> IntArray:
    """Return the coordinate along axis 0 of many positions in a grid of this shape."""
    return positions // max(math.prod(shape[1:]), 1)


@dataclass(frozen=True)
class BlockGrid:
    """The grid of blocks of one collection.

    Parameters
    ----------
    chunks : tuple of tuple of int
        Sizes of the blocks along each axis, as in Dask and Zarr; ``-1`` if unknown. Sizes of
        zero are allowed.
    dim : hashable, optional
        Name of axis 0, of blocks that are Datasets of xarray: they do not say it themselves.

    Raises
    ------
    InvalidArgumentError
        If there is no axis.

    Examples
    --------
    >>> grid = BlockGrid.from_chunks([(3, 3, 2), (5,)])
    >>> grid.shape, grid.nblocks, grid.extent
    ((3, 1), 3, (8, 5))
    >>> grid.index(1)
    (1, 0)
    """

    chunks: tuple[tuple[int, ...], ...]
    dim: Hashable | None = None

    def __post_init__(self) -> None:
        if not self.chunks:
            raise InvalidArgumentError("a block grid needs at least one axis")

    @classmethod
    def from_chunks(cls, chunks: Iterable[Iterable[float]]) -> BlockGrid:
        """Build a grid from chunk sizes along each axis, in which NaN stands for an unknown size.

        Raises
        ------
        InvalidArgumentError
            If there is no axis, or a size is negative or not a whole number.
        """
        return cls(tuple(tuple(_size(size) for size in axis) for axis in chunks))

    @classmethod
    def of_unknown_sizes(cls, nblocks: int) -> BlockGrid:
        """Build a one-axis grid of `nblocks` blocks of unknown length."""
        return cls(((UNKNOWN,) * nblocks,))

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Number of blocks along each axis."""
        return tuple(len(axis) for axis in self.chunks)

    @cached_property
    def nblocks(self) -> int:
        """Number of blocks."""
        return math.prod(self.shape)

    @cached_property
    def cut_axes(self) -> int:
        """Number of axes up to the last one with several blocks; at least 1."""
        return max([at for at, blocks in enumerate(self.shape, start=1) if blocks > 1], default=1)

    @cached_property
    def extent(self) -> tuple[int | None, ...]:
        """Number of items along each axis, ``None`` if unknown."""
        return tuple(None if UNKNOWN in axis else sum(axis) for axis in self.chunks)

    @property
    def has_known_items(self) -> bool:
        """Whether the number of rows of every block is known."""
        return self.extent[0] is not None

    def index(self, position: int) -> tuple[int, ...]:
        """Return the block index of a block from its C-order position: one coordinate per axis."""
        return tuple(int(i) for i in np.unravel_index(position, self.shape))

    def indexes(self, positions: IntArray) -> list[tuple[int, ...]]:
        """Return the block index of each C-order position; int64, shape (n,)."""
        return block_indexes(self.shape, positions)

    def rows(self, positions: IntArray) -> IntArray:
        """Return the coordinate along axis 0 of each C-order position; int64, shape (n,)."""
        return grid_rows(self.shape, positions)

    @cached_property
    def row_counts(self) -> IntArray:
        """Rows in each step along axis 0, ``-1`` if unknown; shape (shape[0],)."""
        return np.asarray(self.chunks[0], dtype=np.int64)

    @cached_property
    def row_starts(self) -> IntArray:
        """First row of each step along axis 0; only meaningful if all sizes are known."""
        starts = np.zeros(self.shape[0], dtype=np.int64)
        np.cumsum(self.row_counts[:-1], out=starts[1:])
        return starts

    def with_row_counts(self, counts: Sequence[int] | IntArray) -> BlockGrid:
        """Return the same grid with the rows of each step along axis 0 filled in."""
        return replace(self, chunks=(tuple(int(count) for count in counts), *self.chunks[1:]))

    def block_sizes(self, itemsize: int) -> IntArray | None:
        """Return the bytes of each block, for a fixed item size; ``None`` if any size is unknown.

        The result is an ndarray of int64, shape (nblocks,).
        """
        if any(extent is None for extent in self.extent):
            return None
        sizes = np.array([itemsize], dtype=np.int64)
        for axis in self.chunks:
            sizes = np.multiply.outer(sizes, np.asarray(axis, dtype=np.int64)).ravel()
        return sizes


@dataclass(frozen=True, eq=False)
class BlockIndexes:
    """The blocks of a partition and the items in them.

    Parameters
    ----------
    grid_shape : tuple of int
        Number of blocks of the whole collection along each axis.
    positions : ndarray of int64, shape (n,)
        C-order positions of the partition's blocks.
    item_starts, item_counts : ndarray of int64, shape (n,), or None
        First row and number of rows of each block; ``None`` while unknown.
    trailing_shape : tuple of (int or None)
        Extent of the collection along the further axes, ``None`` where the axis has several
        blocks or its size is unknown.
    dim : hashable, optional
        As for `BlockGrid`.
    """

    grid_shape: tuple[int, ...]
    positions: IntArray
    item_starts: IntArray | None
    item_counts: IntArray | None
    trailing_shape: tuple[int | None, ...]
    dim: Hashable | None = None

    @classmethod
    def of(cls, grid: BlockGrid, positions: IntArray) -> BlockIndexes:
        """Return the indexes of the blocks at `positions` of a grid."""
        rows = grid.rows(positions)
        known = grid.has_known_items
        return cls(
            grid.shape,
            positions,
            grid.row_starts[rows] if known else None,
            grid.row_counts[rows] if known else None,
            tuple(
                extent if blocks == 1 else None
                for extent, blocks in zip(grid.extent[1:], grid.shape[1:], strict=True)
            ),
            grid.dim,
        )

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Shape of the blocks concatenated along axis 0, ``None`` where it is unknown."""
        return (self.count_rows(), *self.trailing_shape)

    def check_whole_rows(self, done: str) -> None:
        """Reject what needs whole rows, `done` to the partition, if a block may hold parts of them.

        Raises
        ------
        InvalidArgumentError
            If the collection has several blocks along another axis than the first.
        """
        if any(blocks != 1 for blocks in self.grid_shape[1:]):
            raise InvalidArgumentError(
                f"a partition of a grid of {self.grid_shape} blocks cannot be {done}: it may hold "
                "parts of rows; rechunk the collection to one block along every axis but the first"
            )

    def blocks(self) -> list[tuple[int, ...]]:
        """Return the block index of each block."""
        return block_indexes(self.grid_shape, self.positions)

    def rows(self) -> IntArray:
        """Return the numbers of all rows, block by block.

        Raises
        ------
        UnknownItemIndexError
            If their counts are unknown.
        """
        starts, counts = self.item_starts, self.item_counts
        if starts is None or counts is None:
            raise UnknownItemIndexError(
                "rows cannot be numbered, because the sizes of the blocks are unknown; call "
                "split.resolve_item_indexes() on the client before submitting tasks"
            )
        ends = np.cumsum(counts)
        # Row numbers are consecutive within a block and jump to the next block's start.
        jumps = np.repeat(starts - (ends - counts), counts)
        return jumps + np.arange(counts.sum(), dtype=np.int64)

    def count_rows(self) -> int | None:
        """Return the number of rows; ``None`` while unknown."""
        if self.item_counts is None:
            return None
        # In a grid of several columns, blocks in the same grid row hold the same rows.
        _, first = np.unique(grid_rows(self.grid_shape, self.positions), return_index=True)
        return int(self.item_counts[first].sum())
