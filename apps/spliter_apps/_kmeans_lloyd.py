"""Lloyd's algorithm on partitions: one task per partition and iteration.

A task returns the sums of its partition, a few kilobytes. The client adds them up, in the order
of the partitions if these are few, makes the new centres of them and sends these with the next
tasks. What the iteration does is what scikit-learn's does, in the same order: relocate empty
clusters, average, compare the shift of the centres with the tolerance; at the end assign the
points once more, so that labels and centres belong together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import add
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter import Partition, gather, task
from spliter_apps._kmeans_kernel import Farthest, Partial, assign, partial_sums
from spliter_apps._kmeans_look import Reading, near
from spliter_apps._kmeans_pieces import FloatArray
from spliter_apps._kmeans_points import Points
from spliter_apps._results import combine

Summary: TypeAlias = tuple[float, npt.NDArray[np.bool_]]
"""Inertia, and which clusters have points: what of an assignment has to travel."""


@dataclass(frozen=True)
class Run:
    """Where Lloyd's algorithm has ended.

    Parameters
    ----------
    centers : ndarray of float64, shape (n_clusters, n_features)
        The centres.
    inertia : float
        Weighted sum of the squared distances to them.
    n_iter : int
        Iterations made.
    n_used : int
        How many of the clusters have points.
    labels : list of (partition, future)
        Each future's result is a tuple whose first element is a list of arrays of labels,
        one per block.
    """

    centers: FloatArray
    inertia: float
    n_iter: int
    n_used: int
    labels: list[tuple[Partition, Any]]


@task
def _sum(partition: Partition, reading: Reading, centers: FloatArray, shift: FloatArray) -> Partial:
    """Add up the points of a partition by their nearest centre."""
    return partial_sums(reading.blocks(partition), centers, shift=shift, dtype=reading.dtype)


@task
def _find_farthest(
    partition: Partition, reading: Reading, centers: FloatArray, shift: FloatArray, most: int
) -> Farthest:
    """Find the points of a partition that are farthest from their centre."""
    found = assign(
        reading.blocks(partition), centers, shift=shift, dtype=reading.dtype, farthest=most
    )
    return found.farthest


@task
def _assign(
    partition: Partition, reading: Reading, centers: FloatArray, shift: FloatArray
) -> tuple[list[npt.NDArray[np.int32]], Summary]:
    """Label the points of a partition; the labels stay where they are."""
    found = assign(reading.blocks(partition), centers, shift=shift, dtype=reading.dtype)
    return partition.cut(found.labels), (found.inertia, found.used)


@task
def _summary(partition: Partition, assigned: tuple[Any, Summary]) -> Summary:
    """Return the small part of an assignment, where the assignment is."""
    return assigned[1]


def total(points: Points, centers: FloatArray, shift: FloatArray) -> Partial:
    """Make one pass over all points.

    Parameters
    ----------
    points : Points
        The points.
    centers : ndarray of float64, shape (n_clusters, n_features)
        Centres.
    shift : ndarray of float64, shape (n_features,)
        A point near the data.

    Returns
    -------
    Partial
        Sums and weights of the clusters of all points.
    """
    if points.begun is not None and np.array_equal(points.begun[0], centers):
        return points.begun[1]
    partitions = list(points.parts)  # before the message is begun: this may plan them anew
    with points.parts.together():
        partials = [_sum(partition, points.reading, centers, shift) for partition in partitions]
    found: Partial = combine(add, partials, centers.nbytes)
    return found


def lloyd(
    points: Points,
    centers: FloatArray,
    *,
    max_iter: int,
    tol: float,
    report: Callable[[str], None] | None = None,
) -> Run:
    """Move centres to the means of their points until they stay.

    Parameters
    ----------
    points : Points
        The points.
    centers : ndarray of float64, shape (n_clusters, n_features)
        Where to start.
    max_iter : int
        Most iterations.
    tol : float
        Sum of the squared shifts of the centres up to which they count as staying.
    report : callable, optional
        Gets a line for each iteration; costs a further pass in each.

    Returns
    -------
    Run
        The centres, and what belongs to them.
    """
    shift = near(points.schema, centers)
    n_iter = 0
    for n_iter in range(1, max_iter + 1):
        before, shift = centers, _kept(points, shift, centers)
        sums = total(points, before, shift)
        if not sums.weights.all():
            sums = _relocated(points, before, shift, sums)
        centers = averages(sums)
        if report is not None:
            inertia, _, _ = assigned(points, before)
            report(f"Iteration {n_iter - 1}, inertia {inertia}.")
        moved = float(((centers - before) ** 2).sum())
        # Labels that stay the same give the very same sums, so this is the strict convergence
        # of scikit-learn as well, without comparing labels.
        if moved <= tol:
            if report is not None:
                why = (
                    "strict convergence."
                    if moved == 0
                    else (f"center shift {moved} within tolerance {tol}.")
                )
                report(f"Converged at iteration {n_iter - 1}: {why}")
            break
    # Rounded as they will be kept, so that predicting gives the same labels.
    centers = centers.astype(points.schema.dtype).astype(np.float64)
    inertia, used, labels = assigned(points, centers)
    return Run(centers, inertia, n_iter, int(used.sum()), labels)


def _kept(points: Points, shift: FloatArray, centers: FloatArray) -> FloatArray:
    """Return the same shift as long as it is near the centres.

    In float32 it decides how sums are rounded, and unless it stays, centres never quite do.
    """
    now = near(points.schema, centers)
    away = float(((now - shift) ** 2).sum())
    return shift if away <= float(((centers - now) ** 2).sum()) else now


def averages(sums: Partial) -> FloatArray:
    """Return the means of clusters; a cluster without weight gets that of the heaviest one.

    Parameters
    ----------
    sums : Partial
        Of all points.

    Returns
    -------
    ndarray of float64, shape (n_clusters, n_features)
        New centres.

    Examples
    --------
    >>> averages(Partial(np.array([[6.0], [0.0]]), np.array([3.0, 0.0])))
    array([[2.],
           [2.]])
    """
    has_weight = sums.weights > 0
    centers: FloatArray = sums.sums / np.where(has_weight, sums.weights, 1.0)[:, None]
    centers[~has_weight] = centers[sums.weights.argmax()]
    return centers


def _relocated(points: Points, centers: FloatArray, shift: FloatArray, sums: Partial) -> Partial:
    """Give empty clusters the points that are farthest from their centres."""
    empty = np.flatnonzero(sums.weights == 0)
    # One look at the partitions: starting an iteration may plan them anew.
    partitions = list(points.parts)
    args = (points.reading, centers, shift, len(empty))
    with points.parts.together():
        futures = [_find_farthest(partition, *args) for partition in partitions]
    found = gather(futures)
    farthest = Farthest.of(
        [
            one.counted(points.global_rows(partition, one.rows))
            for partition, one in zip(partitions, found, strict=True)
        ],
        len(empty),
    )
    new = Partial(sums.sums.copy(), sums.weights.copy())
    if not farthest.distances.any():
        # More clusters than different points.
        return new
    for at, cluster in enumerate(empty[: len(farthest.rows)]):
        old, weight = farthest.labels[at], farthest.weights[at]
        new.sums[old] -= weight * farthest.points[at]
        new.sums[cluster] = weight * farthest.points[at]
        new.weights[old] -= weight
        new.weights[cluster] = weight
    return new


def assigned(
    points: Points, centers: FloatArray
) -> tuple[float, npt.NDArray[np.bool_], list[tuple[Partition, Any]]]:
    """Assign all points to centres.

    Parameters
    ----------
    points : Points
        The points.
    centers : ndarray of float64, shape (n_clusters, n_features)
        Centres.

    Returns
    -------
    inertia : float
        Weighted sum of the squared distances.
    used : ndarray of bool, shape (n_clusters,)
        Which clusters have points.
    labels : list of (partition, future)
        As in :class:`Run`.
    """
    args = (points.reading, centers, near(points.schema, centers))
    partitions = list(points.parts)
    with points.parts.together():
        labels = [(partition, _assign(partition, *args)) for partition in partitions]
        summaries = [_summary(partition, future) for partition, future in labels]
    found = gather(summaries)
    inertia = sum(inertia for inertia, _ in found)
    return inertia, np.any([used for _, used in found], axis=0), labels
