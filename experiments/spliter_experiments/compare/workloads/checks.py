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


def bounds_of(engine: Engine, array: Any) -> Floats:
    """Return the lowest and highest value of each column, shape (2, columns)."""
    low, high = zip(*_on_blocks(engine, bounds_of_block, array), strict=True)
    return np.stack([np.min(low, axis=0), np.max(high, axis=0)])


def check_finite(engine: Engine, points: Points, array: Any) -> None:
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


def bounds_of_block(block: Floats) -> tuple[Floats, Floats]:
    return block.min(axis=0), block.max(axis=0)
