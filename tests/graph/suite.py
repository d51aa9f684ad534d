"""What components and PageRank must do on every engine; each engine's module subclasses it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy import sparse
from scipy.sparse import csgraph

from spliter import InvalidArgumentError, Partition, reduce, split
from spliter_apps.graph import connected_components, pagerank
from tests.engine_collections import EngineCollections

N = 60
TOLERANCE = 1e-9


def power_law(n: int = N, edges: int = 90, seed: int = 0) -> Any:
    """Return a graph whose edges come from few vertices; pairs may be drawn twice."""
    random = np.random.default_rng(seed)
    rows, columns = (n * random.random(edges) ** 3).astype(int), random.integers(0, n, edges)
    weights = random.integers(1, 4, edges).astype(float)
    return sparse.coo_array((weights, (rows, columns)), shape=(n, n)).tocsr()


def long_path(n: int = N, seed: int = 0) -> Any:
    order = np.random.default_rng(seed).permutation(n)
    return sparse.csr_array((np.ones(n - 1), (order[:-1], order[1:])), shape=(n, n))


def cut_rows(graph: Any, rows: Sequence[int]) -> list[Any]:
    bounds = np.cumsum([0, *rows])
    return [graph[start:stop] for start, stop in itertools.pairwise(bounds)]


def assert_components(found: tuple[int, Any], graph: Any) -> None:
    count, labels = csgraph.connected_components(graph, connection="weak")
    assert found[0] == count
    np.testing.assert_array_equal(found[1], labels)
    assert found[1].dtype == labels.dtype


def ranks(graph: Any, **options: Any) -> Any:
    """Return the ranks that NetworkX computes, edges that are stored twice added."""
    graph = graph.copy()
    graph.sum_duplicates()
    found = nx.pagerank(nx.from_scipy_sparse_array(graph, create_using=nx.DiGraph), **options)
    return np.array([found[vertex] for vertex in range(graph.shape[0])])


def assert_ranks(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


def nothing(partition: Partition) -> int:
    return len(partition)


class GraphTests(EngineCollections):
    """Subclasses say how a collection of the engine is made."""

    @pytest.mark.parametrize("rows", [[N], [7, 0, 33, 20], [1] * N])
    @pytest.mark.parametrize("make", [power_law, long_path])
    def test_same_as_scipy_and_networkx(self, make: Any, rows: list[int]) -> None:
        graph = make()
        blocks = self.blocks(cut_rows(graph, rows))
        assert_components(connected_components(blocks), graph)
        assert_ranks(pagerank(blocks, tol=1e-10), ranks(graph, tol=1e-10))

    def test_blocks_differ(self) -> None:
        graph = power_law()
        blocks = cut_rows(graph, [10, 10, 10, 10, 10, 10])
        blocks[1] = blocks[1].toarray()
        blocks[2] = sparse.csc_matrix(blocks[2])
        blocks[3].indices, blocks[3].indptr = (
            it.astype(np.int64) for it in (blocks[3].indices, blocks[3].indptr)
        )
        blocks[4] = blocks[4].astype(np.float32)
        blocks[5] = blocks[5].astype(np.int8).tocoo()
        there = self.blocks(blocks)
        assert_components(connected_components(there), graph)
        assert_ranks(pagerank(there, tol=1e-10), ranks(graph, tol=1e-10))

    def test_one_task_per_partition(self) -> None:
        graph = power_law()
        blocks = self.blocks(cut_rows(graph, [1] * N))
        with split(blocks, partitions_per_location=1) as parts:
            assert reduce(max, parts.map(nothing)) is not None
            assert_components(connected_components(parts), graph)
            assert_ranks(pagerank(parts, tol=1e-10), ranks(graph, tol=1e-10))

    def test_not_square(self) -> None:
        blocks = self.blocks([sparse.csr_array((3, 7)), sparse.csr_array((2, 7))])
        for feature in (connected_components, pagerank):
            with pytest.raises(InvalidArgumentError, match="square, got 7 columns and 5 rows"):
                feature(blocks)

    def test_negative_weights(self) -> None:
        blocks = self.blocks([sparse.csr_array([[0.0, 1.0]]), sparse.csr_array([[-2.0, 0.0]])])
        with pytest.raises(InvalidArgumentError, match=r"vertex 1 .* not negative, got -2"):
            pagerank(blocks)
