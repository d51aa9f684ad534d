"""Choice of a search, votes and scores of nearest neighbours, and precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import sklearn.metrics
import sklearn.neighbors
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import r2_score

from spliter import InvalidArgumentError
from spliter_apps.neighbors import kernel, precomputed
from spliter_apps.neighbors.kernel import Candidates, Tree, build_tree, nearest
from spliter_apps.neighbors.metric import Search, resolve_search
from spliter_apps.neighbors.radius import within
from spliter_apps.neighbors.tree import CACHE_NBYTES, query_nearest
from spliter_apps.neighbors.votes import (
    ErrorSums,
    neighbour_weights,
    winners,
)


@pytest.mark.parametrize("n_features", [2, 15, 16])
@pytest.mark.parametrize("n_neighbors", [1, 19, 20, 40])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"p": 1},
        {"p": 3},
        {"metric": "cosine"},
        {"metric": "canberra"},
        {"metric": "chebyshev"},
        {"metric": "sqeuclidean"},
        {"metric": "hamming"},
        {"algorithm": "ball_tree"},
        {"algorithm": "brute"},
    ],
    ids=str,
)
def test_choice_is_that_of_scikit_learn(
    options: dict[str, Any], n_neighbors: int, n_features: int
) -> None:
    points = np.random.default_rng(0).random((40, n_features))
    theirs = sklearn.neighbors.NearestNeighbors(n_neighbors=n_neighbors, **options).fit(points)
    params = theirs.get_params() | {"n_neighbors": n_neighbors}
    params.pop("n_jobs")
    ours = resolve_search(params, n_items=40, n_features=n_features, is_sparse=False)
    assert ours.algorithm == theirs._fit_method
    assert ours.metric == theirs.effective_metric_
    assert ours.metric_params == theirs.effective_metric_params_


def test_sparse_points_are_compared_pair_by_pair() -> None:
    params = sklearn.neighbors.NearestNeighbors().get_params()
    params.pop("n_jobs")
    assert resolve_search(params, n_items=40, n_features=2, is_sparse=True).algorithm == "brute"
    params["metric"] = "canberra"
    with pytest.raises(InvalidArgumentError, match="sparse"):
        resolve_search(params, n_items=40, n_features=2, is_sparse=True)


def candidates(distances: Any, targets: Any) -> Candidates:
    distances = np.asarray(distances, dtype=np.float64)
    return Candidates(distances, np.zeros(distances.shape, dtype=np.int64), np.asarray(targets))


def test_of_as_many_votes_the_first_class_wins() -> None:
    found = candidates([[1, 1]], [[5, 3]])
    assert winners(found, [np.array([3, 5])], None, True)[0].tolist() == [3]


def test_weights_of_neighbours_at_the_query_itself() -> None:
    found = Candidates(np.array([[0.0, 0.0, 3.0]]), np.array([[1, 2, 3]]))
    weights = neighbour_weights(found, "distance")
    assert weights is not None
    np.testing.assert_array_equal(weights, [1, 1, 0])


@given(
    rows=st.lists(st.integers(0, 6), min_size=1, max_size=5).filter(lambda rows: sum(rows) > 1),
    n_outputs=st.sampled_from([None, 1, 3]),
    weighted=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_scores_of_parts_add_up(
    rows: list[int], n_outputs: int | None, weighted: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    shape = (sum(rows),) if n_outputs is None else (sum(rows), n_outputs)
    truth, predicted = rng.normal(size=shape) + 1e4, rng.normal(size=shape) + 1e4
    weight = rng.random(sum(rows)) + 0.1 if weighted else None
    ends = np.cumsum(rows)[:-1]
    parts = zip(
        np.split(truth, ends),
        np.split(predicted, ends),
        [None] * len(rows) if weight is None else np.split(weight, ends),
        strict=True,
    )
    spreads = [ErrorSums.of(*part) for part in parts]
    together = spreads[0]
    for spread in spreads[1:]:
        together = together.merged(spread)
    expected = r2_score(truth, predicted, sample_weight=weight)
    assert together.r2() == pytest.approx(expected, rel=1e-6)


def test_order_of_queries_does_not_matter() -> None:
    generator = np.random.default_rng(4)
    points = generator.normal(size=(CACHE_NBYTES // 64 + 1, 8))
    queries = generator.normal(size=(512, 8))
    tree = build_tree(points, np.arange(len(points)), Search("kd_tree"))
    found = nearest(tree, queries, 3)
    for at in range(0, len(queries), 100):
        few = nearest(tree, queries[at : at + 100], 3)
        np.testing.assert_array_equal(found.items[at : at + 100], few.items)
        np.testing.assert_array_equal(found.distances[at : at + 100], few.distances)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
@pytest.mark.parametrize("offset", [0.0, 1e6, 1e7])
def test_points_far_from_zero_need_no_more_candidates(
    metric: str, offset: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def counting(tree: Tree, points: Any, k: int) -> Any:
        asked.append(len(points) * k)
        return query_nearest(tree, points, k)

    monkeypatch.setattr(kernel, "query_nearest", counting)
    draw = np.random.default_rng(0).normal
    points, queries = draw(offset, 1.0, (1_000, 20)), draw(offset, 1.0, (50, 20))
    tree = build_tree(points, np.arange(1_000), Search("brute", metric))
    found = nearest(tree, queries, 5)
    assert asked == [50 * 6]
    squared = ((queries[:, None] - points) ** 2).sum(axis=2)
    items = np.argsort(squared, axis=1)[:, :5]
    np.testing.assert_array_equal(found.items, items)
    expected = np.take_along_axis(squared, items, axis=1)
    np.testing.assert_allclose(
        found.distances, expected if metric == "sqeuclidean" else np.sqrt(expected)
    )
    near = within(tree, queries, float(found.distances[:, -1].min()))
    assert len(near.items) >= 1
    assert set(near.items) <= set(found.items.ravel())


@pytest.mark.parametrize("batch", [1, 90, 10_000])
@pytest.mark.parametrize("sparse", [False, True])
def test_given_distances(batch: int, sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precomputed, "BATCH_ELEMENTS", batch)
    distances = np.random.default_rng(0).integers(1, 6, (20, 40)).astype(np.float64)
    asked = scipy.sparse.csr_matrix(distances) if sparse else distances
    tree = build_tree(np.zeros((40, 40)), np.arange(40), Search("brute", "precomputed"))
    order = np.argsort(distances, axis=1, kind="stable")
    for k in (1, 7, 40):
        found = nearest(tree, asked, k)
        np.testing.assert_array_equal(found.items, order[:, :k])
        np.testing.assert_array_equal(
            found.distances, np.take_along_axis(distances, order[:, :k], axis=1)
        )
    near = within(tree, asked, 2.0)
    rows, columns = np.nonzero(distances <= 2)
    np.testing.assert_array_equal(near.rows, rows)
    np.testing.assert_array_equal(near.items, columns)
    assert within(tree, asked[:0], 2.0).n_queries == len(nearest(tree, asked[:0], 3).items) == 0
