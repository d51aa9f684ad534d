"""Interfaces of points and labels, and generators of both.

A source is small to pickle and is read by rows wherever it is sent: at the workers and in the plain
processes of the floor. The content of a row never depends on how rows are grouped into blocks, so
results for different block sizes can be compared.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter_experiments.compare.data.columns import Columns
from spliter_experiments.harness.errors import InputError

Floats: TypeAlias = npt.NDArray[np.float64]
Codes: TypeAlias = npt.NDArray[np.int64]

PHILOX_WORDS = 4
"""64-bit numbers per step of Philox's counter."""

BLOB_DISTANCE = 3.0
"""Mean distance of generated blobs from the origin, each with standard deviation 1 per axis: small
enough that the blobs overlap and no classifier is perfect."""


class Rows(Protocol):
    """A source of rows: points, or labels aligned with them."""

    @property
    def origin(self) -> str:
        """Name of the source, for messages."""

    @property
    def rows(self) -> int:
        """Number of rows."""

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Return rows `start` to `stop`, in memory, along axis 0."""


class Points(Rows, Protocol):
    """A table of numbers, read by rows; hashable, so that rows read can be cached."""

    def __hash__(self) -> int:
        """Return equal hashes for equal sources."""

    @property
    def columns(self) -> Columns:
        """Selected columns."""

    def read(self, start: int, stop: int) -> Floats:
        """Return rows `start` to `stop`, shape (stop - start, columns), C order, in memory."""


@dataclass(frozen=True)
class GeneratedPoints:
    """Uniform random points in [0, 1); row contents do not depend on how rows are read.

    Philox is a counter-based generator: setting its counter jumps to any row.

    >>> points = GeneratedPoints(rows=1000, dims=3, seed=1)
    >>> np.array_equal(points.read(0, 1000)[17:400], points.read(17, 400))
    True
    """

    rows: int
    dims: int
    seed: int

    @property
    def origin(self) -> str:
        return "generated points"

    @property
    def columns(self) -> Columns:
        return Columns.numbered(self.dims)

    def read(self, start: int, stop: int) -> Floats:
        first = start * self.dims
        stream = np.random.Philox(key=self.seed)
        stream.advance(first // PHILOX_WORDS)
        generator = np.random.Generator(stream)
        generator.random(first % PHILOX_WORDS)
        return generator.random((stop - start, self.dims))


@dataclass(frozen=True)
class GeneratedBlobs:
    """Normally distributed points around centres, derived from :class:`GeneratedPoints`.

    Centres alternate between two classes, and the blobs overlap, so the classes are not separable.

    >>> blobs = GeneratedBlobs(rows=1000, dims=3, seed=1)
    >>> np.array_equal(blobs.read(0, 1000)[17:400], blobs.read(17, 400))
    True
    >>> np.bincount(blobs.classes().read(0, 1000)[:, 0].astype(int)).min() > 400
    np.True_
    """

    rows: int
    dims: int
    seed: int
    blobs: int = 8

    @property
    def origin(self) -> str:
        return "generated blobs"

    @property
    def columns(self) -> Columns:
        return Columns.numbered(self.dims)

    @property
    def _uniform(self) -> GeneratedPoints:
        return GeneratedPoints(self.rows, self.dims + 1, self.seed)

    def read(self, start: int, stop: int) -> Floats:
        uniform = self._uniform.read(start, stop)
        # The normal quantile of zero is infinite.
        from scipy.special import ndtri

        noise = ndtri(np.maximum(uniform[:, :-1], np.finfo(np.float64).tiny))
        centres = np.random.default_rng(self.seed).normal(size=(self.blobs, self.dims))
        distance = BLOB_DISTANCE / np.sqrt(self.dims)
        return np.asarray(noise + distance * centres[self._numbers(uniform)], dtype=np.float64)

    def classes(self) -> BlobClasses:
        return BlobClasses(self.rows, self.dims, self.seed, self.blobs)

    def _numbers(self, uniform: Floats) -> Codes:
        return (uniform[:, -1] * self.blobs).astype(np.int64)


@dataclass(frozen=True)
class BlobClasses(GeneratedBlobs):
    """Classes of generated blobs, 0 or 1, as a column of numbers."""

    @property
    def columns(self) -> Columns:
        return Columns.numbered(1)

    def read(self, start: int, stop: int) -> Floats:
        numbers = self._numbers(self._uniform.read(start, stop))
        return (numbers % 2).astype(np.float64)[:, np.newaxis]


@dataclass(frozen=True)
class Labels:
    """Classes of points as numbers from 0, read from a column of class values."""

    points: Points
    classes: tuple[float, ...]

    @property
    def origin(self) -> str:
        return self.points.origin

    @property
    def rows(self) -> int:
        return self.points.rows

    def read(self, start: int, stop: int) -> Codes:
        values = self.points.read(start, stop)[:, 0]
        codes: Codes = np.searchsorted(self.classes, values).astype(np.int64)
        return codes


@dataclass(frozen=True)
class RowNumbers:
    """Row indexes from 0, as a source aligned with points."""

    rows: int

    @property
    def origin(self) -> str:
        return "row numbers"

    def read(self, start: int, stop: int) -> Codes:
        return np.arange(start, stop, dtype=np.int64)


@dataclass(frozen=True)
class Dataset:
    """Points and, if the app needs them, labels and held-out rows.

    `like` is an empty block of the points, if these are not rows of floats. If there are
    `query_chunks`, held-out rows are loaded as queries, in blocks of so many rows.
    """

    points: Points
    labels: Labels | None = None
    held_out: Points | None = None
    held_out_labels: Labels | None = None
    like: npt.NDArray[Any] | None = None
    query_chunks: tuple[int, ...] = ()


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


NO_LABELS = np.empty(0, dtype=np.int64)
"""An empty block of labels, which shows their dtype."""


def no_points(points: Points) -> Floats:
    """Return an empty block of points, shape (0, columns)."""
    return np.empty((0, len(points.columns)))


def cut_rows(rows: int, nblocks: int) -> tuple[int, ...]:
    """Return the sizes of blocks whose row counts differ by at most one.

    >>> cut_rows(10, 4)
    (3, 3, 2, 2)
    """
    if rows < nblocks:
        raise InputError(
            f"{rows} rows cannot be cut into {nblocks} blocks; take fewer blocks, or more --rows"
        )
    size, larger = divmod(rows, nblocks)
    return (size + 1,) * larger + (size,) * (nblocks - larger)


def row_starts(sizes: Sequence[int]) -> list[int]:
    """Return the index of the first row of each block.

    >>> row_starts((3, 3, 2))
    [0, 3, 6]
    """
    return [end - size for end, size in zip(itertools.accumulate(sizes), sizes, strict=True)]
