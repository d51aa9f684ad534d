"""What points and labels are, and those that are generated.

A source of points is cheap to pickle and is read by rows, wherever it is sent: at the workers and
in the plain processes of the floor. What a row holds never depends on how rows are grouped into
blocks, so results of different blockings can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter_experiments.compare.data.columns import Columns
from spliter_experiments.harness.errors import OptionError

Floats: TypeAlias = npt.NDArray[np.float64]
Codes: TypeAlias = npt.NDArray[np.int64]

PHILOX_WORDS = 4
"""64-bit numbers that one step of Philox's counter yields."""

BLOB_DISTANCE = 3.0
"""How far generated blobs are from the origin, on average, where each has a deviation of 1 along
every axis: near enough that the best classifier is wrong now and then."""


class Rows(Protocol):
    """Whatever has rows that can be read: points, or labels that go with them."""

    @property
    def origin(self) -> str:
        """What the user calls it."""

    @property
    def rows(self) -> int:
        """How many rows it has."""

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Return rows `start` to `stop`, in memory, the rows along axis 0."""


class Points(Rows, Protocol):
    """A table of numbers that is read by rows; hashable, so that what was read can be kept."""

    def __hash__(self) -> int:
        """Return the same for equal ones."""

    @property
    def columns(self) -> Columns:
        """The columns that are read."""

    def read(self, start: int, stop: int) -> Floats:
        """Return rows `start` to `stop`, shape (stop - start, columns), C order, in memory."""


@dataclass(frozen=True)
class GeneratedPoints:
    """Uniform points in [0, 1), the same rows however they are cut.

    Philox is a counter-based generator: setting its counter reaches any row at once.

    Examples
    --------
    >>> points = GeneratedPoints(rows=1000, dims=3, seed=1)
    >>> np.array_equal(points.read(0, 1000)[17:400], points.read(17, 400))
    True
    """

    rows: int
    dims: int
    seed: int

    def __post_init__(self) -> None:
        if self.rows < 1 or self.dims < 1:
            raise OptionError(
                f"--rows and --dims must be at least 1, got {self.rows} and {self.dims}"
            )
        if self.seed < 0:
            raise OptionError(f"--seed must not be negative, got {self.seed}")

    @property
    def origin(self) -> str:
        """What the user calls it."""
        return "generated points"

    @property
    def columns(self) -> Columns:
        """All of them, by number."""
        return Columns.numbered(self.dims)

    def read(self, start: int, stop: int) -> Floats:
        """Generate rows `start` to `stop`."""
        first = start * self.dims
        stream = np.random.Philox(key=self.seed)
        stream.advance(first // PHILOX_WORDS)
        generator = np.random.Generator(stream)
        generator.random(first % PHILOX_WORDS)
        return generator.random((stop - start, self.dims))


@dataclass(frozen=True)
class GeneratedBlobs:
    """Points around centres, normally distributed, made of :class:`GeneratedPoints`.

    The centres belong to two classes in turn, and the blobs overlap: no line parts the classes,
    and nothing parts them wholly.

    Examples
    --------
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
        """What the user calls it."""
        return "generated blobs"

    @property
    def columns(self) -> Columns:
        """All of them, by number."""
        return Columns.numbered(self.dims)

    @property
    def _uniform(self) -> GeneratedPoints:
        return GeneratedPoints(self.rows, self.dims + 1, self.seed)

    def read(self, start: int, stop: int) -> Floats:
        """Generate rows `start` to `stop`."""
        uniform = self._uniform.read(start, stop)
        # Zero has no quantile.
        from scipy.special import ndtri

        noise = ndtri(np.maximum(uniform[:, :-1], np.finfo(np.float64).tiny))
        centres = np.random.default_rng(self.seed).normal(size=(self.blobs, self.dims))
        distance = BLOB_DISTANCE / np.sqrt(self.dims)
        return np.asarray(noise + distance * centres[self._numbers(uniform)], dtype=np.float64)

    def classes(self) -> BlobClasses:
        """Return the classes of the points, 0 and 1."""
        return BlobClasses(self)

    def class_numbers(self, start: int, stop: int) -> Floats:
        """Return the classes of some rows, shape (stop - start, 1)."""
        uniform = self._uniform.read(start, stop)
        return (self._numbers(uniform) % 2).astype(np.float64)[:, np.newaxis]

    def _numbers(self, uniform: Floats) -> Codes:
        """Tell to which blob rows belong."""
        return (uniform[:, -1] * self.blobs).astype(np.int64)


@dataclass(frozen=True)
class BlobClasses:
    """The classes of generated blobs, as a column of numbers."""

    blobs: GeneratedBlobs

    @property
    def origin(self) -> str:
        """What the user calls it."""
        return self.blobs.origin

    @property
    def rows(self) -> int:
        """As many as there are points."""
        return self.blobs.rows

    @property
    def columns(self) -> Columns:
        """One."""
        return Columns.numbered(1)

    def read(self, start: int, stop: int) -> Floats:
        """Return some of them, shape (stop - start, 1)."""
        return self.blobs.class_numbers(start, stop)


@dataclass(frozen=True)
class Labels:
    """Classes of points as numbers from 0 on, read from a column of values."""

    points: Points
    classes: tuple[float, ...]

    @property
    def origin(self) -> str:
        """What the user calls it."""
        return self.points.origin

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.points.rows

    def read(self, start: int, stop: int) -> Codes:
        """Return the numbers of the classes of some rows, shape (stop - start,)."""
        values = self.points.read(start, stop)[:, 0]
        codes: Codes = np.searchsorted(self.classes, values).astype(np.int64)
        return codes


@dataclass(frozen=True)
class RowNumbers:
    """The numbers of rows, from 0 on: what goes with points that have to know theirs."""

    rows: int

    @property
    def origin(self) -> str:
        """What the user would call it."""
        return "row numbers"

    def read(self, start: int, stop: int) -> Codes:
        """Return some of them."""
        return np.arange(start, stop, dtype=np.int64)


@dataclass(frozen=True)
class Dataset:
    """Points for the cluster and, if an app needs them, labels and rows held out."""

    points: Points
    labels: Labels | None = None
    held_out: Points | None = None
    held_out_labels: Labels | None = None
