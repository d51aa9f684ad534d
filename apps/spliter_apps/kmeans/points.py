"""Read the points of a fit in tasks, and inspect them in a first pass.

In the first pass one task per partition checks the blocks and computes what the tolerance and the
seeding need. It reads each block only once, as blocks may be on disk.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.utils.sparsefuncs import mean_variance_axis

from spliter import InvalidArgumentError, Partition, Split, batches, gather
from spliter_apps._blocks import Schema, block_schema, points_of
from spliter_apps._moments import Moments
from spliter_apps._row_values import as_weights
from spliter_apps.kmeans.kernel import SCRATCH_BYTES, Block, FloatArray

IntArray: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BlockReader:
    """Converts blocks to points and weights at their location; sent with every task."""

    dtype: np.dtype[Any]
    """Dtype of the points."""
    weighted: bool
    """Whether blocks are pairs of points and weights."""
    origin: FloatArray
    """A point near the data, or zeros: kernels may subtract it for precision."""

    def materialized(self, partition: Partition) -> Iterator[Block]:
        """Yield points, or points and weights, concatenated if the Split materializes."""
        return map(self.block, partition)

    def blocks(self, partition: Partition) -> Iterator[Block]:
        """Yield points, or points and weights, block by block, even if the Split materializes."""
        return (self.block(block) for _, block in partition.items())

    def block(self, block: Any) -> Block:
        """Return points of one block, or points and weights."""
        if not self.weighted:
            return points_of(block, self.dtype)
        points, weights = block
        return points_of(points, self.dtype), np.asarray(weights, np.float64)


@dataclass(frozen=True)
class Points:
    """The points of a fit, with their properties found in the first pass."""

    parts: Split
    """Split of points, or of points and weights; the rows of each block are known."""
    schema: Schema
    """Dtype and columns of all blocks."""
    moments: Moments | None
    """Mean and variance of the points, if requested."""
    masses: FloatArray
    """Sum of the weights of each block; its number of rows if the points have no weights."""

    @classmethod
    def inspect(cls, parts: Split, *, with_moments: bool = True) -> Points:
        """Check and inspect all blocks, with one task per partition."""
        # One list for tasks and results: iterating the Split again may plan other partitions.
        partitions = list(parts)
        weighted = parts.ncollections == 2
        found: list[_PartitionInspection] = gather(
            [partition.submit(_inspect, weighted, with_moments) for partition in partitions]
        )
        schema = functools.reduce(Schema.merged, [one.schema for one in found])
        moments = [one.moments for one in found if one.moments is not None]
        total = functools.reduce(Moments.merged, moments) if moments else None
        parts.resolve_item_indexes()
        masses = parts.grid.row_counts.astype(np.float64)
        if weighted:
            for partition, one in zip(partitions, found, strict=True):
                masses[block_numbers(partition)] = one.masses
        return cls(parts, schema, total, masses)

    def reader(self, origin: FloatArray) -> BlockReader:
        """Return the reader of the blocks, given a point near the data.

        The origin of sparse points is zero: subtracting another would make them dense.
        """
        origin = np.zeros_like(origin) if self.schema.is_sparse else origin
        return BlockReader(self.schema.dtype, self.parts.ncollections == 2, origin)

    @property
    def mean_variance(self) -> float:
        """Mean variance of the features, the unit of the tolerance; 0 if unknown."""
        return 0.0 if self.moments is None else float(self.moments.variance.mean())


def block_numbers(partition: Partition) -> IntArray:
    """Return the position along axis 0 of each block of a partition of points."""
    return np.array([index[0] for index in partition.get_indexes()], np.int64)


def block_starts(partition: Partition) -> list[int]:
    """Return the global index of the first row of each block."""
    starts = partition.indexes.item_starts
    assert starts is not None, "the sizes of blocks are known after the first pass"
    return [int(start) for start in starts]


# --- the first pass ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _PartitionInspection:
    """Result of the first pass over one partition; `masses` is empty without weights."""

    schema: Schema
    moments: Moments | None
    masses: list[float]


def _inspect(partition: Partition, weighted: bool, with_moments: bool) -> _PartitionInspection:
    """Check the blocks of a partition and compute the properties needed by a fit."""
    checker = _Checker(weighted)
    blocks = checker.checked(partition)
    moments = moments_of(blocks) if with_moments else None
    for _ in blocks:
        pass  # checks only
    assert checker.schema is not None, "a partition has at least one block"
    return _PartitionInspection(checker.schema, moments, checker.masses)


class _Checker:
    """Checks blocks as they are read."""

    def __init__(self, weighted: bool) -> None:
        self.weighted = weighted
        self.schema: Schema | None = None
        self.masses: list[float] = []

    def checked(self, partition: Partition) -> Iterator[Block]:
        for index, block in partition.items():
            found = block_schema(index, block)
            self.schema = found if self.schema is None else self.schema.merged(found)
            if self.weighted:
                what = f"the weights of block {index}"
                self.masses.append(float(check_point_weights(block[1], found.n_items, what).sum()))
            yield points_of(block[0] if self.weighted else block, found.dtype)


def moments_of(blocks: Iterable[Block]) -> Moments:
    """Return the unweighted moments of the points in some blocks.

    Examples
    --------
    >>> moments_of([np.array([[0.0], [2.0]]), np.array([[4.0]])])
    Moments(count=3, mean=array([2.]), variance=array([2.66666667]))
    """
    nothing = Moments(0, np.zeros(1), np.zeros(1))
    found = map(_moments_of_batch, batches(blocks, SCRATCH_BYTES // 2))
    return functools.reduce(Moments.merged, found, nothing)


def _moments_of_batch(points: Any) -> Moments:
    if sparse.issparse(points):
        mean, variances = mean_variance_axis(points, axis=0)
    else:
        mean = points.mean(axis=0, dtype=np.float64)
        variances = points.var(axis=0, dtype=np.float64, mean=mean[None])
    return Moments(points.shape[0], mean, variances)


def check_point_weights(weights: Any, height: int, what: str) -> FloatArray:
    """Return the weights of `height` points; refuse those that are negative.

    Examples
    --------
    >>> check_point_weights([1, 2], 2, "sample_weight")
    array([1., 2.])
    """
    found = as_weights(what, weights, height)
    if (found < 0).any():
        raise InvalidArgumentError(
            f"{what}: weights must not be negative, got {found.min()}; remove these points"
        )
    return found
