"""The neighbours estimators on lists of blocks in this process."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
import sklearn.neighbors
from sklearn.pipeline import make_pipeline

from spliter import InvalidArgumentError
from spliter_apps.neighbors import (
    KNeighborsClassifier,
    KNeighborsRegressor,
    NearestNeighbors,
    RadiusNeighborsRegressor,
    forest,
)
from tests.engine_collections import ListsOfBlocks, cut
from tests.neighbors_data import (
    assert_same_neighbours,
    by_distance_and_number,
    dataset,
    lattice,
)
from tests.neighbors_suite import NeighborsTests

Array = npt.NDArray[Any]


class TestListsOfBlocks(ListsOfBlocks, NeighborsTests):
    """Lists of arrays."""


# --- arrays in memory ------------------------------------------------------------------------


@pytest.mark.parametrize("per_task", [1, 7, 256])
def test_queries_in_batches(per_task: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forest, "QUERIES_PER_TASK", per_task)
    monkeypatch.setattr(forest, "MESSAGE_NBYTES", 16 * per_task)
    points, queries = lattice(), lattice(50, seed=1)
    search = NearestNeighbors(algorithm="kd_tree", radius=1.0).fit(points)
    expected = by_distance_and_number(points, queries, 5)
    found = search.kneighbors(queries)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])
    assert search.radius_neighbors(queries, return_distance=False).shape == (50,)
    assert search.kneighbors_graph(queries).shape == (50, 300)
    own = search.kneighbors(n_neighbors=299)[1]
    np.testing.assert_array_equal(np.sort(own)[3], np.delete(np.arange(300), 3))


def test_the_only_block_is_not_copied() -> None:
    points = dataset("iris")[0]
    (tree,) = NearestNeighbors().fit([points])._forest.gathered().trees
    assert np.shares_memory(tree.points, points)
    assert np.shares_memory(tree.index.data, points)


def test_distances_computed_before() -> None:
    points, labels = dataset("iris")
    between = sklearn.neighbors.NearestNeighbors().fit(points[30:]).effective_metric_
    distances = sklearn.metrics.pairwise_distances(points, metric=between)
    ours = KNeighborsClassifier(metric="precomputed").fit(distances[30:, 30:], labels[30:])
    theirs = sklearn.neighbors.KNeighborsClassifier(metric="precomputed")
    theirs.fit(distances[30:, 30:], labels[30:])
    assert_same_neighbours(
        ours.kneighbors(distances[:30, 30:]), theirs.kneighbors(distances[:30, 30:])
    )
    assert_same_neighbours(ours.kneighbors(), theirs.kneighbors())
    np.testing.assert_array_equal(
        ours.predict(distances[:30, 30:]), theirs.predict(distances[:30, 30:])
    )


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (np.zeros((3, 4)), "square"),
        (-np.ones((3, 3)), "Negative values"),
        (scipy.sparse.dia_matrix(np.eye(3)), "explicit zeros"),
    ],
)
def test_distances_computed_wrongly(matrix: Any, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        NearestNeighbors(n_neighbors=1, metric="precomputed").fit(matrix)


@pytest.mark.parametrize("dense", [False, True])
def test_graphs_of_distances(dense: bool) -> None:
    """Entries that a graph does not have are no neighbours, whatever was fitted."""
    points = dataset("iris")[0]
    rest, queries = points[30:], points[:30]
    transformer = sklearn.neighbors.KNeighborsTransformer(n_neighbors=9).fit(rest)
    graph, asked = transformer.transform(rest), transformer.transform(queries)
    fitted = sklearn.metrics.pairwise_distances(rest) if dense else graph
    ours = NearestNeighbors(n_neighbors=4, radius=0.31, metric="precomputed").fit(fitted)
    theirs = sklearn.neighbors.NearestNeighbors(n_neighbors=4, radius=0.31, metric="precomputed")
    theirs.fit(fitted)
    for queries_given in (asked, None):
        distances, items = theirs.kneighbors(queries_given)
        expected = distances, items.astype(np.int64)  # as wide as the graph's indices
        assert_same_neighbours(ours.kneighbors(queries_given), expected)
    for mine, his in zip(
        ours.radius_neighbors(asked)[1], theirs.radius_neighbors(asked)[1], strict=True
    ):
        np.testing.assert_array_equal(mine, np.sort(his))
    in_blocks = ours.kneighbors([asked[:10], asked[10:]])
    np.testing.assert_array_equal(np.concatenate(in_blocks[1]), ours.kneighbors(asked)[1])
    words = "11 neighbors per samples are required, but some samples have only 10"
    with pytest.raises(InvalidArgumentError, match=words):
        ours.kneighbors(asked, 11)
    with pytest.raises(InvalidArgumentError, match="Negative"):
        ours.kneighbors(-asked)


@pytest.mark.parametrize(
    "transformer",
    [
        sklearn.neighbors.KNeighborsTransformer(n_neighbors=9),
        sklearn.neighbors.RadiusNeighborsTransformer(radius=1.2),
    ],
)
def test_in_a_pipeline_behind_a_transformer(transformer: Any) -> None:
    points, labels = dataset("iris")
    for ours, theirs in (
        (KNeighborsClassifier(3), sklearn.neighbors.KNeighborsClassifier(3)),
        (RadiusNeighborsRegressor(0.9), sklearn.neighbors.RadiusNeighborsRegressor(0.9)),
    ):
        found, expected = (
            make_pipeline(transformer, each.set_params(metric="precomputed"))
            .fit(points[30:], labels[30:].astype(np.float64))
            .predict(points[:30])
            for each in (ours, theirs)
        )
        np.testing.assert_allclose(found, expected)


def test_a_metric_in_float32() -> None:
    points = dataset("iris")[0].astype(np.float32)
    metric = sklearn.metrics.DistanceMetric.get_metric("manhattan", dtype=np.float32)
    theirs = sklearn.neighbors.NearestNeighbors(metric=metric).fit(points[30:])
    expected = theirs.kneighbors(points[:30])
    for fitted in (points[30:], cut(points[30:], [20, 0, 100])):
        ours = NearestNeighbors(metric=metric).fit(fitted)
        found = ours.kneighbors(points[:30])
        np.testing.assert_array_equal(found[0], expected[0])
        assert_same_neighbours(found, expected)
    with pytest.raises(InvalidArgumentError, match="Unrecognized metric"):
        NearestNeighbors(metric=metric, algorithm="kd_tree").fit(points)


def test_missing_values() -> None:
    points = lattice()
    points[::7, 0] = np.nan
    ours = NearestNeighbors(metric="nan_euclidean").fit(points)
    theirs = sklearn.neighbors.NearestNeighbors(metric="nan_euclidean").fit(points)
    found, expected = ours.kneighbors(points[:40]), theirs.kneighbors(points[:40])
    np.testing.assert_allclose(found[0], expected[0])


def test_sparse_points_and_a_tree() -> None:
    points = scipy.sparse.csr_matrix(lattice())
    with pytest.warns(UserWarning, match="brute force"):
        ours = NearestNeighbors(algorithm="kd_tree").fit(points)
    np.testing.assert_array_equal(
        ours.kneighbors(points[:9])[1], by_distance_and_number(lattice(), lattice()[:9], 5)[1]
    )


def test_minkowski_that_is_no_metric() -> None:
    points = lattice(30)
    with pytest.warns(UserWarning, match="0 < p < 1"):
        ours = NearestNeighbors(p=0.5, algorithm="brute").fit(points)
    with pytest.warns(UserWarning, match="0 < p < 1"):
        theirs = sklearn.neighbors.NearestNeighbors(p=0.5, algorithm="brute").fit(points)
    np.testing.assert_allclose(ours.kneighbors(points)[0], theirs.kneighbors(points)[0])
    with pytest.raises(InvalidArgumentError, match="0 < p < 1"):
        NearestNeighbors(p=0.5, algorithm="kd_tree").fit(points)


def test_constant_values_are_scored_as_scikit_learn_scores_them() -> None:
    points = lattice(30)
    for values in (np.ones(30), np.arange(30.0)):
        ours = KNeighborsRegressor(3).fit(cut(points, [10, 20]), cut(values, [10, 20]))
        for truth in (np.ones(30), np.zeros(30)):
            expected = ours.score(points, truth)
            assert ours.score(cut(points, [10, 20]), cut(truth, [10, 20])) == expected


def test_float32_values_give_what_scikit_learn_gives() -> None:
    points, values = lattice(), np.arange(300, dtype=np.float32)
    ours = KNeighborsRegressor().fit(points, values)
    theirs = sklearn.neighbors.KNeighborsRegressor().fit(points, values)
    assert ours.predict(points).dtype == theirs.predict(points).dtype
    (block,) = ours.predict([points])
    assert block.dtype == np.float32


def test_a_dask_array_without_a_cluster_goes_with_lists_of_blocks() -> None:
    points = da.from_array(lattice(), chunks=(100, 2)).persist(scheduler="synchronous")
    search = NearestNeighbors().fit(points)
    # A Dask array without a cluster is in this process, as lists of blocks are.
    assert len(search.kneighbors(cut(lattice(), [100, 200]))[1]) == 2
