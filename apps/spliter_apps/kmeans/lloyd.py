"""Lloyd's algorithm on partitions: one task per partition in each iteration.

A task returns the sums of its points by their nearest centre, as big as the centres. The client
adds the sums up, moves the centres and checks for convergence, in the order of scikit-learn:
relocate empty clusters, average, compare the shift of the centres with the tolerance. At the end
the points are labelled once more, so that labels and centres belong together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import add
from typing import Any

import numpy as np
import numpy.typing as npt

from spliter import Partition, gather
from spliter_apps._results import combine
from spliter_apps.kmeans.kernel import Farthest, Partial, assign, partial_sums
from spliter_apps.kmeans.pieces import FloatArray
from spliter_apps.kmeans.points import Points, Reading


@dataclass(frozen=True)
class Run:
    """Result of Lloyd's algorithm from one start.

    Parameters
    ----------
    centers : ndarray of float64, shape (n_clusters, n_features)
        The centres.
    inertia : float
        Weighted sum of the squared distances of the points to their centre.
    n_iter : int
        Number of iterations.
    n_used : int
        Number of clusters that have points.
    labels : list of (partition, future)
        Each future's result is a tuple whose first element is a list of arrays of labels,
        one per block.
    """

    centers: FloatArray
    inertia: float
    n_iter: int
    n_used: int
    labels: list[tuple[Partition, Any]]


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
        Maximum number of iterations.
    tol : float
        Iteration ends when the squared shifts of the centres add up to at most this. With 0
        that is scikit-learn's strict convergence: equal labels give the very same sums.
    report : callable, optional
        Gets a line for each iteration; costs a further pass in each.

    Returns
    -------
    Run
        The centres, and what belongs to them.
    """
    origin = points.origin_near(centers)
    moved, n_iter = np.inf, 0
    while n_iter < max_iter and moved > tol:
        sums = add_up(points, centers, origin)
        if not sums.weights.all():
            sums = _relocate(points, sums, centers, origin)
        new = averages(sums)
        moved = float(((new - centers) ** 2).sum())
        if report is not None:
            inertia = _label(points, centers, n_iter).inertia
            report(f"Iteration {n_iter}, inertia {inertia}.")
            if moved <= tol:
                report(f"Converged at iteration {n_iter}: {_reason(moved, tol)}")
        centers, n_iter = new, n_iter + 1
        origin = _updated_origin(origin, points.origin_near(centers), centers)
    return _label(points, centers, n_iter)


def add_up(points: Points, centers: FloatArray, origin: FloatArray) -> Partial:
    """Add up all points by their nearest centre: one pass.

    Parameters
    ----------
    points : Points
        The points.
    centers : ndarray of float64, shape (n_clusters, n_features)
        The centres.
    origin : ndarray of float64, shape (n_features,)
        A point near the data, see :func:`spliter_apps.kmeans.kernel.partial_sums`.

    Returns
    -------
    Partial
        Sums and weights of the clusters.
    """
    futures = points.parts.map(_add_up_partition, points.reading, centers, origin)
    sums: Partial = combine(add, futures, centers.nbytes)
    return sums


def _add_up_partition(
    partition: Partition, reading: Reading, centers: FloatArray, origin: FloatArray
) -> Partial:
    return partial_sums(reading.blocks(partition), centers, shift=origin, dtype=reading.dtype)


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


def _updated_origin(origin: FloatArray, new: FloatArray, centers: FloatArray) -> FloatArray:
    """Keep the origin as long as it is near the centres.

    In float32 the origin decides how sums are rounded: if it changed in every iteration, the
    centres would never come to rest.
    """
    is_near = ((new - origin) ** 2).sum() <= ((centers - new) ** 2).sum()
    return origin if is_near else new


def _reason(moved: float, tol: float) -> str:
    if moved == 0:
        return "strict convergence."
    return f"center shift {moved} within tolerance {tol}."


# --- empty clusters ---------------------------------------------------------------------------


def _relocate(points: Points, sums: Partial, centers: FloatArray, origin: FloatArray) -> Partial:
    """Give empty clusters the points that are farthest from their centres."""
    empty = np.flatnonzero(sums.weights == 0)
    # One list for tasks and rows: iterating the Split again may plan other partitions.
    partitions = list(points.parts)
    args = (points.reading, centers, origin, len(empty))
    futures = [partition.submit(_find_farthest, *args) for partition in partitions]
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


def _find_farthest(
    partition: Partition, reading: Reading, centers: FloatArray, origin: FloatArray, most: int
) -> Farthest:
    found = assign(
        reading.blocks(partition), centers, shift=origin, dtype=reading.dtype, farthest=most
    )
    return found.farthest


# --- labels -----------------------------------------------------------------------------------


def _label(points: Points, centers: FloatArray, n_iter: int) -> Run:
    """Label all points where they are."""
    # Rounded as the estimator keeps them, so that predicting gives the same labels.
    centers = centers.astype(points.schema.dtype).astype(np.float64)
    args = (points.reading, centers, points.origin_near(centers))
    partitions = list(points.parts)
    labels = [partition.submit(_label_partition, *args) for partition in partitions]
    summaries = [
        partition.submit(_summary, labelled)
        for partition, labelled in zip(partitions, labels, strict=True)
    ]
    found = gather(summaries)
    n_used = int(np.any([used for _, used in found], axis=0).sum())
    inertia = float(sum(inertia for inertia, _ in found))
    return Run(centers, inertia, n_iter, n_used, list(zip(partitions, labels, strict=True)))


def _label_partition(
    partition: Partition, reading: Reading, centers: FloatArray, origin: FloatArray
) -> tuple[list[npt.NDArray[np.int32]], float, npt.NDArray[np.bool_]]:
    """Label the points of a partition; the result stays there."""
    found = assign(
        reading.blocks(partition),
        centers,
        shift=origin,
        dtype=reading.dtype,
        n_rows=partition.shape[0],
    )
    return partition.cut(found.labels), found.inertia, found.used


def _summary(
    partition: Partition,
    labelled: tuple[list[npt.NDArray[np.int32]], float, npt.NDArray[np.bool_]],
) -> tuple[float, npt.NDArray[np.bool_]]:
    """Return the small part of labelling, inertia and used clusters, at the location."""
    _, inertia, used = labelled
    return inertia, used
