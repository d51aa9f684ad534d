"""Find all neighbours within a radius in one tree, and merge the results of several trees.

Pure functions on arrays, like :mod:`spliter_apps.neighbors.kernel`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from spliter_apps.neighbors.tree import Floats, Ints, Tree, convert_queries, nbytes, query_radius


@dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """Neighbours of all queries, concatenated.

    n_queries: Number of queries.
    rows (ndarray of intp, shape (n,)): The query that each neighbour belongs to, ascending.
    distances (ndarray of float64, shape (n,))
    items (ndarray of int64, shape (n,)): Global row number of each neighbour; ascending within a
        query.
    targets (ndarray of shape (n,) or (n, n_outputs), or None): Target of each neighbour, if
        requested.
    """

    n_queries: int
    rows: npt.NDArray[np.intp]
    distances: Floats
    items: Ints
    targets: npt.NDArray[Any] | None = None

    def __sizeof__(self) -> int:
        """Return the bytes of the arrays."""
        return 500 + sum(map(nbytes, (self.rows, self.distances, self.items, self.targets)))

    def picked(self, which: npt.NDArray[Any]) -> Neighbourhoods:
        """Return some of the neighbours by their index, or all in another order."""
        return Neighbourhoods(
            self.n_queries,
            self.rows[which],
            self.distances[which],
            self.items[which],
            None if self.targets is None else self.targets[which],
        )

    def without(self, own: Ints) -> Neighbourhoods:
        """Return the neighbours other than the queries themselves, given their row numbers."""
        return self.picked(self.items != own[self.rows])

    def by_distance(self) -> Neighbourhoods:
        """Return the neighbours of each query ordered by distance, then by row number."""
        return self.picked(np.lexsort((self.items, self.distances, self.rows)))

    def starts(self) -> npt.NDArray[np.intp]:
        """Return where each query's neighbours start, and the end; shape (n_queries + 1,)."""
        return np.searchsorted(self.rows, np.arange(self.n_queries + 1))

    def one_array_each(self, values: npt.NDArray[Any]) -> npt.NDArray[np.object_]:
        """Cut values, one per neighbour, into an array per query."""
        cut = np.empty(self.n_queries, dtype=object)
        starts = self.starts().tolist()
        for row in range(self.n_queries):
            cut[row] = values[starts[row] : starts[row + 1]]
        return cut

    def as_arrays(
        self, return_distance: bool, by_distance: bool
    ) -> tuple[npt.NDArray[np.object_], ...]:
        """Return arrays of distances (if requested) and row numbers, ordered by one of them."""
        ordered = self.by_distance() if by_distance else self
        items = ordered.one_array_each(ordered.items)
        return (ordered.one_array_each(ordered.distances), items) if return_distance else (items,)

    def as_graph(self, n_items: int, with_distances: bool, by_distance: bool) -> tuple[Any]:
        """Return a matrix of shape (n_queries, n_items) with the distance, or 1, of neighbours."""
        ordered = self.by_distance() if by_distance else self
        values = ordered.distances if with_distances else np.ones(len(ordered.items))
        shape = (ordered.n_queries, n_items)
        return (sparse.csr_matrix((values, ordered.items, ordered.starts()), shape=shape),)


def within(tree: Tree, points: Any, radius: float, *, with_targets: bool = False) -> Neighbourhoods:
    """Return all neighbours within an inclusive radius in one tree, which may be empty.

    They are ordered by query, then by row number.

    Examples
    --------
    >>> from spliter_apps.neighbors.metric import Search
    >>> from spliter_apps.neighbors.tree import build_tree
    >>> tree = build_tree(np.array([[2.0], [5.0], [1.0]]), np.arange(3), Search("kd_tree"))
    >>> within(tree, np.array([[0.0]]), 2.0).items
    array([0, 2])
    """
    n_queries = points.shape[0]
    rows = places = np.empty(0, dtype=np.intp)
    distances = np.empty(0)
    if n_queries and len(tree):
        rows, distances, places = query_radius(tree, convert_queries(points, tree), radius)
    targets = tree.targets[places] if with_targets and tree.targets is not None else None
    return _by_item(Neighbourhoods(n_queries, rows, distances, tree.items[places], targets))


def merge_within(found: Sequence[Neighbourhoods]) -> Neighbourhoods:
    """Merge the neighbours found in trees of different points, for the same queries."""
    if len(found) == 1:
        return found[0]
    targets = None
    if found[0].targets is not None:
        targets = np.concatenate([each.targets for each in found])
    return _by_item(
        Neighbourhoods(
            found[0].n_queries,
            np.concatenate([each.rows for each in found]),
            np.concatenate([each.distances for each in found]),
            np.concatenate([each.items for each in found]),
            targets,
        )
    )


def _by_item(found: Neighbourhoods) -> Neighbourhoods:
    return found.picked(np.lexsort((found.items, found.rows)))
