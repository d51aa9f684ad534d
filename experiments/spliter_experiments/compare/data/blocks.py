"""Cut rows into blocks, and what has to be known of all blocks before a comparison."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spliter_experiments.compare.data.sources import Floats, Points
from spliter_experiments.compare.engines.engine import Engine
from spliter_experiments.harness.errors import InputError

NO_LABELS = np.empty(0, dtype=np.int64)
"""A block of labels without rows."""


def no_points(points: Points) -> Floats:
    """Return a block of points without rows, shape (0, columns)."""
    return np.empty((0, len(points.columns)))


def cut_rows(rows: int, nblocks: int) -> tuple[int, ...]:
    """Cut rows into blocks of as equal sizes as there are.

    Raises
    ------
    InputError
        If there are fewer rows than blocks.

    Examples
    --------
    >>> cut_rows(10, 4)
    (3, 3, 2, 2)
    """
    if rows < nblocks:
        raise InputError(
            f"{rows} rows cannot be cut into {nblocks} blocks; take fewer blocks per core, "
            "or more rows (--rows, or --tile with --input)"
        )
    size, larger = divmod(rows, nblocks)
    return (size + 1,) * larger + (size,) * (nblocks - larger)


def row_starts(sizes: Sequence[int]) -> list[int]:
    """Return the number of the first row of each block.

    Examples
    --------
    >>> row_starts((3, 3, 2))
    [0, 3, 6]
    """
    return [end - size for end, size in zip(itertools.accumulate(sizes), sizes, strict=True)]


def bounds_of(engine: Engine, points: Points, array: Any) -> Floats:
    """Return the lowest and highest finite value of each column, shape (2, columns).

    Raises
    ------
    InputError
        If a column has no finite value.
    """
    each = engine.on_blocks(finite_bounds, array)
    low = np.min([bounds[0] for bounds in each], axis=0)
    high = np.max([bounds[1] for bounds in each], axis=0)
    empty = [name for name, least in zip(points.columns.names, low, strict=True) if least == np.inf]
    if empty:
        raise InputError(f"{points.origin}: no finite value in {', '.join(empty)}")
    return np.stack([low, high])


def incomplete_rows(engine: Engine, array: Any) -> int:
    """Return the number of rows with a missing or infinite value."""
    return sum(engine.on_blocks(count_incomplete, array))


def count_incomplete(block: Floats) -> int:
    """Count the rows of one block with a value that is not a finite number."""
    return int(np.count_nonzero(~np.isfinite(block).all(axis=1)))


def check_finite(engine: Engine, points: Points, array: Any) -> None:
    """Make sure that all values are finite numbers.

    Raises
    ------
    InputError
        If some are not; names the columns.
    """
    each = engine.on_blocks(has_gaps, array)
    gaps = np.any(each, axis=0)
    if gaps.any():
        names = [name for name, gap in zip(points.columns.names, gaps, strict=True) if gap]
        raise InputError(
            f"{points.origin}: missing or infinite values in {', '.join(names)}; choose other "
            "columns with --columns, or fill them in"
        )


def has_gaps(block: Floats) -> npt.NDArray[np.bool_]:
    """Tell which columns hold a value that is not a finite number, shape (columns,)."""
    return np.asarray(np.any(~np.isfinite(block), axis=0))


def finite_bounds(block: Floats) -> Floats:
    """Return the smallest and the largest finite value of each column, shape (2, columns).

    A column without one yields (inf, -inf), which changes nothing when bounds are merged.
    """
    finite = np.isfinite(block)
    low = np.min(block, axis=0, where=finite, initial=np.inf)
    high = np.max(block, axis=0, where=finite, initial=-np.inf)
    return np.stack([low, high])
