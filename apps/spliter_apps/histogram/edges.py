"""Compute bin edges by NumPy's rules from bins, ranges and the extent of the data."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter import InvalidArgumentError
from spliter_apps._differences import check_same_number
from spliter_apps.histogram.blocks import DATE_KINDS, REAL_KINDS, Member

Edges: TypeAlias = tuple[npt.NDArray[Any], ...]

FOLDED_ELEMENTS = 2048
"""Elements per row of the folded array in which extremes are searched; rows of a few elements
would make slow inner loops."""


def resolve_edges(
    bins: Any,
    range_: Any,
    ndim: int,
    data_min: Sequence[Any] | None = None,
    data_max: Sequence[Any] | None = None,
) -> Edges:
    """Return the bin edges of every column, as ``numpy.histogramdd`` chooses them.

    `data_min` and `data_max` are the extremes of each column in its own dtype, for columns without
    a range; ``None`` if there are no data, for which NumPy uses 0 and 1. Given edges keep their
    dtype; others are float64, or float32 or float16 if the extent of the data is.

    Examples
    --------
    >>> import numpy as np
    >>> resolve_edges([2, [0, 5, 6]], [(0, 1), None], 2)
    (array([0. , 0.5, 1. ]), array([0, 5, 6]))
    """
    column_bins = _one_per_column(bins, ndim)
    column_ranges = _ranges(range_, ndim)
    edges = []
    for at in range(ndim):
        if _is_scalar(column_bins[at], at):
            count = _bin_count(column_bins[at], at)
            extent = None
            if data_min is not None and data_max is not None:
                extent = data_min[at], data_max[at]
            low, high = _outer_edges(column_ranges[at], extent, at)
            # Beyond the largest float the edges become NaN, which the check refuses.
            with np.errstate(all="ignore"):
                of_column: npt.NDArray[Any] = np.linspace(low, high, count + 1)
        else:
            of_column = column_bins[at]
        edges.append(check_edges(of_column, at))
    return tuple(edges)


def columns_without_range(bins: Any, range_: Any, ndim: int) -> tuple[int, ...]:
    """Return the columns whose edges depend on the data: a number of bins, and no range.

    Raises all errors of :func:`resolve_edges` that do not depend on the data.
    """
    column_bins = _one_per_column(bins, ndim)
    column_ranges = _ranges(range_, ndim)
    without = tuple(
        at for at in range(ndim) if column_ranges[at] is None and _is_scalar(column_bins[at], at)
    )
    # Raise errors in all arguments before a pass over the data.
    resolve_edges(bins, range_, ndim)
    return without


def check_edges(edges: Any, column: int) -> npt.NDArray[Any]:
    """Return the edges of one column as an array in their own dtype.

    They never decrease, but may be infinite, or equal.
    """
    try:
        checked = np.asarray(edges)
    except ValueError as error:
        raise InvalidArgumentError(f"`bins[{column}]` is not an array of edges: {error}") from error
    if checked.ndim != 1:
        raise InvalidArgumentError(f"`bins[{column}]` must be a scalar or a 1-D array of edges")
    if checked.dtype.kind not in REAL_KINDS + DATE_KINDS or not len(checked):
        raise InvalidArgumentError(
            f"`bins[{column}]` must be at least one real number or NumPy date, got {len(checked)} "
            f"of dtype {checked.dtype}"
        )
    if np.isnan(checked).any():
        raise InvalidArgumentError(
            f"some edges of column {column} are NaN or NaT; remove them, or pass a narrower range"
        )
    if np.any(checked[:-1] > checked[1:]):
        raise InvalidArgumentError(
            f"`bins[{column}]` must be monotonically increasing, when an array"
        )
    return checked


def finish(counts: npt.NDArray[np.float64], edges: Edges, density: bool) -> npt.NDArray[np.float64]:
    """Convert counts to a density if requested; NaN, with NumPy's warning, if all are zero.

    Examples
    --------
    >>> import numpy as np
    >>> finish(np.array([1.0, 3.0]), (np.array([0.0, 1.0, 3.0]),), density=True)
    array([0.25 , 0.375])
    """
    if not density:
        return counts
    # In NumPy's order of operations, for bitwise equal results.
    result: npt.NDArray[np.float64] = counts
    for at, of_column in enumerate(edges):
        shape = [1] * counts.ndim
        shape[at] = -1
        result = result / np.diff(of_column).reshape(shape)
    return result / float(counts.sum())


def check_density(edges: Edges) -> None:
    """Reject a density over dates, which ``numpy.histogramdd`` does not compute."""
    for at, of_column in enumerate(edges):
        if of_column.dtype.kind in DATE_KINDS:
            raise InvalidArgumentError(
                f"density=True needs numeric edges, and those of column {at} are "
                f"{of_column.dtype}; divide the counts by numpy.diff(edges[{at}]) in a unit of "
                "your choice"
            )


@dataclass(frozen=True)
class Extent:
    """Minimum and maximum of each column.

    ncolumns: Number of columns.
    low, high: One NumPy scalar per column, in the column's dtype; NaN if the column contains NaN;
        empty if there are no rows.
    """

    ncolumns: int
    low: tuple[Any, ...] = ()
    high: tuple[Any, ...] = ()

    @classmethod
    def of(cls, members: Sequence[Member]) -> Extent:
        """Return the extent of one block, given its columns.

        Examples
        --------
        >>> import numpy as np
        >>> Extent.of([np.array([[1, 2], [0, 5]])]).high
        (np.int64(1), np.int64(5))
        """
        ncolumns = sum(member.shape[1] for member in members)
        if not ncolumns or not len(members[0]):
            return cls(ncolumns)
        return cls(
            ncolumns,
            tuple(value for member in members for value in _reduced(np.minimum, member)),
            tuple(value for member in members for value in _reduced(np.maximum, member)),
        )

    def merged(self, other: Extent) -> Extent:
        """Return the extent of the combined rows; NaN for columns in which either is NaN."""
        check_same_number(self.ncolumns, other.ncolumns)
        if not self.low or not other.low:
            return self if self.low else other
        return Extent(
            self.ncolumns,
            tuple(map(np.minimum, self.low, other.low)),
            tuple(map(np.maximum, self.high, other.high)),
        )


def _reduced(extreme: np.ufunc, member: Member) -> Sequence[Any]:
    """Reduce an array with at least one row along axis 0."""
    rows, ndim = member.shape
    together = FOLDED_ELEMENTS // max(ndim, 1)
    if not member.flags.c_contiguous or together < 2 or rows < 2 * together:
        return [extreme.reduce(column) for column in member.T]
    # Short rows make slow loops: fold hundreds of rows into one before reducing.
    whole = rows - rows % together
    folded = extreme.reduce(member[:whole].reshape(-1, together * ndim), axis=0)
    extremes = extreme.reduce(folded.reshape(together, ndim), axis=0)
    if whole < rows:
        extremes = extreme(extremes, extreme.reduce(member[whole:], axis=0))
    return list(extremes)


def _one_per_column(bins: Any, ndim: int) -> Sequence[Any]:
    if isinstance(bins, str):
        raise InvalidArgumentError(f"`bins` must be numbers or edges, got {bins!r}")
    if (count := length_of(bins)) not in {None, ndim}:
        raise InvalidArgumentError(
            f"the dimension of `bins` ({count}) must be equal to the number of columns ({ndim})"
        )
    return [bins] * ndim if count is None else list(bins)


def _ranges(range_: Any, ndim: int) -> Sequence[Any]:
    if range_ is not None and length_of(range_) != ndim:
        raise InvalidArgumentError(
            f"the range argument must have one entry per column ({ndim}), got {range_!r}"
        )
    return [None] * ndim if range_ is None else list(range_)


def length_of(value: Any) -> int | None:
    """Return the length of a value, None if it has none."""
    try:
        return len(value)
    except TypeError:
        return None


def _is_scalar(bins: Any, column: int) -> bool:
    if isinstance(bins, str):
        raise InvalidArgumentError(f"`bins[{column}]` must be a number or edges, got {bins!r}")
    try:
        return np.ndim(bins) == 0
    except ValueError as error:
        raise InvalidArgumentError(f"`bins[{column}]` is not an array of edges: {error}") from error


def _bin_count(bins: Any, column: int) -> int:
    try:
        count = operator.index(bins)
    except TypeError as error:
        raise InvalidArgumentError(
            f"`bins[{column}]` must be an integer, when a scalar, got {bins!r}"
        ) from error
    if count < 1:
        raise InvalidArgumentError(f"`bins[{column}]` must be positive, when an integer")
    return count


def _outer_edges(chosen: Any, extent: tuple[Any, Any] | None, column: int) -> tuple[Any, Any]:
    """Return the outer edges: the range if given, else the extent of the data, else 0 and 1."""
    if chosen is not None:
        low, high = _check_range(chosen, column)
    elif extent is None:
        low, high = 0, 1
    else:
        low, high = extent
        _refuse_dates(low, column)
        if not (np.isfinite(low) and np.isfinite(high)):
            raise InvalidArgumentError(
                f"autodetected range of [{low}, {high}] in column {column} is not finite; pass "
                "a range"
            )
    if low == high:
        return low - 0.5, high + 0.5
    return low, high


def _refuse_dates(value: Any, column: int) -> None:
    if np.asarray(value).dtype.kind in DATE_KINDS:
        raise InvalidArgumentError(
            f"`bins[{column}]` is a number, and column {column} has dates, which NumPy does not "
            "divide into equal bins; pass the edges, for example numpy.arange('2024-01', "
            "'2025-01', dtype='datetime64[M]')"
        )


def _check_range(chosen: Any, column: int) -> tuple[Any, Any]:
    try:
        low, high = chosen
        _refuse_dates(low, column)
        finite = np.isfinite(low) and np.isfinite(high)
        reversed_ = bool(low > high)
    except InvalidArgumentError:
        raise
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"the range of column {column} must be a pair of numbers or None, got {chosen!r}"
        ) from error
    if reversed_:
        raise InvalidArgumentError(
            f"max must be larger than min in the range of column {column}, got {chosen!r}"
        )
    if not finite:
        raise InvalidArgumentError(f"supplied range of [{low}, {high}] is not finite")
    return low, high
