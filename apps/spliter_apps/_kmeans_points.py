"""The points that k-means is fitted to, as the client sees them: what a fit has to know of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter import Partition, Split, gather
from spliter_apps._blocks import Schema
from spliter_apps._kmeans_look import Findings, Looked, Reading, look
from spliter_apps._kmeans_pieces import FloatArray

IntArray: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Looking:
    """The tasks that look at the points of a fit, under way.

    Parameters
    ----------
    parts : Split
        Of points, or of points and weights.
    partitions : sequence of Partition
        Its partitions when the tasks were sent.
    looked : sequence of future
        What comes of each.
    """

    parts: Split
    partitions: Sequence[Partition]
    looked: Sequence[Any]

    @classmethod
    def begin(
        cls, parts: Split, *, with_moments: bool = True, centers: FloatArray | None = None
    ) -> Looking:
        """Start to check all blocks and to find out about them, with one task per partition.

        Parameters
        ----------
        parts : Split
            Of points, or of points and weights.
        with_moments : bool
            Whether moments are wanted.
        centers : ndarray of float64, shape (n_clusters, n_features), optional
            Where the iteration is to start, if that is known: the same tasks then make its
            first pass, which saves a round of tasks.

        Returns
        -------
        Looking
            To be waited for.
        """
        # One look at the partitions: starting an iteration may plan them anew.
        partitions = list(parts)
        args = (_are_weighted(parts), with_moments, centers)
        with parts.together():
            looked = [look(partition, *args) for partition in partitions]
        return cls(parts, partitions, looked)

    @property
    def weighted(self) -> bool:
        """Whether the points have weights."""
        return _are_weighted(self.parts)

    def points(self) -> Points:
        """Wait for what the tasks have found.

        Returns
        -------
        Points
            That k-means can be fitted to.

        Raises
        ------
        InvalidArgumentError
            Naming the block that cannot be used.
        """
        looked: list[Looked] = gather(self.looked)
        heights = np.zeros(self.parts.nblocks, np.int64)
        masses = np.zeros(self.parts.nblocks)
        for partition, found in zip(self.partitions, looked, strict=True):
            heights[block_numbers(partition)] = found.heights
            masses[block_numbers(partition)] = found.masses
        return Points(self.parts, Findings.of(looked), heights, masses)


@dataclass(frozen=True)
class Points:
    """The points of a fit, as the client sees them.

    Parameters
    ----------
    parts : Split
        Where they are.
    found : Findings
        What they are, and what they add up to.
    heights : ndarray of int64, shape (n_blocks,)
        Rows of each block.
    masses : ndarray of float64, shape (n_blocks,)
        Weight of each block.
    """

    parts: Split
    found: Findings
    heights: IntArray
    masses: FloatArray

    @property
    def schema(self) -> Schema:
        """What all blocks have in common."""
        return self.found.schema

    @property
    def weighted(self) -> bool:
        """Whether the points have weights."""
        return _are_weighted(self.parts)

    @property
    def reading(self) -> Reading:
        """How tasks read them."""
        return Reading(self.schema.dtype, self.weighted)

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


def _are_weighted(parts: Split) -> bool:
    return parts.ncollections == 2


def block_numbers(partition: Partition) -> IntArray:
    """Return the position along axis 0 of each block of a partition of points."""
    return np.array([index[0] for index in partition.get_indexes()], np.int64)
