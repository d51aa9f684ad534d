"""Find the k nearest neighbours in one tree, and merge the results of several trees.

Pure functions on arrays; nothing here depends on blocks or engines. Each tree holds the points of
one location with their global row numbers and returns k *candidates* for every query. Merging the
candidates of all trees leaves the k nearest of all points.

**Ties.** Among points at equal distance the one with the smallest row number comes first, so that
the result does not depend on which tree holds which point. scikit-learn returns an arbitrary choice
of the points tied at the k-th place. Therefore k + 1 neighbours are requested; for queries whose
last two are (nearly) equally far, more are requested until one is farther.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from spliter_apps.neighbors.tree import (
    BATCH_ELEMENTS,
    Floats,
    Ints,
    Tree,
    build_tree,
    convert_queries,
    distinct,
    exact_distances,
    nbytes,
    query_nearest,
    search_radius,
)

__all__ = ["Candidates", "Tree", "build_tree", "merge_nearest", "nearest"]

MORE = 4
"""Growth factor of the number of requested neighbours while the last one is tied."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """Neighbours of each query, ordered by distance, then by row number.

    distances (ndarray of float64, shape (n_queries, k)): Distances, ascending.
    items (ndarray of int64, shape (n_queries, k)): Global row numbers of the neighbours.
    targets (ndarray of shape (n_queries, k) or (n_queries, k, n_outputs), or None): Their targets,
        if requested.
    """

    distances: Floats
    items: Ints
    targets: npt.NDArray[Any] | None = None

    def __sizeof__(self) -> int:
        """Return the bytes of the arrays."""
        return 500 + sum(map(nbytes, (self.distances, self.items, self.targets)))

    def columns(self, chosen: npt.NDArray[np.intp]) -> Candidates:
        """Return the neighbours in columns of shape (n_queries, m), which may differ by query."""
        rows = np.arange(len(self.items))[:, None]
        targets = None if self.targets is None else self.targets[rows, chosen]
        return Candidates(self.distances[rows, chosen], self.items[rows, chosen], targets)

    def without(self, own: Ints) -> Candidates:
        """Return the neighbours other than the query itself, one column less.

        `own` are the row numbers of the queries. If a query is not among its neighbours (it has
        many duplicates), its last neighbour is dropped.
        """
        # Stable: moves the query last and keeps the order of the others.
        order = np.argsort(self.items == own[:, None], axis=1, kind="stable")
        return self.columns(order[:, :-1])

    def as_arrays(self, return_distance: bool) -> tuple[npt.NDArray[Any], ...]:
        """Return distances (if requested) and row numbers."""
        return (self.distances, self.items) if return_distance else (self.items,)

    def as_graph(self, n_items: int, with_distances: bool) -> tuple[Any]:
        """Return a matrix of shape (n_queries, n_items) with the distance, or 1, of neighbours.

        Columns are in the order of the neighbours.
        """
        n_queries, k = self.items.shape
        values = self.distances.ravel() if with_distances else np.ones(self.items.size)
        starts = np.arange(n_queries + 1, dtype=np.int64) * k
        shape = (n_queries, n_items)
        return (sparse.csr_matrix((values, self.items.ravel(), starts), shape=shape),)


def nearest(tree: Tree, points: Any, k: int, *, with_targets: bool = False) -> Candidates:
    """Return the ``min(k, len(tree))`` nearest neighbours in one tree, which may be empty.

    Examples
    --------
    >>> from spliter_apps.neighbors.metric import Search
    >>> tree = build_tree(np.ones((3, 1)), np.array([4, 0, 2]), Search("ball_tree"))
    >>> nearest(tree, np.zeros((1, 1)), 2)
    Candidates(distances=array([[1., 1.]]), items=array([[0, 2]]), targets=None)
    """
    k = min(k, len(tree))
    if k and points.shape[0]:
        distances, places = _nearest(tree, convert_queries(points, tree), k)
    else:
        distances = np.empty((points.shape[0], k))
        places = np.empty((points.shape[0], k), dtype=np.intp)
    targets = tree.targets[places] if with_targets and tree.targets is not None else None
    return Candidates(distances, tree.items[places], targets)


def _nearest(tree: Tree, points: Any, k: int) -> tuple[Floats, npt.NDArray[np.intp]]:
    """Request one neighbour more than needed, and further ones in case of ties."""
    if tree.search.is_precomputed:
        return query_nearest(tree, points, k)  # already orders ties
    n_queried = min(k + 1, len(tree))
    distances, places = query_nearest(tree, points, n_queried)
    tied = np.flatnonzero(_is_tied(tree, points, distances, k))
    distances, places = _in_order(tree, points, distances, places, k)
    if len(tied):
        rows, back = distinct(points[tied])
        settled = _resolve_ties(tree, rows, k, n_queried)
        distances[tied], places[tied] = settled[0][back], settled[1][back]
    return distances, places


def _resolve_ties(
    tree: Tree, points: Any, k: int, n_queried: int
) -> tuple[Floats, npt.NDArray[np.intp]]:
    """Request more and more neighbours of queries until their k nearest are unambiguous."""
    best = np.empty((points.shape[0], k))
    at_places = np.empty((points.shape[0], k), dtype=np.intp)
    open_rows = np.arange(points.shape[0])
    while len(open_rows):
        n_queried = min(n_queried * MORE, len(tree))
        size = max(BATCH_ELEMENTS // n_queried, 1)
        still_open = []
        for start in range(0, len(open_rows), size):
            rows = open_rows[start : start + size]
            queries = points[rows]
            distances, places = query_nearest(tree, queries, n_queried)
            tied = _is_tied(tree, queries, distances, k)
            best[rows], at_places[rows] = _in_order(tree, queries, distances, places, k)
            still_open.append(rows[tied])
        open_rows = np.concatenate(still_open)
    return best, at_places


def _is_tied(tree: Tree, points: Any, distances: Floats, k: int) -> npt.NDArray[np.bool_]:
    """Return whether points that were not returned may be as near as the k-th that was."""
    if distances.shape[1] == len(tree):
        return np.zeros(len(distances), dtype=np.bool_)
    return distances[:, -1] <= search_radius(tree, points, distances[:, k - 1])


def _in_order(
    tree: Tree, points: Any, distances: Floats, places: npt.NDArray[np.intp], k: int
) -> tuple[Floats, npt.NDArray[np.intp]]:
    """Return the k nearest by exact distance and row number."""
    if tree.search.recomputes:
        rows = np.repeat(np.arange(len(places)), places.shape[1])
        distances = exact_distances(tree, points, rows, places.ravel()).reshape(places.shape)
    order = np.lexsort((tree.items[places], distances), axis=-1)[:, :k]
    at = np.arange(len(places))[:, None]
    return distances[at, order], places[at, order]


def merge_nearest(candidates: Sequence[Candidates], k: int) -> Candidates:
    """Return the at most `k` nearest of the neighbours found in trees of different points.

    Examples
    --------
    >>> one = Candidates(np.array([[1.0, 3.0]]), np.array([[5, 1]]))
    >>> other = Candidates(np.array([[1.0, 2.0]]), np.array([[4, 0]]))
    >>> merge_nearest([one, other], 3).items
    array([[4, 5, 0]])
    """
    if len(candidates) == 1 and candidates[0].items.shape[1] <= k:
        return candidates[0]
    distances = np.concatenate([found.distances for found in candidates], axis=1)
    items = np.concatenate([found.items for found in candidates], axis=1)
    targets = None
    if candidates[0].targets is not None:
        targets = np.concatenate([found.targets for found in candidates], axis=1)
    order = np.lexsort((items, distances), axis=-1)[:, :k]
    return Candidates(distances, items, targets).columns(order)
