"""Loops over the edges of CSR blocks, compiled by numba; they release the interpreter lock.

A *forest* is an array of the parent of each vertex, never larger than the vertex itself, so that
the root of each tree is its smallest vertex (union-find: Tarjan and van Leeuwen, "Worst-case
analysis of set union algorithms", 1984; here with path halving).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

Array = npt.NDArray[Any]


@njit(nogil=True)
def _root(parents: Array, vertex: Any) -> Any:
    while parents[vertex] != vertex:
        parents[vertex] = parents[parents[vertex]]
        vertex = parents[vertex]
    return vertex


@njit(nogil=True)
def unite_rows(parents: Array, first: int, indptr: Array, indices: Array) -> None:
    """Add the edges of a block, whose first row is vertex `first`, to a forest in place."""
    for row in range(len(indptr) - 1):
        root = _root(parents, first + row)
        for at in range(indptr[row], indptr[row + 1]):
            other = _root(parents, indices[at])
            if other < root:
                parents[root] = other
                root = other
            elif root < other:
                parents[other] = root


@njit(nogil=True)
def unite_forests(parents: Array, others: Array) -> None:
    """Add the trees of another forest to a forest in place."""
    for vertex in range(len(others)):
        if others[vertex] != vertex:
            mine, its = _root(parents, vertex), _root(parents, others[vertex])
            parents[max(mine, its)] = min(mine, its)


@njit(nogil=True)
def number_trees(parents: Array) -> int:
    """Replace parents by the numbers of the trees, in the order of their roots; return how many."""
    count = 0
    for vertex in range(len(parents)):
        if parents[vertex] == vertex:
            parents[vertex] = count
            count += 1
        else:
            parents[vertex] = parents[parents[vertex]]  # smaller vertices have their numbers
    return count


@njit(nogil=True)
def add_columns(sums: Array, values: Array, indptr: Array, indices: Array, weights: Array) -> None:
    """Add the rows of a block, each times a value, to the sums of the columns."""
    for row in range(len(indptr) - 1):
        value = values[row]
        for at in range(indptr[row], indptr[row + 1]):
            sums[indices[at]] += weights[at] * value


def new_forest(n_vertices: int) -> Array:
    """Return a forest of single vertices, of SciPy's type of labels if that is wide enough.

    Examples
    --------
    >>> new_forest(3)
    array([0, 1, 2], dtype=int32)
    """
    return np.arange(n_vertices, dtype=index_dtype(n_vertices))


def index_dtype(n_vertices: int) -> type[np.int32 | np.int64]:
    """Return the smallest integer type that numbers all vertices.

    Examples
    --------
    >>> index_dtype(2**31), index_dtype(2**31 + 1)
    (<class 'numpy.int32'>, <class 'numpy.int64'>)
    """
    return np.int32 if n_vertices <= 2**31 else np.int64
