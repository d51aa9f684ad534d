"""Count points in bins, batch by batch: the numerical kernel of the histogram, NumPy only.

:func:`count_points` assigns every value to the same bin as ``numpy.histogramdd``, but accepts the
points in blocks of any size, at the same cost per point. Each batch of rows is copied, column by
column, into a *tile* that fits a core's cache. Each column of the tile is then binned, the bin
numbers of a row are combined to one flat number, and the flat numbers are counted. All scratch
arrays are allocated once.

Equally wide bins are found exactly, without a search::

    t(x) = (x - low) * scale            in floating point, with rounding errors
    edges      e0 ............ e1 ............ e2 ............ e3
    t(edges)   0.0             1.0000000002    1.9999999999    3.0

``t`` is monotonic, rounding included. So if the edges land within ``margin`` of the integers, an
``x`` with ``k + margin < t(x) < k + 1 - margin`` lies between ``e_k`` and ``e_{k+1}`` in spite of
rounding: its bin is ``floor(t(x))``. If a value of a tile's column does not satisfy this (it is
on an edge, out of range, or NaN), every value of that column is compared with its nearest edge
instead. Bins of other widths are found with ``searchsorted``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter import InvalidArgumentError, batches
from spliter_apps.histogram.blocks import DATE_KINDS, block_members, weights_column, without_frames
from spliter_apps.histogram.edges import check_edges

Column: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float64]

TILE_BYTES = 2**20
"""Approximate total size of the scratch arrays: the level-2 cache of one core."""

MIN_MARGIN = 2.0**-40
"""Margin around integers if the edges land on them exactly: allows for rounding in
``t - floor(t)``; only one random value in 10^12 falls into it."""

MAX_MARGIN = 2.0**-5
"""With a larger margin the bins are treated as unequal. Must be below 1/2, so that the nearest
edge of a value bounds its bin."""

FLOAT_INTEGERS = 2**53
"""Integers below this are exact in float64."""


@dataclass(frozen=True, eq=False)
class BinAxis:
    """The bins of one column.

    edges (ndarray, shape (nbins + 1,)): Edges of a real dtype or dates, never decreasing.
    edges64 (ndarray of float64, shape (nbins + 1,)): The edges in float64.
    scale, margin: See the module's docstring; `scale` is 0 if the bins are not equally wide.
    """

    edges: Column
    edges64: Floats
    scale: float
    margin: float

    @classmethod
    def of(cls, edges: Column) -> BinAxis:
        """Analyse the edges of a column once, for all tiles."""
        # Extended precision may overflow float64; then the edges are used in their own dtype.
        with np.errstate(all="ignore"):
            edges64 = edges.astype(np.float64)
        is_date = edges.dtype.kind in DATE_KINDS
        scale, margin = (0.0, 0.0) if is_date else _equal_width(edges64)
        return cls(edges, edges64, scale, margin)

    @property
    def nbins(self) -> int:
        """Number of bins."""
        return len(self.edges) - 1

    def compares_in_float64(self, dtype: np.dtype[Any]) -> bool:
        """Return whether NumPy compares values of `dtype` with the edges in float64, or exactly.

        If so, the values may be converted in advance. False for extended precision, dates, and
        integers with integer edges too large for float64.
        """
        kinds = {dtype.kind, self.edges.dtype.kind}
        if kinds & set(DATE_KINDS):
            return False
        if "f" in kinds:
            return np.result_type(dtype, self.edges.dtype).itemsize <= np.float64().itemsize
        return all(abs(int(edge)) < FLOAT_INTEGERS for edge in self.edges[[0, -1]])


def _equal_width(edges: Floats) -> tuple[float, float]:
    """Return scale and margin of equally wide bins, (0, 0) if they are not."""
    with np.errstate(all="ignore"):
        scale = (len(edges) - 1) / (edges[-1] - edges[0])
        off = np.abs((edges - edges[0]) * scale - np.arange(len(edges)))
        margin = max(2 * float(off.max()), MIN_MARGIN)
    usable = math.isfinite(scale) and scale > 0 and margin <= MAX_MARGIN
    return (float(scale), margin) if usable else (0.0, 0.0)


def _check_dates(axes: Sequence[BinAxis], dtypes: Sequence[np.dtype[Any]]) -> None:
    """Reject comparisons of dates with numbers or durations."""
    for at, (axis, dtype) in enumerate(zip(axes, dtypes, strict=True)):
        kinds = {dtype.kind, axis.edges.dtype.kind}
        if kinds & set(DATE_KINDS) and len(kinds) > 1:
            raise InvalidArgumentError(
                f"column {at} has dtype {dtype} and edges of dtype {axis.edges.dtype}; dates "
                "(datetime64) need edges that are dates, durations (timedelta64) edges that are "
                "durations"
            )


def count_points(
    blocks: Iterable[Any],
    edges: Sequence[Column],
    weighted: bool = False,
    tile_rows: int | None = None,
) -> Floats:
    """Count the points of blocks in bins.

    Every value is assigned to the same bin as in ``numpy.histogramdd``: bins include their left
    edge, the last one also its right edge; rows with a value out of range, infinite or NaN are not
    counted. Counts are exact; sums of weights are bitwise equal if the blocks come in row order.

    Blocks are as for :func:`spliter_apps.histogram.blocks.block_members`; if `weighted`, tuples
    whose last element is one real weight per row. `tile_rows` are binned at once; by default so
    many that the scratch arrays take about 1 MiB.

    Notes
    -----
    Memory: the histogram, 1 MiB, and one batch.

    Examples
    --------
    >>> import numpy as np
    >>> count_points(
    ...     [np.array([[0.0], [0.5], [1.0], [2.0], [np.nan]])], [np.array([0.0, 1.0, 2.0])]
    ... )
    array([2., 2.])
    """
    accumulator = _Accumulator(edges, weighted, tile_rows)
    for batch in batches(map(without_frames, blocks), rows=accumulator.rows):
        accumulator.add(batch)
    return accumulator.counts()


class _Accumulator:
    """Counts batches of at most `rows` points; not thread-safe."""

    def __init__(self, edges: Sequence[Column], weighted: bool, tile_rows: int | None) -> None:
        self._axes = tuple(BinAxis.of(check_edges(of, at)) for at, of in enumerate(edges))
        if not self._axes:
            raise InvalidArgumentError("a histogram needs the edges of at least one column")
        self._weighted = weighted
        self._shape = tuple(axis.nbins for axis in self._axes)
        self._total = math.prod(self._shape)
        if self._total >= np.iinfo(np.intp).max // np.float64().itemsize:
            raise InvalidArgumentError(
                f"an array cannot hold {' x '.join(map(str, self._shape))} bins; use fewer bins or "
                "fewer columns"
            )
        # One extra count for the rows that are in no bin.
        self._counts = np.zeros(self._total + 1)
        ndim = len(self._axes)
        # Bytes per row of all the arrays below.
        row_bytes = 8 * (ndim + 4) + 2
        # A multiple of 64 rows: whole cache lines, for vector instructions.
        self.rows = tile_rows or max(TILE_BYTES // row_bytes // 64 * 64, 512)
        self._tile = np.empty((ndim, self.rows))
        self._scaled, self._bins, self._flat = np.empty((3, self.rows))
        self._index = np.empty(self.rows, dtype=np.intp)
        self._inside, self._flags = np.empty((2, self.rows), dtype=np.bool_)

    def add(self, batch: Any) -> None:
        """Count the rows of a batch."""
        weights = None
        if self._weighted:
            batch, weights = batch[:-1], weights_column(batch[-1])
        members = block_members(batch)
        dtypes = [member.dtype for member in members for _ in range(member.shape[1])]
        if len(dtypes) != len(self._axes):
            raise InvalidArgumentError(
                "a block of points must have as many columns as range has pairs, or bins has "
                f"members ({len(self._axes)}), got {len(dtypes)}"
            )
        _check_dates(self._axes, dtypes)
        if all(map(BinAxis.compares_in_float64, self._axes, dtypes)):
            tile = self._tile[:, : len(members[0])]
            first = 0
            for member in members:
                last = first + member.shape[1]
                tile[first:last] = member.T
                first = last
            self._count(tile, weights, converted=True)
        else:
            columns = [column for member in members for column in member.T]
            self._count(columns, weights, converted=False)

    def counts(self) -> Floats:
        """Return the histogram of all rows so far."""
        return self._counts[: self._total].reshape(self._shape)

    def _count(
        self, columns: Sequence[Column] | Floats, weights: Column | None, *, converted: bool
    ) -> None:
        """Bin every column, combine the bins of each row in C order, and count."""
        rows = len(columns[0])
        flat, index = self._flat[:rows], self._index[:rows]
        inside: npt.NDArray[np.bool_] | None = None
        # Infinities and NaNs cause invalid operations before they are found to be out of range,
        # and NumPy sums infinite weights without a warning.
        with np.errstate(all="ignore"):
            for number, (axis, column) in enumerate(zip(self._axes, columns, strict=True)):
                bins = self._bins[:rows] if number else flat
                if not converted:
                    found = self._search(axis.edges, column, bins)
                elif axis.scale:
                    found = self._scale(axis, column, bins)
                else:
                    found = self._search(axis.edges64, column, bins)
                if found is not None:
                    inside = found.copy() if inside is None else np.logical_and(inside, found)
                if number:
                    np.multiply(flat, axis.nbins, out=flat)
                    np.add(flat, bins, out=flat)
            np.copyto(index, flat, casting="unsafe")
            if inside is not None:
                index[~inside] = self._total
            np.add.at(self._counts, index, 1.0 if weights is None else weights)

    def _scale(self, axis: BinAxis, column: Floats, bins: Floats) -> npt.NDArray[np.bool_] | None:
        """Bin values into equally wide bins; return the mask of those inside, None if all are."""
        scaled = self._scaled[: len(column)]
        np.subtract(column, axis.edges64[0], out=scaled)
        np.multiply(scaled, axis.scale, out=scaled)
        np.floor(scaled, out=bins)
        np.subtract(scaled, bins, out=scaled)
        if (
            bins.min() >= 0
            and bins.max() < axis.nbins
            and scaled.min() > axis.margin
            and scaled.max() < 1 - axis.margin
        ):
            return None
        return self._compare(axis, column, bins)

    def _compare(self, axis: BinAxis, column: Floats, bins: Floats) -> npt.NDArray[np.bool_] | None:
        """Bin values by comparing each with its nearest edge."""
        rows = len(column)
        nearest, index, flags = self._scaled[:rows], self._index[:rows], self._flags[:rows]
        np.subtract(column, axis.edges64[0], out=bins)
        np.multiply(bins, axis.scale, out=bins)
        np.rint(bins, out=bins)
        # Values outside get an arbitrary valid index here.
        np.copyto(index, bins, casting="unsafe")
        np.take(axis.edges64, index, out=nearest, mode="clip")
        np.less(column, nearest, out=flags)
        np.subtract(bins, flags, out=bins)
        # Values on the last edge.
        np.minimum(bins, axis.nbins - 1, out=bins)
        inside = self._inside[:rows]
        np.greater_equal(column, axis.edges64[0], out=inside)
        np.less_equal(column, axis.edges64[-1], out=flags)
        np.logical_and(inside, flags, out=inside)
        return None if inside.all() else inside

    def _search(self, edges: Column, column: Column, bins: Floats) -> npt.NDArray[np.bool_] | None:
        """Bin values among arbitrary edges, with the same two steps as NumPy."""
        after = np.searchsorted(edges, column, side="right")
        after[column == edges[-1]] -= 1
        np.subtract(after, 1, out=bins, casting="unsafe")
        inside = (bins >= 0) & (bins < len(edges) - 1)
        return None if inside.all() else inside
