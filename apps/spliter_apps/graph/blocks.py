"""Open a graph and check its blocks, which are rows of the adjacency matrix."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from spliter import InvalidArgumentError, Partition, Split
from spliter_apps._blocks import check_points
from spliter_apps._data import check_members, is_blocked, open_data
from spliter_apps._differences import column_names, native


@dataclass(frozen=True)
class Graph:
    """A square adjacency matrix in row blocks."""

    parts: Split
    n_vertices: int


@contextmanager
def open_graph(graph: Any) -> Iterator[Graph]:
    """Split a graph; an adjacency matrix in memory is cut into blocks."""
    if not is_blocked(graph):
        graph = as_csr(graph, "the graph")
    with open_data(graph, materialize=False) as data:
        check_members(data, 1, "split(graph)")
        data.parts.resolve_item_indexes()
        yield Graph(data.parts, int(data.parts.grid.row_counts.sum()))


@dataclass(frozen=True)
class Rows:
    """The edges from the vertices of one block, as a CSR matrix; `first` is the first vertex."""

    first: int
    matrix: Any


def rows_of(partition: Partition, n_vertices: int) -> Iterator[Rows]:
    """Check the blocks of a partition, at its location, and yield them."""
    starts = partition.indexes.item_starts
    assert starts is not None, "the sizes of blocks are known when a graph is open"
    for start, (index, block) in zip(starts, partition.items(), strict=True):
        matrix = as_csr(block, f"block {index}")
        if matrix.shape[1] != n_vertices:
            raise InvalidArgumentError(
                f"block {index}: an adjacency matrix is square, got {matrix.shape[1]} columns and "
                f"{n_vertices} rows in all blocks; pass all rows of the graph"
            )
        yield Rows(int(start), matrix)


def as_csr(block: Any, what: str) -> Any:
    """Return a block as a CSR matrix of real numbers whose indices are valid.

    The kernels do not check indices, so that a matrix whose index arrays contradict each other
    must be refused here.

    Examples
    --------
    >>> as_csr(np.eye(2), "block (0,)").indices
    array([0, 1], dtype=int32)
    """
    if not hasattr(type(block), "tocsr"):
        if (names := column_names(block)) is not None:
            raise InvalidArgumentError(
                f"{what}: vertices are known by number, got columns with the names {list(names)}; "
                "pass to_numpy(), with columns and rows in the same order"
            )
        return sparse.csr_array(check_points(block, what))
    if getattr(block.dtype, "kind", None) not in tuple("biuf"):
        raise InvalidArgumentError(
            f"{what}: the weights of edges must be real numbers, got dtype {block.dtype}; convert "
            "with astype(float)"
        )
    matrix = block.tocsr()
    try:
        if len(matrix.shape) != 2:
            raise ValueError(f"expected two dimensions, got shape {matrix.shape}")
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise InvalidArgumentError(f"{what} is not a valid CSR matrix: {error}") from error
    return matrix


def weights_of(matrix: Any) -> Any:
    """Return the weights of edges in a type that kernels read."""
    data = native(np.asarray(matrix.data))
    return data if data.dtype in (np.float64, np.float32) else data.astype(np.float64)
