"""The numerics of the neighbours estimators: trees, merging, votes, scores."""

from __future__ import annotations

import pickle
import sys
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
import sklearn.metrics
import sklearn.neighbors
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import cKDTree

from spliter_apps.neighbors import kernel
from spliter_apps.neighbors import tree as trees
from spliter_apps.neighbors.inspection import stack
from spliter_apps.neighbors.kernel import Candidates, Tree, build_tree, merge_nearest, nearest
from spliter_apps.neighbors.metric import Search
from spliter_apps.neighbors.radius import merge_within, within
from tests.neighbors_data import by_distance_and_number

Array = npt.NDArray[Any]

ALGORITHMS = ["kd_tree", "ball_tree", "brute"]


def grow(
    points: Array, groups: Sequence[Array], search: Search, *, sparse: bool = False
) -> list[Tree]:
    """Build a tree of each group of rows."""
    made = scipy.sparse.csr_matrix if sparse else np.asarray
    return [build_tree(made(points[rows]), rows.astype(np.int64), search) for rows in groups]


def asked(trees: Sequence[Tree], queries: Any, k: int) -> Candidates:
    return merge_nearest([nearest(tree, queries, k) for tree in trees], k)


# --- ties ------------------------------------------------------------------------------------


@given(
    n=st.integers(1, 60),
    n_features=st.integers(1, 3),
    values=st.integers(1, 5),
    n_trees=st.integers(1, 5),
    algorithm=st.sampled_from([*ALGORITHMS, "sparse"]),
    leaf_size=st.integers(1, 10),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
def test_ties_on_lattices_go_to_the_smallest_number(
    n: int,
    n_features: int,
    values: int,
    n_trees: int,
    algorithm: str,
    leaf_size: int,
    seed: int,
    data: st.DataObject,
) -> None:
    rng = np.random.default_rng(seed)
    points = rng.integers(0, values, (n, n_features)).astype(np.float64)
    queries = rng.integers(0, values, (5, n_features)).astype(np.float64)
    k = data.draw(st.integers(1, n))
    groups = np.array_split(rng.permutation(n), n_trees)
    sparse = algorithm == "sparse"
    search = Search("brute" if sparse else algorithm, leaf_size=leaf_size)
    found = asked(grow(points, groups, search, sparse=sparse), queries, k)
    distances, items = by_distance_and_number(points, queries, k)
    np.testing.assert_array_equal(found.distances, distances)
    np.testing.assert_array_equal(found.items, items)


@given(
    n=st.integers(2, 50),
    offset=st.sampled_from([0.0, 0.1, 100.3, 1e6]),
    step=st.sampled_from([0.1, 1 / 3, 7e-5]),
    algorithm=st.sampled_from([*ALGORITHMS, "sparse"]),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
def test_places_do_not_show_where_numbers_are_rounded(
    n: int, offset: float, step: float, algorithm: str, seed: int, data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    points = rng.integers(0, 4, (n, 3)) * step + offset
    queries = rng.integers(0, 4, (6, 3)) * step + offset
    k = data.draw(st.integers(1, n))
    sparse = algorithm == "sparse"
    search = Search("brute" if sparse else algorithm, leaf_size=2)
    one = asked(grow(points, [np.arange(n)], search, sparse=sparse), queries, k)
    for n_trees in (2, 5):
        groups = np.array_split(rng.permutation(n), n_trees)
        several = asked(grow(points, groups, search, sparse=sparse), queries, k)
        np.testing.assert_array_equal(several.distances, one.distances)
        np.testing.assert_array_equal(several.items, one.items)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_all_points_are_one(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Small batches, and queries of which some are repeated.
    monkeypatch.setattr(kernel, "BATCH_ELEMENTS", 64)
    tree = build_tree(np.ones((500, 2)), np.arange(500)[::-1].copy(), Search(algorithm))
    queries = np.repeat(np.arange(6.0), 2).reshape(6, 2)
    found = nearest(tree, queries, 3)
    np.testing.assert_array_equal(found.items, np.tile([0, 1, 2], (6, 1)))


@pytest.mark.parametrize("algorithm", ["kd_tree", "ball_tree"])
def test_only_queries_with_a_tie_are_asked_again(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[tuple[int, int]] = []
    query_nearest = trees.query_nearest

    def counting(tree: Tree, points: Any, k: int) -> Any:
        sizes.append((len(points), k))
        return query_nearest(tree, points, k)

    monkeypatch.setattr(kernel, "query_nearest", counting)
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(size=(200, 2)), np.full((3, 2), 10.0)])
    tree = build_tree(points, np.arange(203), Search(algorithm))
    queries = np.concatenate([rng.normal(size=(50, 2)), np.full((7, 2), 10.0)])
    nearest(tree, queries, 2)
    # Seven times the same query is asked again once, for a few more.
    assert sizes == [(57, 3), (1, 12)]


# --- merging ---------------------------------------------------------------------------------


@given(n_lists=st.integers(1, 5), k=st.integers(1, 6), seed=st.integers(0, 2**32))
def test_merging_does_not_depend_on_the_order(n_lists: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    numbers = rng.permutation(6 * n_lists).reshape(n_lists, 6)
    lists = []
    for at in range(n_lists):
        width = int(rng.integers(0, 7))
        rows = [rng.permutation(numbers[at])[:width] for _ in range(3)]
        items = np.array(rows, dtype=np.int64).reshape(3, width)
        distances = rng.integers(0, 3, (3, width)).astype(np.float64)
        order = np.lexsort((items, distances), axis=-1)
        here = np.arange(3)[:, None]
        lists.append(Candidates(distances[here, order], items[here, order], items[here, order] * 2))
    together = merge_nearest(lists, k)
    assert together.items.shape[1] == min(k, sum(each.items.shape[1] for each in lists))
    one_by_one = lists[-1]
    for each in lists[-2::-1]:
        one_by_one = merge_nearest([one_by_one, each], k)
    one_by_one = merge_nearest([one_by_one], k)
    for name in ("distances", "items", "targets"):
        np.testing.assert_array_equal(getattr(one_by_one, name), getattr(together, name))
    assert together.targets is not None
    np.testing.assert_array_equal(together.targets, together.items * 2)


@given(
    n=st.integers(1, 40),
    n_trees=st.integers(1, 4),
    algorithm=st.sampled_from(ALGORITHMS),
    seed=st.integers(0, 2**32),
)
def test_all_within_a_radius(n: int, n_trees: int, algorithm: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = rng.integers(0, 4, (n, 2)).astype(np.float64)
    queries = rng.integers(0, 4, (5, 2)).astype(np.float64)
    groups = np.array_split(rng.permutation(n), n_trees)
    trees = grow(points, groups, Search(algorithm, leaf_size=2))
    found = merge_within([within(tree, queries, 1.0) for tree in trees])
    between = ((queries[:, None] - points[None]) ** 2).sum(axis=2)
    rows, items = np.nonzero(between <= 1)
    np.testing.assert_array_equal(found.rows, rows)
    np.testing.assert_array_equal(found.items, items)
    np.testing.assert_array_equal(found.distances, np.sqrt(between[rows, items]))
    nearest_first = found.by_distance()
    for row, mine in enumerate(nearest_first.one_array_each(nearest_first.items)):
        order = np.lexsort((np.arange(n), between[row]))
        np.testing.assert_array_equal(mine, order[: len(mine)])


# --- trees -----------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_memory_is_shared_not_copied(algorithm: str) -> None:
    points = np.random.default_rng(0).normal(size=(1000, 3))
    tree = build_tree(points, np.arange(1000), Search(algorithm))
    assert tree.points is points
    if algorithm != "brute":
        assert np.shares_memory(tree.index.data, points)
    assert points.nbytes < sys.getsizeof(tree) < 2.5 * points.nbytes  # three columns only
    # Pickled once, not once for the index as well.
    stored = pickle.dumps(tree)
    assert len(stored) < 2 * points.nbytes
    again = nearest(pickle.loads(stored), points[:50], 3)
    np.testing.assert_array_equal(again.items, nearest(tree, points[:50], 3).items)


@pytest.mark.parametrize(
    ("metric", "params", "is_scipys"),
    [
        ("euclidean", {}, True),
        ("cityblock", {}, True),
        ("chebyshev", {}, True),
        ("minkowski", {"p": 3}, True),
        (sklearn.metrics.DistanceMetric.get_metric("euclidean"), {}, False),
    ],
    ids=["euclidean", "cityblock", "chebyshev", "minkowski", "object"],
)
def test_who_searches_a_k_d_tree(metric: Any, params: dict[str, Any], is_scipys: bool) -> None:
    rng = np.random.default_rng(0)
    points, queries = rng.normal(size=(500, 6)), rng.normal(size=(70, 6))
    tree = build_tree(points, np.arange(500), Search("kd_tree", metric, params))
    assert isinstance(tree.index, cKDTree) is is_scipys
    theirs = sklearn.neighbors.KDTree(points, metric=metric, **params)
    distances, places = theirs.query(queries, 7)
    found = nearest(tree, queries, 7)
    np.testing.assert_array_equal(found.items, places)
    np.testing.assert_allclose(found.distances, distances, rtol=1e-14)
    radius = float(distances[:, 4].max())
    around = within(tree, queries, radius)
    counts = theirs.query_radius(queries, radius, count_only=True)
    np.testing.assert_array_equal(np.bincount(around.rows, minlength=70), counts)
    # A pair is as far apart whichever way it was found.
    pairs = zip(around.rows.tolist(), around.items.tolist(), strict=True)
    apart = dict(zip(pairs, around.distances.tolist(), strict=True))
    for query, (items, found_at) in enumerate(zip(found.items, found.distances, strict=True)):
        known = [apart.get((query, item)) for item in items.tolist()]
        assert known[:1] == found_at.tolist()[:1]
        assert all(d is None or d == f for d, f in zip(known, found_at.tolist(), strict=True))


@pytest.mark.parametrize(
    "search",
    [
        Search("kd_tree", sklearn.metrics.DistanceMetric.get_metric("euclidean")),
        Search("ball_tree"),
    ],
    ids=["kd_tree", "ball_tree"],
)
def test_a_query_leaves_the_tree_as_it_was(search: Search) -> None:
    points = np.random.default_rng(0).normal(size=(1000, 3))
    tree = build_tree(points, np.arange(1000), search)
    counted = tree.index.get_tree_stats(), tree.index.get_n_calls()
    nearest(tree, points[:50], 3)
    within(tree, points[:50], 0.5)
    assert (tree.index.get_tree_stats(), tree.index.get_n_calls()) == counted
    tree.index.query(points[:50], 3)
    assert (tree.index.get_tree_stats(), tree.index.get_n_calls()) != counted


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_threads_share_a_tree(algorithm: str) -> None:
    rng = np.random.default_rng(0)
    points, queries = rng.normal(size=(3000, 4)), rng.normal(size=(2000, 4))
    tree = build_tree(points, np.arange(3000), Search(algorithm))
    expected = nearest(tree, queries, 5)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda part: nearest(tree, part, 5), np.array_split(queries, 20)))
    np.testing.assert_array_equal(np.concatenate([part.items for part in found]), expected.items)
    np.testing.assert_array_equal(
        np.concatenate([part.distances for part in found]), expected.distances
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_trees_without_points(algorithm: str) -> None:
    tree = build_tree(np.empty((0, 2)), np.arange(0), Search(algorithm), np.empty(0))
    found = nearest(tree, np.zeros((3, 2)), 4, with_targets=True)
    assert found.items.shape == found.distances.shape == (3, 0)
    assert found.targets is not None and found.targets.shape == (3, 0)
    assert within(tree, np.zeros((3, 2)), 1.0).n_queries == 3
    assert len(within(tree, np.zeros((3, 2)), 1.0).items) == 0
    assert sys.getsizeof(tree) > 0


def test_rows_are_stacked_with_one_copy() -> None:
    block = np.ones((3, 2))
    assert stack([block], 3) is block
    assert stack([block, np.empty((0, 2))], 3) is block
    made: list[weakref.ref[Array]] = []

    def parts() -> Any:
        for value in range(4):
            # Only the last one is still looked at: the result has the others.
            assert sum(part() is not None for part in made) <= 1
            part = np.full((2, 2), float(value))
            made.append(weakref.ref(part))
            yield part
            del part

    np.testing.assert_array_equal(stack(parts(), 8)[:, 0], [0, 0, 1, 1, 2, 2, 3, 3])
    assert stack([block, block], None).shape == (6, 2)
    sparse = scipy.sparse.csr_matrix(block)
    assert stack([sparse, sparse], None).shape == (6, 2)
