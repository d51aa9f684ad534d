"""The points that k-means is fitted to, as the client sees them: what a fit has to know of them."""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from spliter import Partition, Split, gather
from spliter_apps._blocks import Schema
from spliter_apps._kmeans_kernel import Partial
from spliter_apps._kmeans_look import Looked, Moments, Reading, look
from spliter_apps._kmeans_pieces import FloatArray

IntArray: TypeAlias = npt.NDArray[np.int64]


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
            Whether moments are wanted.
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
            futures = [look(partition, *args) for partition in partitions]
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
