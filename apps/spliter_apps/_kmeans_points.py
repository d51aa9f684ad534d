"""The points that k-means is fitted to: what a fit has to know of them, and how tasks read them.

One task per partition looks at the blocks before anything else: it checks them, counts their
rows and adds up what the tolerance and the first draws of centres need.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from spliter import InvalidArgumentError, Partition, Split, gather, task
from spliter_apps._blocks import Schema, points_of, survey
from spliter_apps._kmeans_kernel import Partial, partial_sums
from spliter_apps._kmeans_pieces import Block, FloatArray, piece_rows, pieces

CANCELLED = 1e-6
"""Spread relative to the squares it is the rest of, below which it is computed otherwise."""

IntArray: TypeAlias = npt.NDArray[np.int64]


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
class Looked:
    """What was found at the blocks of one partition.

    Parameters
    ----------
    schema : Schema
        Of the points.
    moments : Moments or None
        Of the points, if asked for.
    heights : tuple of int
        Rows of each block.
    masses : tuple of float
        Weight of each block: its rows, if the points have no weights.
    sums : Partial or None
        Of the first iteration, if it could be made.
    """

    schema: Schema
    moments: Moments | None
    heights: tuple[int, ...]
    masses: tuple[float, ...]
    sums: Partial | None


@task
def _look(
    partition: Partition, weighted: bool, with_moments: bool, centers: FloatArray | None
) -> Looked:
    """Check the blocks of a partition and add up what a fit needs to know of them."""
    schema = survey(partition, accept_sparse=True, must_be_finite=centers is None)
    reading = Reading(schema.dtype, weighted)
    heights, masses = [], []
    for index, block in partition.items():
        points = block[0] if isinstance(block, tuple) else block
        heights.append(points.shape[0])
        if weighted:
            weights = checked_weights(block[1], points.shape[0], f"the weights of block {index}")
            masses.append(float(weights.sum()))
    sums = None
    if centers is not None:
        sums = _first_pass(partition, reading, schema, centers)
        # A value that is not finite makes the sums so, which saves a pass to look for it.
        if sums is None or not np.isfinite(sums.sums).all():
            survey(partition, accept_sparse=True)
    moments = Moments.of(reading.blocks(partition), schema.n_features) if with_moments else None
    return Looked(schema, moments, tuple(heights), tuple(masses or map(float, heights)), sums)


def _first_pass(
    partition: Partition, reading: Reading, schema: Schema, centers: FloatArray
) -> Partial | None:
    """Make the first pass over a partition's points, if the centres are points as well."""
    if centers.shape[1] != schema.n_features:
        return None
    shift = near(schema, centers)
    with np.errstate(invalid="ignore", over="ignore"):
        return partial_sums(reading.blocks(partition), centers, shift=shift, dtype=reading.dtype)


def near(schema: Schema, centers: FloatArray) -> FloatArray:
    """Return a point near the data: the mean of centres, but zero if some data is sparse.

    Parameters
    ----------
    schema : Schema
        Of the points.
    centers : ndarray of float64, shape (n_clusters, n_features)
        Centres.

    Returns
    -------
    ndarray of float64, shape (n_features,)
        Sparse points have to stay where they are.
    """
    mean: FloatArray = centers.mean(axis=0)
    return np.zeros_like(mean) if schema.is_sparse else mean


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


@dataclass(frozen=True)
class Points:
    """The points of a fit, as the client sees them.

    Parameters
    ----------
    parts : Split
        Where they are.
    reading : Reading
        How tasks read them.
    schema : Schema
        What they are.
    moments : Moments or None
        Their number, mean and spread, if asked for.
    heights : ndarray of int64, shape (n_blocks,)
        Rows of each block.
    masses : ndarray of float64, shape (n_blocks,)
        Weight of each block.
    begun : tuple of (ndarray, Partial), or None
        Centres that the first pass was made for already, and its sums.
    """

    parts: Split
    reading: Reading
    schema: Schema
    moments: Moments | None
    heights: IntArray
    masses: FloatArray
    begun: tuple[FloatArray, Partial] | None = None

    @classmethod
    def look(
        cls,
        parts: Split,
        *,
        weighted: bool,
        with_moments: bool = True,
        centers: FloatArray | None = None,
    ) -> Points:
        """Check all blocks and find out about them, with one task per partition.

        Parameters
        ----------
        parts : Split
            Of points, or of points and weights.
        weighted : bool
            Whether there are weights.
        with_moments : bool
            Whether moments are wanted: a pass of their own in each task.
        centers : ndarray of float64, shape (n_clusters, n_features), optional
            Where the iteration is to start, if that is known: the same tasks then make its
            first pass, which saves a round of tasks.

        Returns
        -------
        Points
            That k-means can be fitted to.

        Raises
        ------
        InvalidArgumentError
            Naming the block that cannot be used.
        """
        # One look at the partitions: starting an iteration may plan them anew.
        partitions = list(parts)
        args = (weighted, with_moments, centers)
        with parts.together():
            futures = [_look(partition, *args) for partition in partitions]
        looked: list[Looked] = gather(futures)
        heights = np.zeros(parts.nblocks, np.int64)
        masses = np.zeros(parts.nblocks)
        schema = functools.reduce(Schema.merged, [found.schema for found in looked])
        moments = [found.moments for found in looked if found.moments is not None]
        for partition, found in zip(partitions, looked, strict=True):
            heights[block_numbers(partition)] = found.heights
            masses[block_numbers(partition)] = found.masses
        return cls(
            parts,
            Reading(schema.dtype, weighted),
            schema,
            functools.reduce(Moments.merged, moments) if moments else None,
            heights,
            masses,
            _begun(centers, looked, schema),
        )

    @property
    def starts(self) -> IntArray:
        """Global index of the first row of each block; shape (n_blocks,)."""
        return np.cumsum(self.heights) - self.heights

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


def _begun(
    centers: FloatArray | None, looked: list[Looked], schema: Schema
) -> tuple[FloatArray, Partial] | None:
    """Return the first pass, if every task has made it in the way that all points are read."""
    sums = [
        found.sums
        for found in looked
        if (found.schema.dtype, found.schema.is_sparse) == (schema.dtype, schema.is_sparse)
    ]
    made = [partial for partial in sums if partial is not None]
    if centers is None or len(made) < len(looked):
        return None
    return centers, functools.reduce(operator.add, made)


def block_numbers(partition: Partition) -> IntArray:
    """Return the position along axis 0 of each block of a partition of points."""
    return np.array([index[0] for index in partition.get_indexes()], np.int64)
