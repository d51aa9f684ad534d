"""Points of a k-means fit: how tasks read them, and what a first pass finds out about them.

One task per partition inspects the blocks before anything else: it checks them, counts their
rows and adds up what the tolerance and the first draws of centres need. Each block is read once
for all of that, as it may have to come from disk.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from spliter import InvalidArgumentError, Partition, Split, gather
from spliter_apps._blocks import Schema, block_schema, points_of
from spliter_apps.kmeans.pieces import Block, FloatArray, piece_rows, pieces

IntArray: TypeAlias = npt.NDArray[np.int64]

CANCELLED = 1e-6
"""Spread relative to the squares it is the rest of, below which it is computed otherwise."""

VALUES_AT_ONCE = 2**22
"""Maximum of numbers in the blocks that an inspection holds at once: 32 MB of float64."""


@dataclass(frozen=True)
class Reading:
    """How a task reads the blocks of a partition; small, and sent with every task.

    Parameters
    ----------
    dtype : dtype
        Of the points.
    weighted : bool
        Whether the partition yields pairs of points and weights.
    """

    dtype: np.dtype[Any]
    weighted: bool

    def blocks(self, partition: Partition) -> Iterator[Block]:
        """Yield points and weights, as one block where the Split materializes.

        Parameters
        ----------
        partition : Partition
            At its location.

        Yields
        ------
        tuple of (ndarray or CSR matrix, ndarray or None)
            Points in the type to compute in, and their weights.
        """
        return map(self.block, partition)

    def original_blocks(self, partition: Partition) -> Iterator[Block]:
        """Yield points and weights block by block, also where the Split materializes."""
        return (self.block(block) for _, block in partition.items())

    def block(self, block: Any) -> Block:
        """Return points and weights of one block."""
        if not self.weighted:
            return points_of(block, self.dtype), None
        points, weights = block
        return points_of(points, self.dtype), np.asarray(weights, np.float64)


@dataclass(frozen=True)
class Moments:
    """Number, mean and spread of points.

    Parameters
    ----------
    count : int
        How many there are.
    mean : ndarray of float64, shape (n_features,)
        Their mean.
    spread : float
        Sum of their squared distances to it.
    """

    count: int
    mean: FloatArray
    spread: float

    @classmethod
    def of(cls, blocks: Iterable[Block], n_features: int) -> Moments:
        """Return the moments of the points in some blocks, whatever their weights.

        Parameters
        ----------
        blocks : iterable of (points, weights)
            Dense or CSR points.
        n_features : int
            Their columns.

        Returns
        -------
        Moments
            Of all of them.

        Examples
        --------
        >>> Moments.of([(np.array([[0.0], [2.0]]), None), (np.array([[4.0]]), None)], 1)
        Moments(count=3, mean=array([2.]), spread=8.0)
        """
        total = cls(0, np.zeros(n_features), 0.0)
        for piece in pieces(blocks, piece_rows(2 * n_features), np.float64):
            total = total.merged(cls._of_piece(piece.points))
        return total

    @classmethod
    def _of_piece(cls, points: Any) -> Moments:
        count = points.shape[0]
        # The transposed product is the one that NumPy and SciPy both have.
        mean = points.T @ np.ones(count) / count
        is_sparse = sparse.issparse(points)
        values = points.data if hasattr(points, "indptr") else points.ravel()
        squares = float(values @ values)
        spread = squares - count * float(mean @ mean)
        if spread < CANCELLED * squares and not is_sparse:
            values = (points - mean).ravel()
            spread = float(values @ values)
        return cls(count, mean, max(spread, 0.0))

    def merged(self, other: Moments) -> Moments:
        """Return the moments of these points and others."""
        count = self.count + other.count
        if not count:
            return self
        apart = other.mean - self.mean
        share = other.count / count
        return Moments(
            count,
            self.mean + share * apart,
            self.spread + other.spread + self.count * share * float(apart @ apart),
        )


@dataclass(frozen=True)
class Inspection:
    """What the first pass found at the blocks of one partition.

    Parameters
    ----------
    schema : Schema
        Of the points.
    moments : Moments or None
        Of the points, if asked for.
    heights : list of int
        Rows of each block.
    masses : list of float
        Weight of each block: its rows, if the points have no weights.
    """

    schema: Schema
    moments: Moments | None
    heights: list[int]
    masses: list[float]


def inspect_partition(partition: Partition, weighted: bool, with_moments: bool) -> Inspection:
    """Check the blocks of a partition and add up what a fit needs to know of them.

    Parameters
    ----------
    partition : Partition
        Of points, or of points and weights.
    weighted : bool
        Whether there are weights.
    with_moments : bool
        Whether moments are wanted.

    Returns
    -------
    Inspection
        Of this partition.

    Raises
    ------
    InvalidArgumentError
        Naming the block that cannot be used.
    """
    schema: Schema | None = None
    heights: list[int] = []
    masses: list[float] = []
    moments: list[Moments] = []
    for items in _bounded_batches(partition.items()):
        for index, block in items:
            found = block_schema(index, block, accept_sparse=True)
            schema = found if schema is None else schema.merged(found)
            heights.append(found.n_items)
            if weighted:
                what = f"the weights of block {index}"
                masses.append(float(checked_weights(block[1], found.n_items, what).sum()))
        if with_moments and schema is not None:
            reading = Reading(schema.dtype, weighted)
            blocks = (reading.block(block) for _, block in items)
            moments.append(Moments.of(blocks, schema.n_features))
    assert schema is not None, "a partition has at least one block"
    total = functools.reduce(Moments.merged, moments) if moments else None
    return Inspection(schema, total, heights, masses if weighted else [*map(float, heights)])


def _bounded_batches(items: Iterable[tuple[Any, Any]]) -> Iterator[list[tuple[Any, Any]]]:
    """Group blocks, so that each is read once whatever is computed of it, and few are held."""
    batch: list[tuple[Any, Any]] = []
    values = 0
    for index, block in items:
        batch.append((index, block))
        points = block[0] if isinstance(block, tuple) else block
        values += math.prod(getattr(points, "shape", ()))
        if values >= VALUES_AT_ONCE:
            yield batch
            batch, values = [], 0
    if batch:
        yield batch


@dataclass(frozen=True)
class Points:
    """The points of a fit, as the client sees them.

    Parameters
    ----------
    parts : Split
        Where they are.
    schema : Schema
        What all blocks have in common.
    moments : Moments or None
        Of all points, if asked for.
    heights : ndarray of int64, shape (n_blocks,)
        Rows of each block.
    masses : ndarray of float64, shape (n_blocks,)
        Weight of each block.
    """

    parts: Split
    schema: Schema
    moments: Moments | None
    heights: IntArray
    masses: FloatArray

    @classmethod
    def inspected(cls, parts: Split, *, with_moments: bool = True) -> Points:
        """Check all blocks and find out about them, with one task per partition.

        Parameters
        ----------
        parts : Split
            Of points, or of points and weights.
        with_moments : bool
            Whether moments are wanted.

        Returns
        -------
        Points
            That k-means can be fitted to.

        Raises
        ------
        InvalidArgumentError
            Naming the block that cannot be used.
        """
        # One list for tasks and results: iterating the Split again may plan other partitions.
        partitions = list(parts)
        args = (_are_weighted(parts), with_moments)
        futures = [partition.submit(inspect_partition, *args) for partition in partitions]
        inspections: list[Inspection] = gather(futures)
        heights = np.zeros(parts.nblocks, np.int64)
        masses = np.zeros(parts.nblocks)
        for partition, found in zip(partitions, inspections, strict=True):
            heights[block_numbers(partition)] = found.heights
            masses[block_numbers(partition)] = found.masses
        schema = functools.reduce(Schema.merged, [found.schema for found in inspections])
        moments = [found.moments for found in inspections if found.moments is not None]
        total = functools.reduce(Moments.merged, moments) if moments else None
        return cls(parts, schema, total, heights, masses)

    @property
    def reading(self) -> Reading:
        """How tasks read them."""
        return Reading(self.schema.dtype, _are_weighted(self.parts))

    @property
    def starts(self) -> IntArray:
        """Global index of the first row of each block; shape (n_blocks,)."""
        return np.cumsum(self.heights) - self.heights

    @property
    def variance(self) -> float:
        """Mean variance of the features, to which the tolerance is relative; 0 without moments."""
        spread = 0.0 if self.moments is None else self.moments.spread
        return spread / max(self.schema.n_items * self.schema.n_features, 1)

    def origin_near(self, centers: FloatArray) -> FloatArray:
        """Return a point near the data: the mean of centres, but zero if some data is sparse.

        Parameters
        ----------
        centers : ndarray of float64, shape (n_clusters, n_features)
            Centres.

        Returns
        -------
        ndarray of float64, shape (n_features,)
            Sparse points have to stay where they are.
        """
        mean: FloatArray = centers.mean(axis=0)
        return np.zeros_like(mean) if self.schema.is_sparse else mean

    def global_rows(self, partition: Partition, rows: IntArray) -> IntArray:
        """Return the global indexes of rows counted from a partition's first one.

        Parameters
        ----------
        partition : Partition
            One of these points'.
        rows : ndarray of int64
            Rows, in the order of the partition's iteration.

        Returns
        -------
        ndarray of int64
            Rows of the whole collection.
        """
        numbers = block_numbers(partition)
        ends = np.cumsum(self.heights[numbers])
        at = np.searchsorted(ends, rows, side="right")
        return self.starts[numbers[at]] + rows - (ends - self.heights[numbers])[at]


def _are_weighted(parts: Split) -> bool:
    return parts.ncollections == 2


def block_numbers(partition: Partition) -> IntArray:
    """Return the position along axis 0 of each block of a partition of points."""
    return np.array([index[0] for index in partition.get_indexes()], np.int64)


def checked_weights(weights: Any, height: int, what: str) -> FloatArray:
    """Return weights of points as numbers that can be used.

    Parameters
    ----------
    weights : array-like of shape (height,)
        As given.
    height : int
        How many points there are.
    what : str
        What to call them in errors.

    Returns
    -------
    ndarray of float64, shape (height,)
        All finite, none negative.

    Raises
    ------
    InvalidArgumentError
        If they are not.

    Examples
    --------
    >>> checked_weights([1, 2], 2, "sample_weight")
    array([1., 2.])
    """
    try:
        found = np.asarray(weights, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{what} are not numbers: {error}") from error
    if found.shape != (height,):
        raise InvalidArgumentError(
            f"{what} have shape {found.shape}, and there are {height} points; pass one weight "
            "for each"
        )
    if not np.isfinite(found).all():
        raise InvalidArgumentError(f"{what} contain NaN or infinity")
    if (found < 0).any():
        raise InvalidArgumentError(f"{what} contain negative values; leave such points out")
    return found
