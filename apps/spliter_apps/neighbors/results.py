"""Convert found neighbours to the results of the estimators: arrays, arrays of arrays, graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from spliter_apps.neighbors.kernel import Candidates
from spliter_apps.neighbors.radius import Neighbourhoods

Array = npt.NDArray[Any]


def as_arrays(found: Candidates, return_distance: bool) -> tuple[Array, ...]:
    """Return distances (if requested) and row numbers of the nearest neighbours."""
    return (found.distances, found.items) if return_distance else (found.items,)


def as_graph(found: Candidates, n_items: int, with_distances: bool) -> tuple[Any]:
    """Return the nearest neighbours as the rows of one graph, of shape (n_queries, n_items).

    Columns are in the order of the neighbours. Edges are the distances, or 1.
    """
    n_queries, k = found.items.shape
    values = found.distances.ravel() if with_distances else np.ones(found.items.size)
    starts = np.arange(n_queries + 1, dtype=np.int64) * k
    return (sparse.csr_matrix((values, found.items.ravel(), starts), shape=(n_queries, n_items)),)


def as_arrays_of_arrays(
    found: Neighbourhoods, return_distance: bool, by_distance: bool
) -> tuple[npt.NDArray[np.object_], ...]:
    """Return distances (if requested) and row numbers of all neighbours within a radius.

    Elements are arrays, ordered by distance or by row number.
    """
    ordered = found.by_distance() if by_distance else found
    items = ordered.one_array_each(ordered.items)
    return (ordered.one_array_each(ordered.distances), items) if return_distance else (items,)


def as_radius_graph(
    found: Neighbourhoods, n_items: int, with_distances: bool, by_distance: bool
) -> tuple[Any]:
    """Return all neighbours within a radius as the rows of a graph; see :func:`as_graph`."""
    ordered = found.by_distance() if by_distance else found
    values = ordered.distances if with_distances else np.ones(len(ordered.items))
    shape = (ordered.n_queries, n_items)
    return (sparse.csr_matrix((values, ordered.items, ordered.starts()), shape=shape),)
