"""Connected components of a graph in blocks, with SciPy's interface.

One task per partition reads its edges once and adds them to a forest (union-find), the forests are
merged, and the trees of the last one are the components. A forest has one number per vertex.
"""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy.typing as npt

from spliter import InvalidArgumentError, Partition
from spliter_apps._results import combine
from spliter_apps.graph.blocks import open_graph, rows_of
from spliter_apps.graph.kernel import Array, new_forest, number_trees, unite_forests, unite_rows

Labels = npt.NDArray[Any]


@overload
def connected_components(
    graph: Any,
    directed: bool = True,
    connection: Literal["weak"] = "weak",
    return_labels: Literal[True] = True,
) -> tuple[int, Labels]: ...
@overload
def connected_components(
    graph: Any,
    directed: bool = True,
    connection: Literal["weak"] = "weak",
    *,
    return_labels: Literal[False],
) -> int: ...
def connected_components(
    graph: Any, directed: bool = True, connection: str = "weak", return_labels: bool = True
) -> int | tuple[int, Labels]:
    """Find the connected components of a graph whose adjacency is in row blocks.

    Count and labels are those of ``scipy.sparse.csgraph.connected_components``.

    Parameters
    ----------
    graph : collection or sparse matrix of shape (n, n)
        The adjacency matrix: a collection of row blocks that :func:`spliter.split` takes, a
        :class:`spliter.Split` of one, or one matrix in memory. Blocks are sparse (converted to CSR
        if they are not) or dense. Each stored element of a sparse block is an edge, also a zero.
    directed : bool, default True
        Whether edges have a direction. Weak components are the same either way.
    connection : {"weak"}, default "weak"
        For directed graphs; ``"strong"`` is refused.
    return_labels : bool, default True
        Whether to return the labels.

    Returns
    -------
    n_components : int
        The number of components.
    labels : ndarray of int32, shape (n,)
        The component of each vertex, numbered in the order of their smallest vertices; int64 for
        more than 2**31 vertices. Only if `return_labels`.

    Raises
    ------
    InvalidArgumentError
        If the matrix is not square, has complex numbers, invalid indices, masked or (in dense
        blocks) infinite elements, or `connection` is not ``"weak"``. A ``ValueError``.
    UnsupportedCollectionError, LazyCollectionError, BlockLostError
        As for :func:`spliter.split`.

    Notes
    -----
    Reads each edge once. A task needs 4 bytes per vertex of the whole graph next to its blocks, and
    so much crosses the network for each partition.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> blocks = [csr_array([[0, 1, 0, 0], [0, 0, 0, 0]]), csr_array([[0, 0, 0, 1], [0, 0, 0, 0]])]
    >>> connected_components(blocks)
    (2, array([0, 0, 1, 1], dtype=int32))
    """
    _check_connection(directed, connection)
    with open_graph(graph) as opened:
        n_vertices = opened.n_vertices
        forests = opened.parts.map(_forest, n_vertices)
        labels: Array = combine(_merged, forests, new_forest(0).itemsize * n_vertices).copy()
    n_components = int(number_trees(labels))
    return (n_components, labels) if return_labels else n_components


def _check_connection(directed: bool, connection: str) -> None:
    if connection not in {"weak", "strong"}:
        raise InvalidArgumentError(f'connection must be "weak", got {connection!r}')
    if directed and connection == "strong":
        raise InvalidArgumentError(
            'connection="strong" is not supported for graphs in blocks; use '
            "scipy.sparse.csgraph.connected_components on the graph in memory"
        )


def _forest(partition: Partition, n_vertices: int) -> Array:
    """Return the forest of the edges of a partition; the body of a task."""
    parents = new_forest(n_vertices)
    for rows in rows_of(partition, n_vertices):
        unite_rows(parents, rows.first, rows.matrix.indptr, rows.matrix.indices)
    return parents


def _merged(first: Array, second: Array) -> Array:
    parents = first.copy()
    unite_forests(parents, second)
    return parents
