"""What the neighbours estimators must do on every engine; each engine's tests subclass it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import sklearn.metrics
import sklearn.neighbors

from spliter import InvalidArgumentError, SplitClosedError, split
from spliter_apps.neighbors import KNeighborsClassifier, NearestNeighbors
from tests.engine_collections import cut, record_closed
from tests.kmeans_data import heights
from tests.neighbors_data import (
    Array,
    assert_same_neighbours,
    by_distance_and_number,
    dataset,
    lattice,
    manhattan,
    named,
)
from tests.neighbors_predictions import NeighborsPredictions

DATASETS = ["digits", "breast cancer", "iris", "blobs"]
NBLOCKS = [1, 7, 200]
N_QUERIES = 60


class NeighborsTests(NeighborsPredictions):
    """Also the neighbours. Subclasses say how a collection of the engine is made."""

    def pair(self, made: Any) -> tuple[Array, Array]:
        """Return both outputs of a query in blocks."""
        distances, items = made
        return self.gathered(distances), self.gathered(items)

    # --- the same as scikit-learn -----------------------------------------------------------

    @pytest.mark.parametrize("n_blocks", NBLOCKS)
    @pytest.mark.parametrize("name", DATASETS)
    def test_same_as_scikit_learn(self, name: str, n_blocks: int) -> None:
        points, labels = dataset(name)
        queries, rest, y = points[:N_QUERIES], points[N_QUERIES:], labels[N_QUERIES:]
        rows = heights(len(rest), n_blocks)
        x, t = self.collection(rest, rows), self.collection(y, rows)
        asked = self.collection(queries, heights(N_QUERIES, 7))
        # The votes of an odd number of neighbours, of which no two are equally far in these.
        ours = KNeighborsClassifier(3, weights="distance").fit(x, t)
        theirs = sklearn.neighbors.KNeighborsClassifier(3, weights="distance").fit(rest, y)
        found = theirs.kneighbors(queries)
        assert_same_neighbours(ours.kneighbors(queries), found)
        in_blocks = ours.kneighbors(asked)
        assert self.heights(in_blocks[1]) == heights(N_QUERIES, 7)
        assert_same_neighbours(self.pair(in_blocks), found)
        expected = theirs.predict(queries)
        for predicted in (ours.predict(queries), self.gathered(ours.predict(asked))):
            np.testing.assert_array_equal(predicted, expected)
            assert predicted.dtype == expected.dtype
        expected = theirs.predict_proba(queries)
        np.testing.assert_allclose(ours.predict_proba(queries), expected, rtol=1e-6)
        np.testing.assert_allclose(self.gathered(ours.predict_proba(asked)), expected, rtol=1e-6)
        assert ours.n_samples_fit_ == len(rest)
        assert ours.n_features_in_ == theirs.n_features_in_
        assert ours.effective_metric_ == theirs.effective_metric_
        assert ours.effective_metric_params_ == theirs.effective_metric_params_
        assert ours.outputs_2d_ is theirs.outputs_2d_
        np.testing.assert_array_equal(ours.classes_, theirs.classes_)

    @pytest.mark.parametrize(
        "options",
        [
            {"algorithm": "brute"},
            {"algorithm": "ball_tree", "leaf_size": 5},
            {"p": 1},
            {"p": np.inf},
            {"p": 3, "algorithm": "ball_tree"},
            {"metric": "cosine"},
            {"metric": "canberra"},
            {"metric": "seuclidean", "metric_params": {"V": np.array([1.0, 2.0, 0.5, 3.0])}},
            {"metric": "minkowski", "metric_params": {"w": np.array([1.0, 2.0, 0.5, 3.0])}},
            {"metric": "sqeuclidean"},
            {"metric": sklearn.metrics.DistanceMetric.get_metric("manhattan")},
        ],
        ids=named,
    )
    def test_algorithms_and_metrics(self, options: dict[str, Any]) -> None:
        points, _ = dataset("iris")
        points = points + np.random.default_rng(0).normal(scale=0.01, size=points.shape)
        ours = NearestNeighbors(**options).fit(self.collection(points[20:], [50, 1, 79]))
        theirs = sklearn.neighbors.NearestNeighbors(**options).fit(points[20:])
        assert_same_neighbours(ours.kneighbors(points[:20]), theirs.kneighbors(points[:20]))
        assert ours.effective_metric_ == theirs.effective_metric_

    @pytest.mark.parametrize("algorithm", ["brute", "ball_tree"])
    def test_metrics_of_sets(self, algorithm: str) -> None:
        points = np.random.default_rng(0).integers(0, 2, (60, 12)).astype(bool)
        ours = NearestNeighbors(metric="jaccard", algorithm=algorithm)
        theirs = sklearn.neighbors.NearestNeighbors(metric="jaccard", algorithm=algorithm)
        ours.fit(self.collection(points[10:].astype(np.float64), [20, 30]))
        theirs.fit(points[10:])
        expected = theirs.kneighbors(points[:10])[0]
        found = ours.kneighbors(points[:10].astype(np.float64))[0]
        np.testing.assert_allclose(found, expected)

    def test_a_function_as_metric(self) -> None:
        points, _ = dataset("iris")
        ours = NearestNeighbors(n_neighbors=3, metric=manhattan)
        theirs = sklearn.neighbors.NearestNeighbors(n_neighbors=3, metric="manhattan")
        ours.fit(self.collection(points[100:], [25, 25]))
        found = ours.kneighbors(self.collection(points[:4], [2, 2]))
        expected = theirs.fit(points[100:]).kneighbors(points[:4])
        np.testing.assert_allclose(self.pair(found)[0], expected[0])

    @pytest.mark.parametrize("n_blocks", NBLOCKS)
    @pytest.mark.parametrize("algorithm", ["kd_tree", "brute"])
    def test_within_a_radius(self, algorithm: str, n_blocks: int) -> None:
        points, _ = dataset("iris")
        x = self.collection(points[20:], heights(130, n_blocks))
        ours = NearestNeighbors(radius=0.505, algorithm=algorithm).fit(x)
        # No distance is equal to it: scikit-learn rounds those that it computes for all pairs.
        theirs = sklearn.neighbors.NearestNeighbors(radius=0.505, algorithm=algorithm)
        expected = theirs.fit(points[20:]).radius_neighbors(points[:20], sort_results=True)
        queries = self.collection(points[:20], [13, 0, 7])
        in_blocks = ours.radius_neighbors(queries, sort_results=True)
        assert self.heights(in_blocks[0]) == [13, 0, 7]
        for found in (
            ours.radius_neighbors(points[:20], sort_results=True),
            self.pair(in_blocks),
        ):
            for row in range(20):
                np.testing.assert_allclose(found[0][row], expected[0][row], atol=1e-7)
                assert set(found[1][row]) == set(expected[1][row])
                assert found[1][row].dtype == np.int64
        unsorted = ours.radius_neighbors(points[:20], return_distance=False)
        for row in range(20):
            np.testing.assert_array_equal(unsorted[row], np.sort(expected[1][row]))

    @pytest.mark.parametrize("mode", ["connectivity", "distance"])
    def test_graphs(self, mode: str) -> None:
        points, _ = dataset("blobs")
        rest, queries = points[20:200], points[:20]
        ours = NearestNeighbors(radius=4.0).fit(self.collection(rest, heights(180, 7)))
        theirs = sklearn.neighbors.NearestNeighbors(radius=4.0).fit(rest)
        asked = self.collection(queries, [9, 11])
        for name in ("kneighbors_graph", "radius_neighbors_graph"):
            expected = getattr(theirs, name)(queries, mode=mode)
            in_memory = getattr(ours, name)(queries, mode=mode)
            assert type(in_memory) is type(expected) and in_memory.dtype == expected.dtype
            for found in (in_memory, self.gathered(getattr(ours, name)(asked, mode=mode))):
                np.testing.assert_allclose(found.toarray(), expected.toarray())
        expected = theirs.kneighbors_graph(n_neighbors=2, mode=mode)
        found = self.gathered(ours.kneighbors_graph(n_neighbors=2, mode=mode))
        np.testing.assert_allclose(found.toarray(), expected.toarray())

    @pytest.mark.parametrize("n_blocks", NBLOCKS)
    def test_neighbours_of_the_fitted_points(self, n_blocks: int) -> None:
        points, labels = dataset("breast cancer")
        rows = heights(len(points), n_blocks)
        x, t = self.collection(points, rows), self.collection(labels, rows)
        ours = KNeighborsClassifier().fit(x, t)
        theirs = sklearn.neighbors.KNeighborsClassifier().fit(points, labels)
        made = ours.kneighbors()
        assert self.heights(made[0]) == rows
        assert_same_neighbours(self.pair(made), theirs.kneighbors())
        np.testing.assert_array_equal(self.gathered(ours.predict(None)), theirs.predict(None))
        search = NearestNeighbors(radius=30.0).fit(x)
        expected = sklearn.neighbors.NearestNeighbors(radius=30.0).fit(points)
        found = self.gathered(search.radius_neighbors(return_distance=False))
        for mine, his in zip(found, expected.radius_neighbors(return_distance=False), strict=True):
            np.testing.assert_array_equal(mine, np.sort(his))

    # --- ties, and what places change: nothing ----------------------------------------------

    @pytest.mark.parametrize("algorithm", ["kd_tree", "ball_tree", "brute"])
    def test_ties_go_to_the_smallest_number(self, algorithm: str) -> None:
        points, queries = lattice(), lattice(40, seed=1)
        ours = NearestNeighbors(n_neighbors=7, algorithm=algorithm, leaf_size=3)
        ours.fit(self.collection(points, heights(300, 7)))
        distances, items = by_distance_and_number(points, queries, 7)
        for found in (
            ours.kneighbors(queries),
            self.pair(ours.kneighbors(self.collection(queries, [10, 0, 30]))),
        ):
            np.testing.assert_array_equal(found[0], distances)
            np.testing.assert_array_equal(found[1], items)
        # A query that is a fitted point is not its own neighbour, however often it is repeated.
        own = by_distance_and_number(points, points, 300)[1]
        own = own[own != np.arange(300)[:, None]].reshape(300, 299)
        np.testing.assert_array_equal(self.gathered(ours.kneighbors()[1]), own[:, :7])

    @pytest.mark.parametrize("algorithm", ["kd_tree", "brute"])
    def test_blocks_do_not_show_in_the_results(self, algorithm: str) -> None:
        points, labels = dataset("breast cancer")
        found = []
        for n_blocks in (1, 7, 200):
            rows = heights(len(points), n_blocks)
            model = KNeighborsClassifier(4, weights="distance", algorithm=algorithm)
            model.fit(self.collection(points, rows), self.collection(labels, rows))
            found.append((*model.kneighbors(points[:50]), model.predict_proba(points[:50])))
        for other in found[1:]:
            for mine, his in zip(found[0], other, strict=True):
                np.testing.assert_array_equal(mine, his)

    def test_fewer_points_at_a_place_than_neighbours(self) -> None:
        points = lattice(12)
        ours = NearestNeighbors(n_neighbors=12, algorithm="kd_tree")
        ours.fit(self.collection(points, [0, 1, 0, 10, 1, 0]))
        expected = by_distance_and_number(points, points[:3], 12)
        np.testing.assert_array_equal(ours.kneighbors(points[:3])[1], expected[1])

    def test_automatic_choice_is_that_for_all_points(self) -> None:
        # Half of the points of one place, but not of all: a tree, everywhere.
        points = dataset("iris")[0]
        ours = NearestNeighbors(n_neighbors=40).fit(self.collection(points, [75, 75]))
        assert ours._forest.search.algorithm == "kd_tree"
        ours = NearestNeighbors(n_neighbors=75).fit(self.collection(points, [75, 75]))
        assert ours._forest.search.algorithm == "brute"

    # --- kinds of input ---------------------------------------------------------------------

    def test_data_frames(self) -> None:
        points, labels = dataset("iris")
        frame = pd.DataFrame(points, columns=["a", "b", "c", "d"])
        series = pd.Series(labels)
        rows = [50, 100]
        x, t = self.blocks(cut(frame, rows)), self.blocks(cut(series, rows))
        ours = KNeighborsClassifier().fit(x, t)
        assert ours.feature_names_in_.tolist() == ["a", "b", "c", "d"]
        theirs = sklearn.neighbors.KNeighborsClassifier().fit(frame, series)
        np.testing.assert_array_equal(ours.predict(frame[:30]), theirs.predict(frame[:30]))
        asked = self.blocks(cut(frame[:30], [10, 20]))
        np.testing.assert_array_equal(
            self.gathered(ours.predict(asked)), theirs.predict(frame[:30])
        )
        assert ours.score(x, t) == pytest.approx(theirs.score(frame, series))
        made = ours.kneighbors()
        assert self.gathered(made[1]).shape == (150, 5)

    @pytest.mark.parametrize("form", ["csr_matrix", "csr_array", "csc_matrix"])
    def test_sparse_points(self, form: str) -> None:
        points = dataset("digits")[0]
        make: Callable[[Any], Any] = getattr(scipy.sparse, form)
        ours = NearestNeighbors().fit(
            self.blocks([make(part) for part in cut(points[:300], [100, 0, 150, 50])])
        )
        theirs = sklearn.neighbors.NearestNeighbors(algorithm="brute").fit(points[:300])
        expected = theirs.kneighbors(points[300:320])
        assert_same_neighbours(ours.kneighbors(make(points[300:320])), expected)
        assert_same_neighbours(ours.kneighbors(points[300:320]), expected)
        asked = self.blocks([make(part) for part in cut(points[300:320], [5, 5, 5, 5])])
        assert_same_neighbours(self.pair(ours.kneighbors(asked)), expected)
        assert_same_neighbours(self.pair(ours.kneighbors()), theirs.kneighbors())

    def test_some_blocks_are_sparse(self) -> None:
        points, queries = lattice(), lattice(20, seed=1)
        mixed = cut(points, [60] * 5)
        mixed[1] = scipy.sparse.csr_matrix(mixed[1])
        asked = cut(queries, [5] * 4)
        asked[2] = scipy.sparse.csr_matrix(asked[2])
        search = NearestNeighbors(algorithm="brute")
        for blocks in (mixed, mixed[1:] + mixed[:1], cut(points, [60] * 5)):
            expected = by_distance_and_number(
                np.concatenate([b if isinstance(b, np.ndarray) else b.toarray() for b in blocks]),
                queries,
                5,
            )
            search.fit(self.blocks(blocks))
            found = self.pair(search.kneighbors(self.blocks(asked)))
            np.testing.assert_array_equal(found[0], expected[0])
            np.testing.assert_array_equal(found[1], expected[1])

    @pytest.mark.parametrize("dtype", [np.float32, np.int16, np.uint8])
    def test_dtypes(self, dtype: Any) -> None:
        points = lattice().astype(dtype)
        ours = NearestNeighbors().fit(self.collection(points, [100, 200]))
        expected = by_distance_and_number(points.astype(np.float64), lattice(9), 5)
        found = ours.kneighbors(lattice(9).astype(dtype))
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])

    def test_a_split_is_used_and_left_open(self) -> None:
        points, labels = dataset("iris")
        x, t = self.collection(points, [50, 100]), self.collection(labels, [50, 100])
        with split(x, t) as parts:
            ours = KNeighborsClassifier(1).fit(parts)
            assert ours.score(parts) == 1.0
            np.testing.assert_array_equal(self.gathered(ours.predict(parts)), labels)
            assert len(parts[:]) == len(parts)
        # The trees are there still; the points, as a collection, are not.
        np.testing.assert_array_equal(ours.predict(points), labels)
        with pytest.raises(SplitClosedError):
            ours.kneighbors()

    def test_fitted_again(self) -> None:
        points, labels = dataset("iris")
        ours = KNeighborsClassifier(1).fit(
            self.collection(points, [50, 100]), self.collection(labels, [50, 100])
        )
        ours.fit(points[:9], labels[:9])
        assert ours.kneighbors(points[:1])[0].shape == (1, 1)
        assert ours.n_samples_fit_ == 9
        ours.fit(self.collection(points[:, :2], [150]), self.collection(labels, [150]))
        assert ours.n_features_in_ == 2
        assert ours.predict(points[:5, :2]).shape == (5,)

    def test_pickling_brings_the_trees_along(self) -> None:
        points, labels = dataset("iris")
        rows = [40, 0, 80, 30]
        x, t = self.collection(points, rows), self.collection(labels, rows)
        ours = KNeighborsClassifier().fit(x, t)
        there: KNeighborsClassifier = pickle.loads(pickle.dumps(ours))
        for mine, his in zip(
            ours.kneighbors(points[:9]), there.kneighbors(points[:9]), strict=True
        ):
            np.testing.assert_array_equal(mine, his)
        np.testing.assert_array_equal(self.gathered(there.predict(x)), ours.predict(points))
        np.testing.assert_array_equal(there.kneighbors()[1], self.gathered(ours.kneighbors()[1]))
        assert type(there.kneighbors_graph()) is scipy.sparse.csr_matrix

    def test_fitted_in_memory_asked_in_blocks(self) -> None:
        points, labels = dataset("iris")
        ours = KNeighborsClassifier().fit(points, labels)
        x, t = self.collection(points, heights(150, 7)), self.collection(labels, heights(150, 7))
        np.testing.assert_array_equal(self.gathered(ours.predict(x)), ours.predict(points))
        assert ours.score(x, t) == pytest.approx(ours.score(points, labels))

    # --- tasks ------------------------------------------------------------------------------

    def test_one_tree_per_place(self) -> None:
        x = self.collection(lattice(), heights(300, 200))
        ours = NearestNeighbors().fit(x)
        with split(x) as parts:
            assert len(ours._forest.trees) == len(parts.locations)

    def test_the_split_of_the_queries_is_closed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ours = NearestNeighbors().fit(self.collection(lattice(), [100, 200]))
        closed = record_closed(monkeypatch)
        made = ours.kneighbors(self.collection(lattice(20), [5, 15]))
        assert any(parts.nblocks == 2 for parts in closed)
        assert self.gathered(made[1]).shape == (20, 5)
        closed.clear()
        with pytest.raises(InvalidArgumentError):
            NearestNeighbors().fit(self.collection(np.full((3, 2), np.nan), [3]))
        assert closed
