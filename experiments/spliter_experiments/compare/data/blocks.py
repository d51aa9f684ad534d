"""Compute the block sizes of a number of rows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from spliter_experiments.compare.data.sources import Floats, Points
from spliter_experiments.harness.errors import InputError

NO_LABELS = np.empty(0, dtype=np.int64)
"""An empty block of labels, which shows their dtype."""


def no_points(points: Points) -> Floats:
    """Return an empty block of points, shape (0, columns)."""
    return np.empty((0, len(points.columns)))


def cut_rows(rows: int, nblocks: int) -> tuple[int, ...]:
    """Return the sizes of blocks whose row counts differ by at most one.

    Examples
    --------
    >>> cut_rows(10, 4)
    (3, 3, 2, 2)
    """
    if rows < nblocks:
        raise InputError(
            f"{rows} rows cannot be cut into {nblocks} blocks; take fewer blocks per core, "
            "or more --rows"
        )
    size, larger = divmod(rows, nblocks)
    return (size + 1,) * larger + (size,) * (nblocks - larger)


def row_starts(sizes: Sequence[int]) -> list[int]:
    """Return the index of the first row of each block.

    Examples
    --------
    >>> row_starts((3, 3, 2))
    [0, 3, 6]
    """
    return [end - size for end, size in zip(itertools.accumulate(sizes), sizes, strict=True)]
