"""``histogramdd``: NumPy's multidimensional histogram of a distributed collection of points.

One task per partition counts the points of its blocks in place; the partial histograms are then
added. Only these, each as large as the result, cross the network. The numerical code is in
:mod:`spliter_apps.histogram.kernel`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spliter import InvalidArgumentError, Partition, Split, gather, split, task
from spliter_apps._differences import SameColumns
from spliter_apps._results import combine
from spliter_apps._row_values import as_array, block_like, is_in_memory
from spliter_apps.histogram.blocks import block_members
from spliter_apps.histogram.edges import (
    Edges,
    Extent,
    check_density,
    columns_without_range,
    finish,
    length_of,
    resolve_edges,
)
from spliter_apps.histogram.kernel import count_points

BLOCK_ROWS = 2**18
"""Rows per block when an array in memory is cut: enough work for a task."""


def histogramdd(
    sample: Any,
    bins: Any = 10,
    range: Any = None,
    density: bool | None = False,
    weights: Any = None,
) -> tuple[npt.NDArray[np.float64], list[npt.NDArray[Any]]]:
    """Compute the multidimensional histogram of a blocked collection of points.

    The result equals that of ``numpy.histogramdd`` on the whole sample: counts exactly, sums of
    weights up to rounding. Values on an edge, out of range, infinite or NaN are treated as in
    NumPy.

    Parameters
    ----------
    sample : collection of N points with D columns
        One of

        - a blocked collection of shape (N, D), or (N,) for D = 1, that
          :func:`spliter.split` takes: a Dask array or DataFrame in memory, a list of arrays;
        - a *tuple* of such collections with the same blocking, used as columns side by side
          (for example D collections of shape (N,));
        - a :class:`spliter.Split` of any of these, to reuse it over several calls;
        - one array of shape (N, D) in memory or memory-mapped.

        A *list* of arrays is always one collection, whose blocks are the arrays. (NumPy
        treats a list of D arrays as D columns; pass a tuple for that.)
    bins : int, or sequence of D (int or sequence of float), default 10
        Number of bins for all columns, or for each; or the bin edges.
    range : sequence of D (pair of float or None), optional
        Outer edges of the columns whose `bins` is a number. For columns without a range, an
        extra pass finds the minimum and maximum.
    density : bool, default False
        Whether to return the probability density instead of counts.
    weights : array-like or collection of shape (N,), optional
        Real weights: in memory, or blocked like the sample along its rows. A list of numbers
        is one array, a list of arrays a collection.

    Returns
    -------
    H : ndarray of float64, shape (nbins_1, ..., nbins_D)
        The number of points in each bin, or the sum of their weights, or the density.
    edges : list of D ndarray, shape (nbins + 1,)
        The bin edges of each column.

    Raises
    ------
    InvalidArgumentError
        If bins, range, the columns of the sample, their dtypes or the weights cannot be
        used (for example sparse blocks, masked elements, complex numbers), or the columns of two
        blocks have other names or another order. A ``ValueError``.
    AlignmentError
        If columns or weights have a different blocking along the rows.
    UnsupportedCollectionError, LazyCollectionError, BlockLostError
        As for :func:`spliter.split`.

    Notes
    -----
    *Columns in several blocks.* A collection with ``numblocks`` and ``blocks`` (a Dask array)
    may be chunked along its columns: the blocks of a row are transferred to the location of the
    first one. To see how much was moved, split the columns yourself,
    ``parts = split(x.blocks[:, 0], x.blocks[:, 1])``, call ``histogramdd(parts)`` and read
    :attr:`spliter.Split.moved`. Other such collections have to be rechunked.

    *Dates.* A column of ``datetime64`` or ``timedelta64`` needs edges of the same kind, in any
    unit. ``NaT`` is in no bin. As in ``numpy.histogramdd``, a number of bins and `density` are
    not supported for dates.

    *DataFrames.* All columns must be numeric. Columns of pandas' nullable number types are
    converted to float64, missing values to NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter_apps import histogramdd
    >>> blocks = [np.array([[0.5, 1.0], [0.1, 2.0]]), np.array([[0.9, 1.5]])]
    >>> H, edges = histogramdd(blocks, bins=(2, 1), range=[(0, 1), (1, 2)])
    >>> H
    array([[1.],
           [2.]])
    >>> edges[0]
    array([0. , 0.5, 1. ])
    """
    columns = _columns(sample)
    if isinstance(columns, Split):
        if weights is not None:
            raise InvalidArgumentError(
                "weights cannot be passed together with a Split of the sample; pass the collection "
                "as sample"
            )
        return _histogramdd(columns, bins, range, density, weighted=False)
    aligned = [*columns, *([] if weights is None else [_weights(weights, sample)])]
    with split(*aligned) as parts:
        return _histogramdd(parts, bins, range, density, weighted=weights is not None)


def _histogramdd(
    parts: Split, bins: Any, range_: Any, density: bool | None, *, weighted: bool
) -> tuple[npt.NDArray[np.float64], list[npt.NDArray[Any]]]:
    _check_grid(parts)
    edges = _edges(parts, bins, range_, weighted)
    if density:
        check_density(edges)
    partials = [_count(partition, edges, weighted) for partition in parts]
    nbytes = 8 * math.prod(len(edge) - 1 for edge in edges)
    counts = combine(_Found.merged, partials, nbytes).value
    return finish(counts, edges, bool(density)), list(edges)


@dataclass(frozen=True)
class _Found:
    """What was found in some blocks, and the names of their columns."""

    value: Any
    columns: SameColumns

    def merged(self, other: _Found) -> _Found:
        """Return what was found in these blocks and others, whose columns must be the same."""
        both = SameColumns(self.columns.names)
        both.add(other.columns.names)
        # Not in place: the engine may still need the partial results, to send or to recompute.
        if isinstance(self.value, Extent):
            return _Found(self.value.merged(other.value), both)
        return _Found(self.value + other.value, both)


@task
def _count(partition: Partition, edges: Edges, weighted: bool) -> _Found:
    """Count the points of one partition."""
    columns = SameColumns()
    return _Found(count_points(map(columns.checked, partition), edges, weighted), columns)


@task
def _extent(partition: Partition, weighted: bool) -> _Found:
    """Return the extremes of the columns of one partition."""
    columns = SameColumns()
    blocks = (block[:-1] if weighted else block for block in map(columns.checked, partition))
    extents = [Extent.of(block_members(block)) for block in blocks]
    return _Found(functools.reduce(Extent.merged, extents), columns)


def _edges(parts: Split, bins: Any, range_: Any, weighted: bool) -> Edges:
    """Resolve the edges; passes over the data only if they depend on it."""
    # The number of columns that the arguments imply.
    ndim = length_of(bins) if length_of(range_) is None else length_of(range_)
    if ndim is not None and not columns_without_range(bins, range_, ndim):
        return resolve_edges(bins, range_, ndim)
    extents = [_extent(partition, weighted) for partition in parts]
    extent = functools.reduce(_Found.merged, gather(extents)).value
    return resolve_edges(bins, range_, extent.ncolumns, extent.low or None, extent.high or None)


def _columns(sample: Any) -> Split | list[Any]:
    """Return the collections to split side by side, or the Split that was passed."""
    if isinstance(sample, Split):
        return sample
    if not isinstance(sample, tuple):
        return _split_columns(sample)
    if not sample:
        raise InvalidArgumentError("the sample is an empty tuple; pass at least one column")
    return [column for member in sample for column in _split_columns(member)]


def _split_columns(collection: Any) -> list[Any]:
    """Return a collection as a list of collections, each with one block along its columns."""
    if isinstance(collection, np.ndarray):
        return [_cut_rows(collection)]
    # hasattr() on the type: Dask's delayed values pretend to have every attribute.
    if hasattr(type(collection), "numblocks") and hasattr(type(collection), "blocks"):
        numblocks: tuple[int, ...] = collection.numblocks
        if len(numblocks) == 2 and numblocks[1] > 1:
            return [collection.blocks[:, at] for at in range(numblocks[1])]
    return [collection]


def _cut_rows(array: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Cut an array in memory into views, one task each."""
    if not array.ndim:
        raise InvalidArgumentError("a sample must have shape (N, D) or (N,), got a single value")
    return [array[at : at + BLOCK_ROWS] for at in range(0, max(len(array), 1), BLOCK_ROWS)]


def _weights(weights: Any, sample: Any) -> Any:
    """Return weights as a collection that can be split together with the sample."""
    members = sample if isinstance(sample, tuple) else (sample,)
    if not is_in_memory(weights):
        return weights
    for member in members:
        if not isinstance(member, np.ndarray):
            return block_like(_split_columns(member)[0], {"weights": weights})["weights"]
    return _cut_rows(as_array("weights", weights))


def _check_grid(parts: Split) -> None:
    if any(nblocks > 1 for nblocks in parts.grid.shape[1:]):
        raise InvalidArgumentError(
            f"the sample must have one block along axis 1, got a grid of {parts.grid.shape} "
            "blocks; rechunk it, or pass a tuple of its columns"
        )
