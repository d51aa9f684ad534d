"""One look at the points of a fit, block by block: what they are, and what they add up to.

One task per partition looks at the blocks before anything else: it checks them, counts their
rows and adds up what the tolerance and the first draws of centres need. Each block is read once
for all of that, as it may have to come from disk.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from spliter import InvalidArgumentError, Partition, task
from spliter_apps._blocks import Schema, block_schema, points_of, survey
from spliter_apps._kmeans_kernel import Partial, partial_sums
from spliter_apps._kmeans_pieces import Block, FloatArray, piece_rows, pieces

CANCELLED = 1e-6
"""Spread relative to the squares it is the rest of, below which it is computed otherwise."""

VALUES_AT_ONCE = 2**22
"""Numbers in the blocks that are held at once while all is found out about them: 32 MB."""


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


@dataclass(frozen=True)
class Findings:
    """What was found at all points.

    Parameters
    ----------
    schema : Schema
        Of the points.
    moments : Moments or None
        Of the points, if asked for.
    sums : Partial or None
        Of the first iteration, if every task has made it in the way that all points are read.
    """

    schema: Schema
    moments: Moments | None
    sums: Partial | None

    @classmethod
    def of(cls, looked: Sequence[Looked]) -> Findings:
        """Return what the tasks at all partitions have found.

        Parameters
        ----------
        looked : sequence of Looked
            At least one, in the order of the partitions.

        Returns
        -------
        Findings
            Of all of them.

        Raises
        ------
        InvalidArgumentError
            If their points do not go together.
        """
        schema = functools.reduce(Schema.merged, [found.schema for found in looked])
        kind = (schema.dtype, schema.is_sparse)
        alike = all((found.schema.dtype, found.schema.is_sparse) == kind for found in looked)
        moments = [found.moments for found in looked if found.moments is not None]
        sums = [found.sums for found in looked if found.sums is not None]
        return cls(
            schema,
            functools.reduce(Moments.merged, moments) if moments else None,
            functools.reduce(operator.add, sums) if alike and len(sums) == len(looked) else None,
        )


@task
def look(
    partition: Partition, weighted: bool, with_moments: bool, centers: FloatArray | None
) -> Looked:
    """Check the blocks of a partition and add up what a fit needs to know of them.

    Parameters
    ----------
    partition : Partition
        Of points, or of points and weights.
    weighted : bool
        Whether there are weights.
    with_moments : bool
        Whether moments are wanted.
    centers : ndarray of float64, shape (n_clusters, n_features), or None
        What to make the first pass with.

    Returns
    -------
    Looked
        At this partition; a future of it where it is submitted.

    Raises
    ------
    InvalidArgumentError
        Naming the block that cannot be used.
    """
    seen = _Seen(weighted, with_moments, centers)
    for some in _some_at_once(partition.items()):
        seen.add(some)
    assert seen.schema is not None, "a partition has at least one block"
    sums = seen.sums
    if centers is not None:
        if not seen.alike:
            reading = Reading(seen.schema.dtype, weighted)
            sums = _first_pass(reading.original_blocks(partition), seen.schema, centers)
        # A value that is not finite makes the sums so, which saves a pass to look for it.
        if sums is None or not np.isfinite(sums.sums).all():
            survey(partition, accept_sparse=True)
    masses = seen.masses if weighted else map(float, seen.heights)
    return Looked(seen.schema, seen.moments, tuple(seen.heights), tuple(masses), sums)


def _some_at_once(items: Iterable[tuple[Any, Any]]) -> Iterator[list[tuple[Any, Any]]]:
    """Group blocks: read once each, whatever is asked of them, and not all held at once."""
    some: list[tuple[Any, Any]] = []
    values = 0
    for index, block in items:
        some.append((index, block))
        values += _values_in(block[0] if isinstance(block, tuple) else block)
        if values >= VALUES_AT_ONCE:
            yield some
            some, values = [], 0
    if some:
        yield some


def _values_in(points: Any) -> int:
    """Count numbers, of what has not been checked yet."""
    return math.prod(getattr(points, "shape", ()))


class _Seen:
    """What is known of the blocks seen so far."""

    def __init__(self, weighted: bool, with_moments: bool, centers: FloatArray | None) -> None:
        self._weighted = weighted
        self._with_moments = with_moments
        self._centers = centers
        self.schema: Schema | None = None
        self.heights: list[int] = []
        self.masses: list[float] = []
        self.moments: Moments | None = None
        self.sums: Partial | None = None
        self.alike = True
        """Whether all blocks so far are to be computed with in the same way."""

    def add(self, some: list[tuple[tuple[int, ...], Any]]) -> None:
        """Check some more blocks, and add up what is in them."""
        before = self.schema
        for index, block in some:
            self._check(index, block)
        schema = self.schema
        assert schema is not None
        reading = Reading(schema.dtype, self._weighted)
        blocks = [reading.block(block) for _, block in some]
        if before is not None:
            kind = (before.dtype, before.is_sparse)
            self.alike = self.alike and kind == (schema.dtype, schema.is_sparse)
        if self._centers is not None and self.alike:
            sums = _first_pass(blocks, schema, self._centers)
            self.sums = sums if self.sums is None or sums is None else self.sums + sums
        if self._with_moments:
            moments = Moments.of(blocks, schema.n_features)
            self.moments = moments if self.moments is None else self.moments.merged(moments)

    def _check(self, index: tuple[int, ...], block: Any) -> None:
        found = block_schema(index, block, accept_sparse=True, must_be_finite=self._centers is None)
        self.schema = found if self.schema is None else self.schema.merged(found)
        self.heights.append(found.n_items)
        if self._weighted:
            weights = checked_weights(block[1], found.n_items, f"the weights of block {index}")
            self.masses.append(float(weights.sum()))


def _first_pass(blocks: Iterable[Block], schema: Schema, centers: FloatArray) -> Partial | None:
    """Make the first pass over a partition's points, if the centres are points as well."""
    if centers.shape[1] != schema.n_features:
        return None
    shift = near(centers, schema.is_sparse)
    with np.errstate(invalid="ignore", over="ignore"):
        return partial_sums(blocks, centers, shift=shift, dtype=schema.dtype)


def near(centers: FloatArray, is_sparse: bool) -> FloatArray:
    """Return a point near the data: the mean of centres, but zero if some data is sparse.

    Parameters
    ----------
    centers : ndarray of float64, shape (n_clusters, n_features)
        Centres.
    is_sparse : bool
        Whether a block is sparse.

    Returns
    -------
    ndarray of float64, shape (n_features,)
        Sparse points have to stay where they are.
    """
    mean: FloatArray = centers.mean(axis=0)
    return np.zeros_like(mean) if is_sparse else mean


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
