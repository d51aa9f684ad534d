"""Find neighbours in distances computed by the caller (``metric="precomputed"``).

A query is a row of distances to the training points: to all of them, or, in a sparse graph, to
some. Only explicit entries of a graph are neighbours, as in scikit-learn. Pure functions on arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from spliter import InvalidArgumentError

Floats: TypeAlias = npt.NDArray[np.float64]
Places: TypeAlias = npt.NDArray[np.intp]

GRAPH_FORMATS = ("csr", "csc", "coo", "lil")
"""Formats of sparse matrices that distinguish explicit zeros from missing entries."""

BATCH_ELEMENTS = 2**21
"""Distances of a dense matrix compared per step: temporary arrays of 16 MB each."""


def check_format(matrix: Any) -> None:
    """Reject a sparse matrix in a format that may drop distances of 0."""
    kind = getattr(matrix, "format", None)
    if sparse.issparse(matrix) and kind not in GRAPH_FORMATS:
        raise InvalidArgumentError(
            f"Sparse matrix in {kind!r} format is not supported due to its handling of "
            "explicit zeros; convert it with tocsr()"
        )


def check_not_negative(distances: Any) -> None:
    """Reject negative distances."""
    values = distances if isinstance(distances, np.ndarray) else distances.data
    if values.size and (least := values.min()) < 0:
        raise InvalidArgumentError(
            f"Negative values in data passed to X, a precomputed distance matrix: {least}; "
            "distances must be >= 0"
        )


def nearest_precomputed(distances: Any, k: int) -> tuple[Floats, Places]:
    """Return the k smallest distances of each row, ascending, and their columns.

    Ties are in the order of the columns. A row of a graph must have at least `k` entries.

    Examples
    --------
    >>> nearest_precomputed(np.array([[3.0, 1.0, 0.0, 1.0]]), 2)
    (array([[0., 1.]]), array([[2, 1]]))
    """
    check_not_negative(distances)
    n_queries = distances.shape[0]
    best, places = np.empty((n_queries, k)), np.empty((n_queries, k), dtype=np.intp)
    if sparse.issparse(distances):
        graph: Any = distances
        fewest = int(np.diff(graph.indptr).min(initial=graph.shape[1]))
        if fewest < k:
            raise InvalidArgumentError(
                f"{k} neighbors per samples are required, but some samples have only {fewest} "
                "neighbors in precomputed graph matrix. Decrease number of neighbors used or "
                "recompute the graph with more neighbors."
            )
        found = [(0, n_queries, *_edges(graph))]
    else:
        found = [
            (start, stop, *_up_to(batch, np.partition(batch, k - 1, axis=1)[:, k - 1 : k]))
            for start, stop, batch in _batches(distances)
        ]
    for start, stop, rows, values, columns in found:
        order = np.lexsort((columns, values, rows))
        first = np.searchsorted(rows, np.arange(stop - start))
        chosen = order[first[:, None] + np.arange(k)]
        best[start:stop], places[start:stop] = values[chosen], columns[chosen]
    return best, places


def within_radius_precomputed(distances: Any, radius: float) -> tuple[Places, Floats, Places]:
    """Return the row, the distance and the column of all distances up to a radius, row by row.

    Examples
    --------
    >>> within_radius_precomputed(np.array([[3.0, 1.0], [0.0, 2.0]]), 2.0)
    (array([0, 1, 1]), array([1., 0., 2.]), array([1, 0, 1]))
    """
    check_not_negative(distances)
    if sparse.issparse(distances):
        rows, values, columns = _edges(distances)
        kept = values <= radius
        return rows[kept], values[kept], columns[kept]
    found = []
    for start, _, batch in _batches(distances):
        rows, values, columns = _up_to(batch, np.full((len(batch), 1), radius))
        found.append((rows + start, values, columns))
    rows, values, columns = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    return rows, values, columns


def _edges(graph: Any) -> tuple[Places, Floats, Places]:
    rows = np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr))
    return rows, graph.data.astype(np.float64, copy=False), graph.indices.astype(np.intp)


def _batches(distances: npt.NDArray[Any]) -> Iterator[tuple[int, int, Floats]]:
    size = max(BATCH_ELEMENTS // max(distances.shape[1], 1), 1)
    for start in range(0, max(len(distances), 1), size):
        stop = min(start + size, len(distances))
        yield start, stop, distances[start:stop]


def _up_to(distances: Floats, bounds: Floats) -> tuple[Places, Floats, Places]:
    """Return rows, values and columns of the distances up to a bound for each row."""
    rows, columns = np.nonzero(distances <= bounds)
    return rows, distances[rows, columns], columns
