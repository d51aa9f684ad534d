"""Search index of the points at one location, built with SciPy or scikit-learn.

SciPy's k-d tree serves Minkowski distances, scikit-learn all others.

**Threads.** A query writes counters into scikit-learn's tree object. Threads that query the same
object contend for the cache line that holds them, so each query uses a copy of the object. The copy
shares all arrays with the original and takes microseconds. SciPy's tree is read-only during a
query, and copying it would copy its arrays.

**Rounding.** With brute force scikit-learn computes Euclidean distances from a matrix product;
pairs at equal distance may then differ in the last digits, depending on their position in the
matrix. SciPy's tree does not return the distances of points within a radius. Such distances are
recomputed from the coordinate differences.

The error of the product grows with the squared norms of the points, and each point nearer than the
k-th neighbour plus the error has to be compared exactly. Points far from zero are therefore
searched after subtracting their mean, which does not change their distances.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.spatial import cKDTree

from spliter_apps._blocks import dense
from spliter_apps.neighbors.metric import TREES, Search
from spliter_apps.neighbors.precomputed import nearest_precomputed, within_radius_precomputed

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

BATCH_ELEMENTS = 2**21
"""Maximum number of elements of a temporary array whose size depends on the data."""

NODE_NBYTES = 72
"""Bytes of a node of SciPy's tree."""

CACHE_NBYTES = 2**20
"""Bytes of points of a tree above which its queries are sorted by locality: about a core's
second-level cache. In 8 dimensions it saves 6 % of the time for 25,000 points and 16 % for 100,000
on an idle machine, 16 % and 43 % if other processes use the caches too."""

CENTRE_FROM = 1e4
"""Subtract the mean if it reduces the largest squared norm by this factor, at the price of a copy
of the points. Below, the rounding error in 20 columns is at most a billionth of the squared spread,
too little to cause ties."""


@dataclass(frozen=True, eq=False)
class Tree:
    """Points with their search index, global row numbers and targets.

    search: Algorithm and metric.
    points (ndarray or CSR matrix of shape (n, n_features)): The points; the index refers to the
        same memory.
    items (ndarray of int64, shape (n,)): Global row numbers of the points.
    index: The search index; ``None`` if there are no points, or the queries are distances.
    targets (ndarray of shape (n,) or (n, n_outputs), or None): Labels or values of the points.
    largest: Largest squared norm of the indexed points if the search rounds: it bounds the error.
    centre (ndarray of float64, shape (n_features,), or None): Subtracted from the indexed points;
        must be subtracted from queries too.
    """

    search: Search
    points: Any
    items: Ints
    index: Any
    targets: npt.NDArray[Any] | None = None
    largest: float = 0.0
    centre: Floats | None = None

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.items)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without SciPy's tree, which is faster to rebuild than to unpickle."""
        if isinstance(self.index, cKDTree):
            return build_tree, (self.points, self.items, self.search, self.targets)
        return Tree, tuple(getattr(self, field.name) for field in fields(self))

    def __sizeof__(self) -> int:
        """Return the bytes of the arrays, for engines that account for memory."""
        held = [nbytes(self.points), self.items.nbytes, nbytes(self.targets)]
        if self.centre is not None:
            held.append(nbytes(self.points))  # the centred copy
        if isinstance(self.index, cKDTree):
            held += [self.index.indices.nbytes, self.index.size * NODE_NBYTES]
        elif self.search.algorithm in TREES and self.index is not None:
            held += [array.nbytes for array in self.index.get_arrays()[1:]]
        return 1000 + sum(held)


def nbytes(array: Any) -> int:
    """Return the bytes of an array or sparse matrix; 0 for ``None``."""
    if array is None:
        return 0
    if sparse.issparse(array):
        held: Any = array
        return int(held.data.nbytes + held.indices.nbytes + held.indptr.nbytes)
    return int(array.nbytes)


def build_tree(
    points: Any, items: Ints, search: Search, targets: npt.NDArray[Any] | None = None
) -> Tree:
    """Build the search tree of points, which may be none.

    The points are of dtype ``search.dtype``, and not copied if in C order; `items` are their row
    numbers.

    Examples
    --------
    >>> tree = build_tree(np.array([[0.0], [1.0]]), np.array([7, 3]), Search("kd_tree"))
    >>> len(tree), tree.items
    (2, array([7, 3]))
    """
    if not sparse.issparse(points):
        points = np.ascontiguousarray(points)
    if not len(items):
        return Tree(search, points, items, None, targets)
    if not search.rounds:
        return Tree(search, points, items, search.index(points), targets)
    largest = float(_squared_norms(points).max())
    centred, centre = _centred(points, largest)
    if centre is not None:
        largest = float(_squared_norms(centred).max())
    return Tree(search, points, items, search.index(centred), targets, largest, centre)


def _centred(points: Any, largest: float) -> tuple[Any, Floats | None]:
    """Return centred points and their mean, if that makes their norms much smaller."""
    if sparse.issparse(points):
        return points, None
    with np.errstate(over="ignore"):
        mean = points.mean(axis=0)
        # If centring shortens the points much, their norms are close to that of the mean.
        if not mean @ mean > largest / 2:
            return points, None
        centred = points - mean
        far = _squared_norms(centred).max() * CENTRE_FROM <= largest < np.inf
    return (centred, mean) if far else (points, None)


def _as_searched(tree: Tree, points: Any) -> Any:
    return points if tree.centre is None else points - tree.centre


def convert_queries(points: Any, tree: Tree) -> Any:
    """Convert queries to the type of a tree's points: dense or sparse, and their dtype."""
    dtype = tree.search.dtype
    if tree.search.is_precomputed:
        return points
    if sparse.issparse(tree.points):
        return sparse.csr_matrix(points, dtype=dtype)
    return np.ascontiguousarray(dense(points), dtype=dtype)


def query_nearest(tree: Tree, points: Any, k: int) -> tuple[Floats, npt.NDArray[np.intp]]:
    """Return the k nearest points; the choice among ties is arbitrary.

    The tree has at least `k` points, and the queries were converted by :func:`convert_queries`.
    Returns ascending distances and indexes into the tree's points, of shape (n_queries, k).
    """
    if tree.search.is_precomputed:
        return nearest_precomputed(points, k)
    if tree.search.order is not None:
        return _query_scipy_tree(tree, points, k)
    index = copy.copy(tree.index)
    if tree.search.algorithm in TREES:
        distances, places = index.query(points, k)
    else:
        distances, places = index.kneighbors(_as_searched(tree, points), k)
    return np.asarray(distances, dtype=np.float64), places


def _query_scipy_tree(tree: Tree, points: Any, k: int) -> tuple[Floats, npt.NDArray[np.intp]]:
    """Query nearby points consecutively, so that they find parts of the tree in the cache."""
    # Not needed if the whole tree fits the cache.
    in_turn = tree.points.nbytes > CACHE_NBYTES
    order: Any = cKDTree(points).indices if in_turn else slice(None)
    # A list of k, as for a single k of 1 SciPy drops an axis of the results.
    numbers = np.arange(1, k + 1)
    found = tree.index.query(points[order], numbers, p=tree.search.order)
    distances, places = np.empty((len(points), k)), np.empty((len(points), k), dtype=np.intp)
    distances[order], places[order] = found
    return distances, places


def query_radius(
    tree: Tree, points: Any, radius: float
) -> tuple[npt.NDArray[np.intp], Floats, npt.NDArray[np.intp]]:
    """Return all points within an inclusive radius, in any order: queries, distances and indexes.

    The tree is not empty, and the queries were converted by :func:`convert_queries`. The numbers of
    the queries are ascending; the indexes are those of the tree's points.
    """
    if tree.search.is_precomputed:
        return within_radius_precomputed(points, radius)
    n_queried = radius
    if tree.search.recomputes:
        n_queried = float(np.max(search_radius(tree, points, np.full(points.shape[0], radius))))
    index = tree.index
    places: Any
    distances: Any = ()  # not requested if they are recomputed
    if (order := tree.search.order) is not None:
        places = index.query_ball_point(points, n_queried, p=order)
    elif tree.search.algorithm in TREES:
        places, distances = copy.copy(index).query_radius(points, n_queried, return_distance=True)
    else:
        distances, places = copy.copy(index).radius_neighbors(_as_searched(tree, points), n_queried)
    rows = np.repeat(np.arange(len(places)), [len(found) for found in places])
    flat = np.concatenate(places).astype(np.intp, copy=False)
    if not tree.search.recomputes:
        return rows, np.concatenate(distances).astype(np.float64, copy=False), flat
    exact = exact_distances(tree, points, rows, flat)
    kept = exact <= radius
    return rows[kept], exact[kept], flat[kept]


def search_radius(tree: Tree, points: Any, distances: Floats) -> Floats:
    """Return upper bounds of the computed distances of points that may be as near as given.

    They are the distances, one for each query, plus the largest rounding error.
    """
    if not tree.search.rounds:
        # The bounds by which a tree skips its branches are rounded.
        return distances * (1 + 1e-12)
    # Each term of the product is at most the larger squared norm; subtracting the mean adds a
    # rounding error of the same order to each.
    terms = 8 * (tree.points.shape[1] + 4)
    norms = _squared_norms(_as_searched(tree, points))
    error = terms * np.finfo(np.float64).eps * (norms + tree.largest)
    if tree.search.metric == "sqeuclidean":
        return np.asarray(distances + error)
    return np.asarray(np.sqrt(distances**2 + error))


def exact_distances(
    tree: Tree, points: Any, rows: npt.NDArray[np.intp], places: npt.NDArray[np.intp]
) -> Floats:
    """Return the distances of pairs, computed from their coordinate differences.

    `rows` and `places` are the query and the point of the tree of each pair. Distances are squared
    for the metric ``"sqeuclidean"``.
    """
    found = np.empty(len(rows))
    size = max(BATCH_ELEMENTS // max(tree.points.shape[1], 1), 1)
    for start in range(0, len(rows), size):
        at = slice(start, start + size)
        found[at] = _norms(points[rows[at]] - tree.points[places[at]], tree.search)
    return found


def _norms(differences: Any, search: Search) -> Floats:
    """Return the distances of pairs with these coordinate differences."""
    order = 2 if search.order is None else search.order
    if order == 2:
        squared = _squared_norms(differences)
        return squared if search.metric == "sqeuclidean" else np.sqrt(squared)
    return np.asarray(np.linalg.norm(differences, ord=order, axis=1))


def _squared_norms(points: Any) -> Floats:
    if hasattr(points, "multiply"):
        return np.asarray(points.multiply(points).sum(axis=1), dtype=np.float64).ravel()
    return np.asarray(np.einsum("ij,ij->i", points, points), dtype=np.float64)


def distinct(points: Any) -> tuple[Any, npt.NDArray[np.intp]]:
    """Return the distinct rows, and the index of each row among them; sparse rows unchanged."""
    if not isinstance(points, np.ndarray):
        return points, np.arange(points.shape[0])
    rows, back = np.unique(points, axis=0, return_inverse=True)
    return rows, back.ravel()
