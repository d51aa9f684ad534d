"""Lloyd's algorithm on partitions, and labels for given centres.

In each iteration one task per partition returns the sums of its points by their nearest centre.
The client adds these, moves the centres and checks for convergence in the same order as
scikit-learn: relocate empty clusters, average, compare the shift of the centres with the
tolerance. A final pass labels the points, so that labels and centres agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import add
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.metrics.pairwise import euclidean_distances

from spliter import Partition, gather, task
from spliter_apps._requirements import Requirements
from spliter_apps._results import combine
from spliter_apps.kmeans.kernel import (
    Assignment,
    FarthestPoints,
    FloatArray,
    Labels,
    PartialSums,
    assign,
    farthest_of,
    farthest_points,
    partial_sums,
)
from spliter_apps.kmeans.points import BlockReader, Points, check_point_weights


@dataclass(frozen=True)
class LloydRun:
    """Result of Lloyd's algorithm from one start."""

    centers: FloatArray
    inertia: float
    n_iter: int
    n_used: int
    """Number of clusters that have points."""
    labels: list[tuple[Partition, Any]]
    """Each partition with the future of a pair, whose first element is its blocks' labels."""


def lloyd(
    points: Points,
    centers: FloatArray,
    *,
    max_iter: int,
    tol: float,
    report: Callable[[str], None] | None = None,
) -> LloydRun:
    """Move centres to the means of their points until they converge.

    Iteration ends when the squared shifts of the centres add up to at most `tol`. With 0 this is
    scikit-learn's strict convergence: equal labels give bitwise equal sums. `report` gets a line
    for each iteration, which costs one more pass each.
    """
    moved, n_iter = np.inf, 0
    while n_iter < max_iter and moved > tol:
        if n_iter < 2:
            # The first centres may be far from the data, their means are not. Changing the origin
            # later would round the sums differently, and the centres would not converge.
            reader = points.reader(centers.mean(axis=0))
        sums = add_up(points, reader, centers)
        if not sums.weights.all():
            sums = _relocate(points, reader, centers, sums)
        new = averages(sums)
        moved = float(((new - centers) ** 2).sum())
        if report is not None:
            inertia = _label(points, centers, n_iter).inertia
            report(f"Iteration {n_iter}, inertia {inertia}.")
            if moved <= tol:
                shift = f"center shift {moved} within tolerance {tol}."
                why = shift if moved else "strict convergence."
                report(f"Converged at iteration {n_iter}: {why}")
        centers, n_iter = new, n_iter + 1
    return _label(points, centers, n_iter)


def add_up(points: Points, reader: BlockReader, centers: FloatArray) -> PartialSums:
    """Sum all points by their nearest centre, with one task per partition."""
    futures = points.parts.map(_add_up, reader, centers)
    sums: PartialSums = combine(add, futures, centers.nbytes)
    return sums


def _add_up(partition: Partition, reader: BlockReader, centers: FloatArray) -> PartialSums:
    blocks = reader.materialized(partition)
    return partial_sums(blocks, centers, origin=reader.origin, dtype=reader.dtype)


def averages(sums: PartialSums) -> FloatArray:
    """Return the means of clusters; a cluster without weight gets the mean of the heaviest one.

    Examples
    --------
    >>> averages(PartialSums(np.array([[6.0], [0.0]]), np.array([3.0, 0.0])))
    array([[2.],
           [2.]])
    """
    has_weight = sums.weights > 0
    centers: FloatArray = sums.sums / np.where(has_weight, sums.weights, 1.0)[:, None]
    centers[~has_weight] = centers[sums.weights.argmax()]
    return centers


# --- empty clusters ---------------------------------------------------------------------------


def _relocate(
    points: Points, reader: BlockReader, centers: FloatArray, sums: PartialSums
) -> PartialSums:
    """Move empty clusters to the points that are farthest from their centres."""
    empty = np.flatnonzero(sums.weights == 0)
    futures = points.parts.map(_find_farthest, reader, centers, len(empty))
    farthest = farthest_of(gather(futures), len(empty))
    new = PartialSums(sums.sums.copy(), sums.weights.copy())
    if not farthest.squared_distances.any():
        return new  # more clusters than distinct points
    for at, cluster in enumerate(empty[: len(farthest.rows)]):
        old, weight = farthest.labels[at], farthest.weights[at]
        new.sums[old] -= weight * farthest.points[at]
        new.sums[cluster] = weight * farthest.points[at]
        new.weights[old] -= weight
        new.weights[cluster] = weight
    return new


def _find_farthest(
    partition: Partition, reader: BlockReader, centers: FloatArray, most: int
) -> FarthestPoints:
    """Return the farthest points of a partition, with their global row numbers."""
    blocks = reader.materialized(partition)
    found = farthest_points(blocks, centers, most, origin=reader.origin, dtype=reader.dtype)
    return found._replace(rows=partition.get_item_indexes()[found.rows])


# --- labels of the fitted points --------------------------------------------------------------


def _label(points: Points, centers: FloatArray, n_iter: int) -> LloydRun:
    """Label all points at their locations; the labels stay there."""
    # Cast as the estimator stores them, so that predicting gives the same labels.
    centers = centers.astype(points.schema.dtype).astype(np.float64)
    reader = points.reader(centers.mean(axis=0))
    partitions = list(points.parts)
    labels = [partition.submit(_label_partition, reader, centers) for partition in partitions]
    found: list[Assignment] = gather(
        [
            partition.submit(_without_labels, labelled)
            for partition, labelled in zip(partitions, labels, strict=True)
        ]
    )
    n_used = int(np.any([one.used for one in found], axis=0).sum())
    inertia = float(sum(one.inertia for one in found))
    return LloydRun(centers, inertia, n_iter, n_used, list(zip(partitions, labels, strict=True)))


def _label_partition(
    partition: Partition, reader: BlockReader, centers: FloatArray
) -> tuple[list[Labels], Assignment]:
    blocks = reader.materialized(partition)
    found = assign(blocks, centers, origin=reader.origin, dtype=reader.dtype)
    return partition.cut(found.labels), replace(found, labels=found.labels[:0].copy())


def _without_labels(partition: Partition, labelled: tuple[list[Labels], Assignment]) -> Assignment:
    """Return the part of a labelling without the labels, which is small."""
    return labelled[1]


# --- labels and distances of other points -----------------------------------------------------


def nearest(block: Any, requirements: Requirements, centers: npt.NDArray[Any]) -> Labels:
    """Label the points of one block."""
    return _assign(block, requirements, centers, None, distances=False).labels


def distances(
    block: Any, requirements: Requirements, centers: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """Return the distances of the points of one block to all centres."""
    points = requirements.points(_points_of(block))
    if not points.shape[0]:
        return np.empty((0, len(centers)), requirements.dtype)
    if not sparse.issparse(points):
        # As in the fit: far from zero, the distances would be lost in the squares of coordinates.
        origin = centers.mean(axis=0)
        points, centers = points - origin, centers - origin
    return np.asarray(euclidean_distances(points, centers), requirements.dtype)


@task
def inertia(
    partition: Partition, requirements: Requirements, centers: npt.NDArray[Any], weighted: bool
) -> float:
    """Return the sum of the squared distances of a partition's points to their centres."""
    total = 0.0
    for index, block in partition.items():
        what = f"the weights of block {index}" if weighted else None
        total += _assign(block, requirements, centers, what, distances=True).inertia
    return total


def _assign(
    block: Any,
    requirements: Requirements,
    centers: npt.NDArray[Any],
    weights: str | None,
    distances: bool,
) -> Assignment:
    """Label one block; `weights` is the name of its weights in errors, None if it has none."""
    points = requirements.points(_points_of(block))
    own = None if weights is None else check_point_weights(block[1], points.shape[0], weights)
    return assign(
        [points if own is None else (points, own)],
        centers.astype(np.float64),
        origin=np.zeros(centers.shape[1]) if sparse.issparse(points) else None,
        dtype=requirements.dtype,
        distances=distances,
    )


def _points_of(block: Any) -> Any:
    """Return the points of a block, which may be paired with weights."""
    return block[0] if isinstance(block, tuple) else block
