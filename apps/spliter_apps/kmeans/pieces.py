"""Blocks of any height as pieces of about equal height, for kernels with bounded scratch memory.

A kernel that makes a dozen calls of NumPy per block is slow on blocks of ten rows, and needs
scratch memory in proportion to the block on blocks of a million. So blocks are cut and joined::

    blocks   |  9000 rows            | 10 | 10 | 10 | 10 | ...
    pieces   | 3000 | 3000 | 3000    | 3640 rows, copied     |
               views of the block      one buffer, used again

Small blocks are copied one after the other into a buffer that stays in the processor's cache,
large ones are cut into views of equal height (or copied too, if their memory is not as kernels need
it). Sparse blocks are never joined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

FloatArray: TypeAlias = npt.NDArray[np.float64]
Block: TypeAlias = tuple[Any, FloatArray | None]
"""Points, an ndarray or CSR matrix of shape (n, n_features), and the weight of each or None."""

SCRATCH_BYTES = 2**21
"""Scratch memory of a kernel: about the second-level cache of one core, and enough rows
for calls to cost little next to the work."""

MOST_ROWS = 8192
"""Beyond it a piece gains nothing, however narrow the points are."""


class Piece(NamedTuple):
    """Some rows in a row; valid until the next piece is asked for.

    Parameters
    ----------
    points : ndarray or CSR matrix of shape (m, n_features)
        Less the origin, if the pieces were made with one.
    weights : ndarray of float64, shape (m,), or None
        Their weights.
    blocks : list of int
        Numbers of the blocks that the rows are from, in order.
    starts : list of int
        Where the rows of each of these blocks start in the piece.
    """

    points: Any
    weights: FloatArray | None
    blocks: list[int]
    starts: list[int]


def piece_rows(values_per_row: int, itemsize: int = 8) -> int:
    """Return how many rows a piece may have for the scratch memory to stay within its bound.

    Parameters
    ----------
    values_per_row : int
        Numbers that the kernel keeps for each row.
    itemsize : int
        Bytes of each.

    Returns
    -------
    int
        At least 1.

    Examples
    --------
    >>> piece_rows(36)
    7281
    """
    return min(max(SCRATCH_BYTES // (itemsize * values_per_row), 1), MOST_ROWS)


class _Buffer:
    """Rows of small blocks, copied one after the other."""

    def __init__(self, rows: int, dtype: npt.DTypeLike, origin: npt.NDArray[Any] | None) -> None:
        self.rows = rows
        self.dtype = np.dtype(dtype)
        self.origin = origin
        self.fill = 0
        self.points: npt.NDArray[Any] | None = None
        self.weights: FloatArray | None = None
        self.blocks: list[int] = []
        self.starts: list[int] = []

    def can_do_without(self, points: npt.NDArray[Any]) -> bool:
        """Whether these points can be computed with where they are.

        An array that Dask has brought over the network starts where its message happened to have
        it. NumPy copies what is not aligned for each operation anew, which in a worker of Dask
        takes twice as long as all the rest.
        """
        suits = points.dtype == self.dtype and points.flags.c_contiguous and points.flags.aligned
        return self.origin is None and suits

    def add(self, number: int, points: npt.NDArray[Any], weights: FloatArray | None) -> None:
        if self.points is None:
            self.points = np.empty((self.rows, points.shape[1]), self.dtype)
            self.weights = None if weights is None else np.empty(self.rows)
        start, stop = self.fill, self.fill + len(points)
        if self.origin is None:
            self.points[start:stop] = points
        else:
            np.subtract(points, self.origin, out=self.points[start:stop], casting="same_kind")
        if weights is not None:
            assert self.weights is not None
            self.weights[start:stop] = weights
        self.blocks.append(number)
        self.starts.append(start)
        self.fill = stop

    def flush(self) -> Piece:
        assert self.points is not None
        weights = None if self.weights is None else self.weights[: self.fill]
        piece = Piece(self.points[: self.fill], weights, self.blocks, self.starts)
        self.fill, self.blocks, self.starts = 0, [], []
        return piece


def pieces(
    blocks: Iterable[Block],
    rows: int,
    dtype: npt.DTypeLike,
    origin: npt.NDArray[Any] | None = None,
    rows_in_place: int | None = None,
) -> Iterator[Piece]:
    """Cut and join blocks.

    Parameters
    ----------
    blocks : iterable of (points, weights)
        Either all have weights or none has. Blocks without rows are fine.
    rows : int
        Most rows of a piece.
    dtype : dtype
        Type of the points in the pieces.
    origin : ndarray of shape (n_features,), optional
        Subtracted from every point; not possible for sparse blocks.
    rows_in_place : int, optional
        Most rows of a piece that is a view of a dense block; `rows` by default.

    Yields
    ------
    Piece
        All rows, in order.

    Examples
    --------
    >>> blocks = [(np.full((height, 2), height / 1), None) for height in (7, 1, 0, 2)]
    >>> for piece in pieces(blocks, 5, np.float64):
    ...     print(piece.points[:, 0], piece.blocks, piece.starts)
    [7. 7. 7. 7.] [0] [0]
    [7. 7. 7.] [0] [0]
    [1. 2. 2.] [1, 3] [0, 1]
    """
    buffer = _Buffer(rows, dtype, origin)
    for number, (points, weights) in enumerate(blocks):
        height = points.shape[0]
        is_sparse = sparse.issparse(points)
        in_place = is_sparse or buffer.can_do_without(points)
        # A view that fills half of a piece is worth a piece of its own.
        if height and in_place and (is_sparse or 2 * height >= rows):
            if buffer.fill:
                yield buffer.flush()
            most = rows if is_sparse or rows_in_place is None else rows_in_place
            count = -(-height // most)
            step = -(-height // count)
            for at in range(0, height, step):
                # Cutting a sparse matrix copies it.
                part = points if count == 1 else points[at : at + step]
                yield Piece(
                    part, None if weights is None else weights[at : at + step], [number], [0]
                )
            continue
        at = 0
        while at < height:
            cut = slice(at, min(at + rows - buffer.fill, height))
            buffer.add(number, points[cut], None if weights is None else weights[cut])
            if buffer.fill == rows:
                yield buffer.flush()
            at = cut.stop
    if buffer.fill:
        yield buffer.flush()
