"""Check the loaded data before a comparison: range of each column, missing values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from spliter_experiments.compare.data.sources import Floats, Points
from spliter_experiments.compare.engines.engine import Engine
from spliter_experiments.harness.errors import InputError


def _on_blocks(engine: Engine, kernel: Any, array: Any) -> list[Any]:
    return engine.results(engine.call_blocks(array, kernel))


def bounds_of(engine: Engine, points: Points, array: Any) -> Floats:
    """Return the lowest and highest finite value of each column, shape (2, columns)."""
    each = _on_blocks(engine, finite_bounds, array)
    low = np.min([bounds[0] for bounds in each], axis=0)
    high = np.max([bounds[1] for bounds in each], axis=0)
    empty = [name for name, least in zip(points.columns.names, low, strict=True) if least == np.inf]
    if empty:
        raise InputError(f"{points.origin}: no finite value in {', '.join(empty)}")
    return np.stack([low, high])


def incomplete_rows(engine: Engine, array: Any) -> int:
    """Return the number of rows with a missing or infinite value."""
    return sum(_on_blocks(engine, count_incomplete, array))


def count_incomplete(block: Floats) -> int:
    """Return the number of rows of a block with a value that is not finite."""
    return int(np.count_nonzero(~np.isfinite(block).all(axis=1)))


def check_finite(engine: Engine, points: Points, array: Any) -> None:
    """Check that all values are finite."""
    each = _on_blocks(engine, has_gaps, array)
    gaps = np.any(each, axis=0)
    if gaps.any():
        names = [name for name, gap in zip(points.columns.names, gaps, strict=True) if gap]
        raise InputError(
            f"{points.origin}: missing or infinite values in {', '.join(names)}; choose other "
            "columns with --columns, or fill them in"
        )


def has_gaps(block: Floats) -> npt.NDArray[np.bool_]:
    """Return which columns of a block have a value that is not finite, shape (columns,)."""
    return np.asarray(np.any(~np.isfinite(block), axis=0))


def finite_bounds(block: Floats) -> Floats:
    """Return the minimum and maximum finite value of each column, shape (2, columns).

    A column without finite values gives (inf, -inf), the neutral element of merging bounds.
    """
    finite = np.isfinite(block)
    low = np.min(block, axis=0, where=finite, initial=np.inf)
    high = np.max(block, axis=0, where=finite, initial=-np.inf)
    return np.stack([low, high])
