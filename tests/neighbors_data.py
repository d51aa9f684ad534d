"""Points to look for neighbours among, and what is expected of the neighbours found."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, make_blobs

Array = npt.NDArray[Any]


@cache
def dataset(name: str) -> tuple[Array, Array]:
    """Points and labels of a well-known data set, in an order that means nothing."""
    if name == "blobs":
        points, labels, *_ = make_blobs(1500, n_features=5, centers=10, random_state=5)
    else:
        load = {"digits": load_digits, "breast cancer": load_breast_cancer, "iris": load_iris}[name]
        points, labels = load(return_X_y=True)
    order = np.random.default_rng(3).permutation(len(points))
    return np.ascontiguousarray(points[order]), np.asarray(labels[order])


def lattice(n: int = 300, n_features: int = 2, seed: int = 0) -> Array:
    """Points on a small lattice: nearly every distance is tied, many points are repeated."""
    values = np.random.default_rng(seed).integers(0, 6, (n, n_features))
    return values.astype(np.float64)


def by_distance_and_number(points: Array, queries: Array, k: int) -> tuple[Array, Array]:
    """Return the k nearest points in the order that is promised, by comparing all pairs."""
    squared = ((queries[:, None, :] - points[None]) ** 2).sum(axis=2)
    items = np.argsort(squared, axis=1, kind="stable")[:, :k]
    return np.sqrt(np.take_along_axis(squared, items, axis=1)), items


def assert_same_neighbours(ours: tuple[Array, Array], theirs: tuple[Array, Array]) -> None:
    """Compare with scikit-learn: neighbours may differ where their distances do not."""
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-9, atol=1e-6)
    assert ours[0].dtype == theirs[0].dtype and ours[1].dtype == theirs[1].dtype
    other = ours[1] != theirs[1]
    before = np.isclose(np.diff(theirs[0], axis=1), 0, atol=1e-6)
    tied = np.zeros_like(other)
    tied[:, 1:] |= before
    tied[:, :-1] |= before
    tied[:, -1] = True  # maybe with one that was not returned
    assert not (other & ~tied).any()


def named(options: dict[str, Any]) -> str:
    """Name a case the same in every process: an address in it would not be."""
    return re.sub(r" (at|object at) 0x[0-9a-f]+", "", str(options))


def manhattan(left: Array, right: Array) -> float:
    """A metric that is a Python function."""
    return float(np.abs(left - right).sum())
