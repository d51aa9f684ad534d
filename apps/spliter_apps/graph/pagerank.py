"""PageRank of a graph in blocks, with the result of NetworkX.

Before the first iteration, one task per partition checks its edges, adds up the weights of the
edges from each vertex, and finds the vertices that its edges lead to. In each iteration, a task
gets the ranks of its own vertices and returns what those vertices receive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter import InvalidArgumentError, Partition, gather
from spliter.backend import check_count
from spliter_apps._requirements import check_number
from spliter_apps._row_values import as_weights
from spliter_apps.graph.blocks import Graph, Rows, open_graph, rows_of, weights_of
from spliter_apps.graph.kernel import add_columns, index_dtype

FloatArray: TypeAlias = npt.NDArray[np.float64]


def pagerank(
    graph: Any,
    alpha: float = 0.85,
    personalization: Any = None,
    dangling: Any = None,
    tol: float = 1e-6,
    max_iter: int = 100,
) -> FloatArray:
    """Rank the vertices of a graph whose adjacency is in row blocks.

    The ranks are those of ``networkx.pagerank``, by power iteration (Page, Brin, Motwani and
    Winograd, "The PageRank citation ranking", 1999).

    Parameters
    ----------
    graph : collection or sparse matrix of shape (n, n)
        As for :func:`connected_components`. Element (i, j) is the weight of the edge from i to j;
        elements stored twice are added.
    alpha : float, default 0.85
        Probability to follow an edge, from 0 to 1.
    personalization : array-like of shape (n,) or mapping of int to float, optional
        Weights of the vertices to restart at, 0 for those that a mapping has not. Default: equal.
    dangling : array-like of shape (n,) or mapping of int to float, optional
        Weights of the vertices that follow a vertex without edges. Default: `personalization`.
    tol : float, default 1e-6
        Iteration ends when the absolute changes of the ranks add up to less than `n` times this.
    max_iter : int, default 100
        Maximum number of iterations.

    Returns
    -------
    ndarray of float64, shape (n,)
        The rank of each vertex; their sum is 1.

    Raises
    ------
    InvalidArgumentError
        If the matrix is refused as by :func:`connected_components`, a weight is negative, infinite
        or NaN, a parameter is invalid, or the ranks do not converge within `max_iter` iterations.
        A ``ValueError``.
    UnsupportedCollectionError, LazyCollectionError, BlockLostError
        As for :func:`spliter.split`.

    Notes
    -----
    Reads each edge twice, and once more in each iteration. A task needs 8 bytes per vertex of the
    whole graph next to its blocks.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> blocks = [csr_array([[0, 1, 1]]), csr_array([[1, 0, 0], [1, 0, 0]])]
    >>> pagerank(blocks).round(3)
    array([0.486, 0.257, 0.257])
    """
    _check_parameters(alpha, tol, max_iter)
    with open_graph(graph) as opened:
        n = opened.n_vertices
        restart = _distribution("personalization", personalization, n, np.full(n, 1 / max(n, 1)))
        follow = _distribution("dangling", dangling, n, restart)
        links = Links.inspect(opened)
        ranks: FloatArray = np.full(n, 1 / max(n, 1))
        for _ in range(max_iter):
            received = links.follow(ranks)
            lost = ranks[links.totals == 0].sum()
            new: FloatArray = alpha * (received + lost * follow) + (1 - alpha) * restart
            change, ranks = np.abs(new - ranks).sum(), new
            if change < n * tol or not n:
                return ranks
    raise InvalidArgumentError(
        f"PageRank did not converge in max_iter={max_iter} iterations: the ranks changed by "
        f"{change:.3g} in the last one, and tol * n is {n * tol:.3g}; increase max_iter or tol"
    )


def _check_parameters(alpha: float, tol: float, max_iter: int) -> None:
    check_number("alpha", alpha)
    check_number("tol", tol)
    check_count("max_iter", max_iter)
    if alpha > 1:
        raise InvalidArgumentError(f"alpha must be a number from 0 to 1, got {alpha!r}")


def _distribution(name: str, given: Any, n: int, default: FloatArray) -> FloatArray:
    """Return weights of vertices whose sum is 1."""
    if given is None:
        return default
    if isinstance(given, Mapping):
        given = _from_mapping(name, given, n)
    weights = as_weights(name, given, n)
    if (weights < 0).any() or not weights.any():
        raise InvalidArgumentError(
            f"{name}: weights of vertices must not be negative, and one must be positive; got "
            f"{weights.min(initial=0.0)} at least and {weights.max(initial=0.0)} at most"
        )
    distribution: FloatArray = weights / weights.sum()
    return distribution


def _from_mapping(name: str, given: Mapping[int, float], n: int) -> FloatArray:
    weights = np.zeros(n)
    for vertex, weight in given.items():
        if not 0 <= vertex < n:
            raise InvalidArgumentError(
                f"{name}: vertices are numbered from 0 to {n - 1}, got {vertex!r}"
            )
        weights[vertex] = weight
    return weights


# --- the partitions ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Ends:
    """Where the edges of a partition lead, and the sum of the weights from each of its vertices."""

    columns: npt.NDArray[Any]
    totals: FloatArray


@dataclass(frozen=True)
class Links:
    """The edges of a graph at their locations; `totals` are the weights from each vertex."""

    n_vertices: int
    partitions: list[Partition]
    ends: list[Any]
    """Futures of `_Ends`, which stay at the locations as arguments of tasks."""
    vertices: list[npt.NDArray[np.int64]]
    columns: list[npt.NDArray[Any]]
    totals: FloatArray

    @classmethod
    def inspect(cls, graph: Graph) -> Links:
        """Check all edges, with one task per partition."""
        partitions = list(graph.parts)
        vertices = [partition.get_item_indexes() for partition in partitions]
        ends = [partition.submit(_inspect, graph.n_vertices) for partition in partitions]
        found: list[_Ends] = gather(ends)
        totals = np.zeros(graph.n_vertices)
        for mine, one in zip(vertices, found, strict=True):
            totals[mine] = one.totals
        columns = [one.columns for one in found]
        return cls(graph.n_vertices, partitions, ends, vertices, columns, totals)

    def follow(self, ranks: FloatArray) -> FloatArray:
        """Return what each vertex receives if each shares its rank among its edges."""
        shares = np.divide(ranks, self.totals, out=np.zeros_like(ranks), where=self.totals > 0)
        futures = [
            partition.submit(_receive, ends, self.n_vertices, shares[mine])
            for partition, ends, mine in zip(self.partitions, self.ends, self.vertices, strict=True)
        ]
        received = np.zeros(self.n_vertices)
        for columns, sums in zip(self.columns, gather(futures), strict=True):
            received[columns] += sums
        return received


def _inspect(partition: Partition, n_vertices: int) -> _Ends:
    """Check the edges of a partition; the body of a task."""
    reached = np.zeros(n_vertices, bool)
    totals = [np.zeros(0)]
    for rows in rows_of(partition, n_vertices):
        reached[rows.matrix.indices] = True
        totals.append(_totals(rows))
    columns = np.flatnonzero(reached).astype(index_dtype(n_vertices))
    return _Ends(columns, np.concatenate(totals))


def _totals(rows: Rows) -> FloatArray:
    weights = weights_of(rows.matrix)
    if weights.size and not (weights.min() >= 0 and np.isfinite(weights.max())):
        raise InvalidArgumentError(
            f"the edges from vertex {rows.first} on: weights must be finite and not negative, got "
            f"{weights.min()} to {weights.max()}"
        )
    ones = np.ones(rows.matrix.shape[1])
    return np.asarray(rows.matrix.astype(np.float64, copy=False) @ ones)


def _receive(partition: Partition, ends: _Ends, n_vertices: int, shares: FloatArray) -> FloatArray:
    """Return the sums of the columns that a partition reaches; the body of a task."""
    sums, start = np.zeros(n_vertices), 0
    for rows in rows_of(partition, n_vertices):
        stop = start + rows.matrix.shape[0]
        matrix = rows.matrix
        add_columns(sums, shares[start:stop], matrix.indptr, matrix.indices, weights_of(matrix))
        start = stop
    received: FloatArray = sums[ends.columns]
    return received
