"""Regroup blocks of any number of rows into tiles of bounded size.

A kernel that makes a dozen NumPy calls per block is slow on blocks of ten rows, and on blocks of a
million rows it needs proportional scratch memory. :func:`tiles` cuts and joins blocks::

    blocks   |  9000 rows            | 10 | 10 | 10 | 10 | ...
    tiles    | 3000 | 3000 | 3000    | 3640 rows, copied     |
               views of the block      one buffer, reused

Small blocks are copied into a buffer that fits the processor's cache. Large ones are cut into
views, or copied too if their memory layout is unsuitable. Sparse blocks are never joined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from scipy import sparse

FloatArray: TypeAlias = npt.NDArray[np.float64]
Block: TypeAlias = tuple[Any, FloatArray | None]
"""Points, an ndarray or CSR matrix of shape (n, n_features), and the weight of each or None."""

Columns = TypeVar("Columns", bound=tuple[npt.NDArray[Any], ...])
"""A named tuple of arrays with one entry per row."""

SCRATCH_BYTES = 2**21
"""Scratch memory of a kernel. With 2**17, 2**19, 2**21 and 2**23 bytes `partial_sums` takes 74, 54,
51 and 50 ms for blocks of ten rows, 18, 16, 11 and 10 ms for blocks of 1,000 (200,000 points of 20
columns, 8 centres)."""


class Tile(NamedTuple):
    """Consecutive rows of one or several blocks; valid until the next tile is requested."""

    points: Any
    """Array or CSR matrix of shape (m, n_features), minus the origin."""
    weights: FloatArray | None
    blocks: list[int]
    """Numbers of the blocks that contribute rows."""
    starts: list[int]
    """First row of each of these blocks in the tile."""


def tile_rows(values_per_row: int, itemsize: int = 8) -> int:
    """Return the maximum number of rows of a tile within the bound of scratch memory.

    Examples
    --------
    >>> tile_rows(36)
    7281
    """
    return max(SCRATCH_BYTES // (itemsize * values_per_row), 1)


def tiles(
    blocks: Iterable[Block],
    rows: int,
    dtype: npt.DTypeLike,
    origin: npt.NDArray[Any] | None = None,
    rows_in_place: int | None = None,
) -> Iterator[Tile]:
    """Cut and join blocks into tiles of at most `rows`, or `rows_in_place` if they are dense views.

    Either all blocks have weights or none has. Dense tiles have the given dtype, minus the origin.

    Examples
    --------
    >>> blocks = [(np.full((height, 2), height / 1), None) for height in (7, 1, 0, 2)]
    >>> for tile in tiles(blocks, 5, np.float64):
    ...     print(tile.points[:, 0], tile.blocks, tile.starts)
    [7. 7. 7. 7.] [0] [0]
    [7. 7. 7.] [0] [0]
    [1. 2. 2.] [1, 3] [0, 1]
    """
    buffer = _Buffer(rows, np.dtype(dtype), origin)
    for number, (points, weights) in enumerate(blocks):
        if buffer.should_copy(points):
            yield from buffer.filled_with(number, points, weights)
        elif points.shape[0]:
            yield from buffer.flush()
            most = rows if sparse.issparse(points) else rows_in_place or rows
            yield from _views(number, points, weights, most)
    yield from buffer.flush()


def _views(number: int, points: Any, weights: FloatArray | None, most: int) -> Iterator[Tile]:
    """Cut a block into views of about equal size."""
    height = points.shape[0]
    count = -(-height // most)
    step = -(-height // count)
    for at in range(0, height, step):
        # Slicing a sparse matrix copies it.
        part = points if count == 1 else points[at : at + step]
        yield Tile(part, None if weights is None else weights[at : at + step], [number], [0])


class _Buffer:
    """Buffer of rows of small blocks."""

    def __init__(self, rows: int, dtype: np.dtype[Any], origin: npt.NDArray[Any] | None) -> None:
        self.rows = rows
        self.dtype = dtype
        self.origin = origin
        self.fill = 0
        self.points: npt.NDArray[Any] | None = None
        self.weights: FloatArray | None = None
        self.blocks: list[int] = []
        self.starts: list[int] = []

    def should_copy(self, points: Any) -> bool:
        """Return whether a dense block is small, or its memory layout is unsuitable.

        Arrays that Dask received over the network may be unaligned. NumPy copies unaligned
        arrays in each operation, which takes twice as long as the rest of the kernel.
        """
        if sparse.issparse(points):
            return False
        dense: npt.NDArray[Any] = points
        flags = dense.flags
        in_place = dense.dtype == self.dtype and flags.c_contiguous and flags.aligned
        return self.origin is not None or not in_place or 2 * len(dense) < self.rows

    def filled_with(
        self, number: int, points: npt.NDArray[Any], weights: FloatArray | None
    ) -> Iterator[Tile]:
        """Copy a block to the buffer, and yield the buffer whenever it is full."""
        at = 0
        while at < len(points):
            cut = slice(at, at + self.rows - self.fill)
            self._add(number, points[cut], None if weights is None else weights[cut])
            at = cut.stop
            if self.fill == self.rows:
                yield from self.flush()

    def _add(self, number: int, points: npt.NDArray[Any], weights: FloatArray | None) -> None:
        if self.points is None:
            self.points = np.empty((self.rows, points.shape[1]), self.dtype)
            self.weights = None if weights is None else np.empty(self.rows)
        rows = slice(self.fill, self.fill + len(points))
        if self.origin is None:
            self.points[rows] = points
        else:
            np.subtract(points, self.origin, out=self.points[rows], casting="same_kind")
        if self.weights is not None:
            self.weights[rows] = weights
        self.blocks.append(number)
        self.starts.append(self.fill)
        self.fill = rows.stop

    def flush(self) -> Iterator[Tile]:
        """Yield the rows in the buffer, if there are any, and empty it."""
        if self.fill:
            assert self.points is not None
            weights = None if self.weights is None else self.weights[: self.fill]
            yield Tile(self.points[: self.fill], weights, self.blocks, self.starts)
            self.fill, self.blocks, self.starts = 0, [], []


def concatenated(several: Sequence[Columns]) -> Columns:
    """Concatenate one or more tuples of arrays, field by field."""
    return type(several[0])(*map(np.concatenate, zip(*several, strict=True)))


def rows_of(columns: Columns, at: npt.NDArray[Any]) -> Columns:
    """Return some rows of a tuple of arrays."""
    return type(columns)(*(values[at] for values in columns))
