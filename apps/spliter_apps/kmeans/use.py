"""Using centres that k-means has found: what runs at the blocks of points to predict for."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils._set_output import _get_output_config

from spliter import InvalidArgumentError, Partition, task
from spliter_apps._blocks import Expected
from spliter_apps._data import is_blocked
from spliter_apps.kmeans.kernel import assign
from spliter_apps.kmeans.points import checked_weights


def nearest(block: Any, expected: Expected, centers: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Label the points of one block."""
    points = expected.points(_first(block))
    shift = _shift(points, centers)
    found = assign(
        [(points, None)],
        centers.astype(np.float64),
        shift=shift,
        dtype=expected.dtype,
        distances=False,
        n_rows=points.shape[0],
    )
    return found.labels


def distances(block: Any, expected: Expected, centers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the distances of the points of one block to all centres."""
    points = expected.points(_first(block))
    if not points.shape[0]:
        return np.empty((0, len(centers)), expected.dtype)
    if not sparse.issparse(points):
        # As in the fit: far from zero the squares of coordinates would hide the distances.
        shift = centers.mean(axis=0)
        points, centers = points - shift, centers - shift
    found = euclidean_distances(points, centers)
    return np.asarray(found, expected.dtype)


@task
def inertia(
    partition: Partition, expected: Expected, centers: npt.NDArray[Any], weighted: bool
) -> float:
    """Add up the squared distances of a partition's points to their centres."""
    total = 0.0
    for index, block in partition.items():
        points = expected.points(_first(block))
        weights = None
        if weighted:
            what = f"the weights of block {index}"
            weights = checked_weights(block[1], points.shape[0], what)
        shift = _shift(points, centers)
        total += assign(
            [(points, weights)], centers.astype(np.float64), shift=shift, dtype=expected.dtype
        ).inertia
    return total


def _first(block: Any) -> Any:
    """Return the points of a block, which may come with weights."""
    return block[0] if isinstance(block, tuple) else block


def _shift(points: Any, centers: npt.NDArray[Any]) -> npt.NDArray[np.float64] | None:
    """Return where sparse points have to stay; others are free to move."""
    return np.zeros(centers.shape[1]) if sparse.issparse(points) else None


def refuse_container(estimator: Any, X: Any) -> None:
    """Refuse to transform points in blocks if the result is to be one DataFrame in memory.

    Parameters
    ----------
    estimator : transformer
        Of which ``set_output`` may have been called.
    X : object
        Its input.

    Raises
    ------
    InvalidArgumentError
        If it is blocked, and the output was set, for the estimator or globally.
    """
    container = _get_output_config("transform", estimator)["dense"]
    if container != "default" and is_blocked(X):
        raise InvalidArgumentError(
            f"transform_output is {container!r}, which makes one DataFrame in this process, and "
            "the points are in blocks; call set_output(transform='default') to have the result in "
            "blocks too. dask.dataframe.from_dask_array(result, columns=names) makes a Dask "
            "DataFrame of a Dask array, with names = list(estimator.get_feature_names_out())"
        )
