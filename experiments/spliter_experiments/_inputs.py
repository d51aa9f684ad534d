"""Where the points come from: generated ones, and any input repeated up to a size.

A source of points is cheap to pickle and is read by rows, wherever it is sent: at the workers and
in the plain processes of the floor. What a row holds never depends on how rows are grouped into
blocks, so results of different blockings can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter_experiments._columns import Columns
from spliter_experiments._errors import OptionError

Floats: TypeAlias = npt.NDArray[np.float64]

PHILOX_WORDS = 4
"""64-bit numbers that one step of Philox's counter yields."""


class Points(Protocol):
    """A table of numbers that is read by rows."""

    @property
    def origin(self) -> str:
        """What the user calls it."""

    @property
    def rows(self) -> int:
        """How many rows it has."""

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
class TiledPoints:
    """The rows of a source again and again, up to a number of rows.

    Examples
    --------
    >>> TiledPoints(GeneratedPoints(rows=2, dims=1, seed=0), rows=5).read(1, 5).shape
    (4, 1)
    """

    points: Points
    rows: int

    @property
    def origin(self) -> str:
        """What the user calls it."""
        return f"{self.points.origin}, repeated"

    @property
    def columns(self) -> Columns:
        """Those of the source."""
        return self.points.columns

    def read(self, start: int, stop: int) -> Floats:
        """Return rows `start` to `stop` of the endless repetition."""
        period = self.points.rows
        pieces = []
        while start < stop:
            offset = start % period
            length = min(period - offset, stop - start)
            pieces.append(self.points.read(offset, offset + length))
            start += length
        return np.concatenate(pieces) if pieces else self.points.read(0, 0)
