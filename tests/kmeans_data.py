"""Data for the tests of k-means, and what they compare."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, make_blobs

from spliter_apps.kmeans import KMeans

Array = npt.NDArray[Any]

DATASETS = ["digits", "breast cancer", "iris", "blobs"]
NBLOCKS = [1, 7, 200]
K = 8


@cache
def dataset(name: str) -> Array:
    """Points of a well-known data set."""
    if name == "blobs":
        return np.asarray(make_blobs(1500, n_features=5, centers=10, random_state=5)[0])
    load = {"digits": load_digits, "breast cancer": load_breast_cancer, "iris": load_iris}[name]
    return np.asarray(load().data)


def heights(n_rows: int, n_blocks: int) -> list[int]:
    """Uneven heights of blocks, some of them zero where there are many."""
    cuts = np.sort(np.random.default_rng(n_blocks).integers(0, n_rows + 1, n_blocks - 1))
    return [int(height) for height in np.diff([0, *cuts, n_rows])]


def start(points: Array, n_clusters: int = K, seed: int = 0) -> Array:
    """First centres near points, but off the lattice that measured data is on.

    On it points are equally far from two centres, and which one gets them is decided by the last
    bit: another one here than in scikit-learn.
    """
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(points), n_clusters, replace=False)
    return np.asarray(points[chosen] + 1e-3 * points.std() * rng.normal(size=points[chosen].shape))


def assert_same(ours: KMeans, theirs: Any, labels: Array, rtol: float = 1e-6) -> None:
    """Compare with what scikit-learn found."""
    assert ours.inertia_ == pytest.approx(theirs.inertia_, rel=rtol)
    assert ours.n_iter_ == theirs.n_iter_
    np.testing.assert_array_equal(labels, theirs.labels_)
    assert labels.dtype == theirs.labels_.dtype
    spread = np.abs(theirs.cluster_centers_).max()
    np.testing.assert_allclose(
        ours.cluster_centers_, theirs.cluster_centers_, rtol=rtol, atol=rtol * spread
    )
    assert ours.cluster_centers_.dtype == theirs.cluster_centers_.dtype
    assert ours.n_features_in_ == theirs.n_features_in_
