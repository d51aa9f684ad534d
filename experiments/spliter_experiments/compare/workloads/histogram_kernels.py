"""The numerics of the histogram that every way runs on its blocks; no Dask, the floor has none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter_apps.histogram.kernel import HistogramAccumulator

Floats: TypeAlias = npt.NDArray[np.float64]
Counts: TypeAlias = npt.NDArray[Any]
Edges: TypeAlias = tuple[Floats, ...]


def count_blocks(blocks: Iterable[Floats], edges: Edges) -> Counts:
    """Count the points of blocks in bins, shape (bins of column 0, of column 1, ...)."""
    accumulator = HistogramAccumulator(edges)
    for block in blocks:
        accumulator.add(block)
    return accumulator.counts()


def count_block(block: Floats, edges: Edges) -> Counts:
    """Count the points of one block."""
    return count_blocks((block,), edges)


def add_counts(partials: Sequence[Counts]) -> Counts:
    """Add up partial counts into a new array."""
    total = partials[0].copy()
    for partial in partials[1:]:
        total += partial
    return total


def equal_bins(bounds: Floats, bins: int) -> Edges:
    """Cut the range of each column into equal bins, as ``numpy.histogramdd`` does.

    Parameters
    ----------
    bounds : ndarray of float64, shape (2, columns)
        Lowest and highest value.
    bins : int
        Bins per column.
    """
    return tuple(np.linspace(low, high, bins + 1) for low, high in widen(bounds).T)


def widen(bounds: Floats) -> Floats:
    """Give a column of one single value a range around it, as ``numpy.histogramdd`` does.

    >>> widen(np.array([[0.0, 3.0], [1.0, 3.0]]))
    array([[0. , 2.5],
           [1. , 3.5]])
    """
    margin = np.where(bounds[0] == bounds[1], 0.5, 0.0)
    return np.stack([bounds[0] - margin, bounds[1] + margin])
