"""Shuffle the rows of a source, or hold some of them out.

The results are sources too: their rows do not depend on how they are cut into blocks.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from spliter_experiments.compare.data.columns import Columns
from spliter_experiments.compare.data.sources import Codes, Floats, Points
from spliter_experiments.harness.errors import InputError


@dataclass(frozen=True)
class Arranged:
    """The rows of a source in another arrangement, with the name and columns of the source."""

    points: Points

    @property
    def origin(self) -> str:
        return self.points.origin

    @property
    def columns(self) -> Columns:
        return self.points.columns


@dataclass(frozen=True)
class Shuffled(Arranged):
    """The rows of a source in random order.

    Reading any rows loads the whole source into memory.

    Examples
    --------
    >>> from spliter_experiments.compare.data.sources import GeneratedPoints
    >>> points = GeneratedPoints(rows=9, dims=1, seed=0)
    >>> mixed = Shuffled(points, seed=1).read(0, 9)
    >>> sorted(mixed[:, 0]) == sorted(points.read(0, 9)[:, 0])
    True
    """

    seed: int

    @property
    def rows(self) -> int:
        return self.points.rows

    def read(self, start: int, stop: int) -> Floats:
        return _all_rows(self.points)[_order(self.points.rows, self.seed)[start:stop]]


@functools.lru_cache(maxsize=2)
def _all_rows(points: Points) -> Floats:
    return points.read(0, points.rows)


@functools.lru_cache(maxsize=1)
def _order(rows: int, seed: int) -> Codes:
    return np.random.default_rng(seed).permutation(rows)


@dataclass(frozen=True)
class RowRange(Arranged):
    """Rows `first` to `last` of a source."""

    first: int
    last: int

    @property
    def rows(self) -> int:
        return self.last - self.first

    def read(self, start: int, stop: int) -> Floats:
        return self.points.read(self.first + start, self.first + stop)


def hold_out(points: Points, count: int) -> tuple[RowRange, RowRange]:
    """Split the rows of a source into training rows and the last `count` rows, for tests.

    Examples
    --------
    >>> from spliter_experiments.compare.data.sources import GeneratedPoints
    >>> rest, held = hold_out(GeneratedPoints(rows=10, dims=1, seed=0), 3)
    >>> rest.rows, held.rows
    (7, 3)
    """
    if not 0 < count < points.rows:
        raise InputError(
            f"{count} of {points.rows} rows of {points.origin} cannot be held out; there must be "
            "1 at least, and rows left"
        )
    left = points.rows - count
    return RowRange(points, 0, left), RowRange(points, left, points.rows)
