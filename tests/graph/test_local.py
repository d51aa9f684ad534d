"""Graphs in this process: SciPy's and NetworkX's cases, options, and bad input."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from spliter import InvalidArgumentError, split
from spliter_apps.graph import connected_components, pagerank
from spliter_apps.graph.blocks import as_csr
from tests.engine_collections import ListsOfBlocks
from tests.graph.suite import (
    GraphTests,
    assert_components,
    assert_ranks,
    cut_rows,
    long_path,
    power_law,
    ranks,
)


class TestListsOfBlocks(ListsOfBlocks, GraphTests):
    """Lists of blocks."""


# --- components -------------------------------------------------------------------------------

SCIPY_CASES = {
    "weak": [[0, 1, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 1, 0, 0]],
    "no edges": [[0, 0], [0, 0]],
    "one way": [[0, 1, 0], [0, 0, 1], [0, 0, 0]],
    "a loop": [[1, 0], [0, 0]],
    "late first": [[0, 0, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]],
}


@pytest.mark.parametrize("case", SCIPY_CASES)
@pytest.mark.parametrize("directed", [True, False])
def test_cases_of_scipy(case: str, directed: bool) -> None:
    graph = sparse.csr_array(np.array(SCIPY_CASES[case], float))
    for blocks in (graph, graph.toarray(), [graph], [graph[:1], graph[1:]]):
        assert_components(connected_components(blocks, directed), graph)
        assert connected_components(blocks, return_labels=False) == len(
            set(connected_components(blocks)[1].tolist())
        )


@given(
    arrays(bool, st.integers(1, 12).map(lambda n: (n, n))),
    st.lists(st.integers(0, 12), max_size=4),
)
def test_any_graph_in_any_blocks(edges: Any, bounds: list[int]) -> None:
    graph = sparse.csr_array(edges)
    cuts = sorted({0, len(edges), *(min(bound, len(edges)) for bound in bounds)})
    blocks = cut_rows(graph, np.diff(cuts).tolist())
    assert_components(connected_components(blocks), graph)


@pytest.mark.parametrize("make", [power_law, long_path])
def test_many_vertices(make: Any) -> None:
    n = 200_000
    graph = make(n) if make is long_path else make(n, 2 * n)
    assert_components(connected_components(graph), graph)
    assert_components(connected_components(cut_rows(graph, [n // 8] * 8)), graph)


def test_zeros_that_are_stored_are_edges() -> None:
    graph = sparse.csr_array((np.zeros(1), ([0], [1])), shape=(2, 2))
    assert connected_components([graph])[0] == 1
    assert_components(connected_components([graph]), graph)
    assert_ranks(pagerank([graph]), ranks(graph))


def test_no_vertices() -> None:
    empty = sparse.csr_array((0, 0))
    assert connected_components([empty], return_labels=False) == 0
    assert pagerank([empty]).shape == (0,)


def test_duplicates() -> None:
    graph = sparse.csr_array(([1.0, 2.0, 1.0], [1, 1, 2], [0, 3, 3, 3]), shape=(3, 3))
    assert_components(connected_components([graph]), graph)
    assert_ranks(pagerank([graph], tol=1e-10), ranks(graph, tol=1e-10))


def test_blocks_are_not_changed() -> None:
    graph = power_law()
    arrays = (graph.data, graph.indices, graph.indptr)
    for array in arrays:
        array.flags.writeable = False  # as in memory that processes share
    before = [array.copy() for array in arrays]
    connected_components([graph])
    pagerank([graph])
    for array, expected in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, expected)


def test_weights_in_the_other_byte_order() -> None:
    graph = power_law()
    swapped = graph.copy()
    swapped.data = swapped.data.astype(">f8")
    assert_components(connected_components([swapped]), graph)
    assert_ranks(pagerank([swapped]), pagerank([graph]))


# --- PageRank ---------------------------------------------------------------------------------

BUNDLED = {
    "karate": nx.karate_club_graph,
    "women": nx.davis_southern_women_graph,
    "families": nx.florentine_families_graph,
    "miserables": nx.les_miserables_graph,
}


@pytest.mark.parametrize("name", BUNDLED)
def test_graphs_of_networkx(name: str) -> None:
    undirected = BUNDLED[name]()
    graph = nx.to_scipy_sparse_array(undirected, format="csr")
    n = graph.shape[0]
    blocks = cut_rows(graph, [5, n - 5])
    assert_components(connected_components(blocks), graph)
    options: Any = {"tol": 1e-10, "max_iter": 1000}  # some are bipartite, and converge slowly
    expected = nx.pagerank(undirected, **options)
    assert_ranks(pagerank(blocks, **options), list(expected.values()))


def case_of_networkx() -> Any:
    """Return the graph of NetworkX's own tests of PageRank."""
    edges = [(1, 2), (1, 3), (3, 1), (3, 2), (3, 5), (4, 5), (4, 6), (5, 4), (5, 6), (6, 4)]
    rows, columns = np.array(edges).T - 1
    return sparse.csr_array((np.ones(len(edges)), (rows, columns)), shape=(6, 6))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"alpha": 0.9, "tol": 1e-8},
        {"alpha": 0.0},
        {"personalization": {0: 1.0, 3: 4.0}},
        {"dangling": {2: 1.0}},
        {"personalization": {0: 0.5}, "dangling": {4: 3.0, 5: 1.0}},
        {"alpha": 1.0, "dangling": {2: 1.0}},
    ],
)
def test_options_of_networkx(options: dict[str, Any]) -> None:
    graph = case_of_networkx()
    found = pagerank([graph[:2], graph[2:]], **options)
    assert_ranks(found, ranks(graph, **options))
    arrays: dict[str, Any] = {
        name: [value.get(vertex, 0) for vertex in range(6)] if isinstance(value, dict) else value
        for name, value in options.items()
    }
    assert_ranks(pagerank(graph, **arrays), found)


def test_ranks_do_not_depend_on_the_blocks() -> None:
    graph = power_law(500, 3000)
    expected = pagerank(graph, tol=1e-12)
    assert expected.sum() == pytest.approx(1, abs=1e-12)
    for rows in ([500], [250, 0, 250], [1] * 500):
        assert_ranks(pagerank(cut_rows(graph, rows), tol=1e-12), expected)


# --- bad input --------------------------------------------------------------------------------


def broken(**arrays: Any) -> Any:
    """Return a matrix whose index arrays are not valid."""
    graph = sparse.csr_array(np.eye(3))
    for name, values in arrays.items():
        setattr(graph, name, np.asarray(values, np.int32))
    return graph


EYE = sparse.csr_array(np.eye(3))


@pytest.mark.parametrize("feature", [connected_components, pagerank])
@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ([broken(indices=[0, 1, 7])], "block .*not a valid CSR matrix"),
        ([broken(indices=[0, -1, 2])], "block .*not a valid CSR matrix"),
        ([broken(indptr=[0, 3, 1, 3])], "block .*not a valid CSR matrix"),
        ([broken(indptr=[0, 1, 2, 9])], "block .*not a valid CSR matrix"),
        ([EYE.astype(complex)], "real numbers, got dtype complex128"),
        (EYE.astype(complex), "the graph: .*real numbers"),
        ([np.eye(3) * 1j], "omplex"),
        ([EYE, EYE], "square, got 3 columns and 6 rows"),
        (np.ones((2, 3)), "square, got 3 columns and 2 rows"),
        ([np.ma.masked_equal(np.eye(3), 1)], "mask"),
        ([np.full((2, 2), np.nan)], "NaN"),
        ([EYE[:1], pd.DataFrame(np.eye(3)[1:], columns=["a", "b", "c"])], r"names \['a'"),
        (split([EYE], [np.ones(3)]), r"split\(graph\)"),
    ],
)
def test_refused_graphs(feature: Any, graph: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        feature(graph)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 1.5}, "alpha must be a number from 0 to 1"),
        ({"alpha": -1}, "alpha"),
        ({"tol": "1"}, "tol"),
        ({"max_iter": 0}, "max_iter"),
        ({"max_iter": 2, "tol": 1e-12}, "did not converge in max_iter=2"),
        ({"personalization": [1, 2]}, r"personalization: .*shape \(6,\)"),
        ({"personalization": {9: 1}}, "numbered from 0 to 5, got 9"),
        ({"personalization": {0: 0.0}}, "one must be positive"),
        ({"dangling": [-1, 0, 0, 0, 0, 2]}, "must not be negative"),
        ({"dangling": [np.nan] * 6}, "finite"),
    ],
)
def test_refused_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        pagerank([case_of_networkx()], **options)


@pytest.mark.parametrize("weight", [np.inf, np.nan, -1.0])
def test_refused_weights(weight: float) -> None:
    with pytest.raises(InvalidArgumentError, match="weights must be finite and not negative"):
        pagerank([sparse.csr_array(np.array([[0, weight], [1, 0]]))])


def test_refused_connections() -> None:
    with pytest.raises(InvalidArgumentError, match='"strong" is not supported'):
        connected_components([EYE], connection="strong")  # type: ignore[call-overload]
    with pytest.raises(InvalidArgumentError, match="must be"):
        connected_components([EYE], connection="mild")  # type: ignore[call-overload]
    assert connected_components([EYE], False, "strong")[0] == 3  # type: ignore[call-overload]


def test_a_matrix_of_one_axis() -> None:
    with pytest.raises(InvalidArgumentError, match="two dimensions"):
        as_csr(sparse.coo_array(np.ones(3)), "block (0,)")
