"""What the neighbours estimators must refuse on every engine, and say why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.exceptions import NotFittedError

from spliter import AlignmentError, InvalidArgumentError, split
from spliter_apps.neighbors import KNeighborsClassifier, KNeighborsRegressor, NearestNeighbors
from tests.engine_collections import EngineCollections
from tests.neighbors_data import (
    Array,
    dataset,
    lattice,
    manhattan,
    named,
)


class NeighborsRefusals(EngineCollections):
    """Subclasses say how a collection of the engine is made."""

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_points_that_are_no_numbers(self, bad: float) -> None:
        points = lattice(30)
        points[25, 1] = bad
        x = self.collection(points, [10, 10, 10])
        with pytest.raises(InvalidArgumentError, match=r"block \(2, 0\)|block \(2,\)"):
            NearestNeighbors().fit(x)
        ours = NearestNeighbors(n_neighbors=1).fit(self.collection(lattice(30), [10, 20]))
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            self.gathered(ours.kneighbors(x)[1])

    @pytest.mark.parametrize("dtype", [str, object])
    def test_names_as_targets_of_a_regressor(self, dtype: type) -> None:
        x = self.collection(lattice(4), [2, 2])
        names: Array = np.array(["a", "b", "a", "b"], dtype=dtype)
        for given, y in ((x, self.collection(names, [2, 2])), (lattice(4), names)):
            with pytest.raises(InvalidArgumentError, match=r"got \['a', 'b'.*KNeighborsClassifier"):
                KNeighborsRegressor(1).fit(given, y)

    def test_points_without_targets(self) -> None:
        x = self.collection(lattice(4), [2, 2])
        for estimator in (KNeighborsClassifier(1), KNeighborsRegressor(1)):
            for given in (x, split(x)):
                with pytest.raises(InvalidArgumentError, match=r"requires y .*split\(X, y\)"):
                    estimator.fit(given)

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_targets_that_are_no_numbers(self, bad: float) -> None:
        values = np.ones(30)
        values[5] = bad
        x, t = self.collection(lattice(30), [10, 20]), self.collection(values, [10, 20])
        for estimator in (KNeighborsRegressor(), KNeighborsClassifier()):
            with pytest.raises(InvalidArgumentError, match=r"y, block \(0"):
                estimator.fit(x, t)

    def test_values_are_no_labels(self) -> None:
        values = np.random.default_rng(0).random(30)
        x, t = self.collection(lattice(30), [10, 20]), self.collection(values, [10, 20])
        with pytest.raises(InvalidArgumentError, match="Unknown label type"):
            KNeighborsClassifier().fit(x, t)

    def test_one_class_is_enough(self) -> None:
        x, t = self.collection(lattice(30), [10, 20]), self.collection(np.ones(30), [10, 20])
        ours = KNeighborsClassifier().fit(x, t)
        np.testing.assert_array_equal(self.gathered(ours.predict_proba(x)), np.ones((30, 1)))

    def test_fewer_points_than_neighbours(self) -> None:
        x = self.collection(lattice(5), [2, 3])
        ours = NearestNeighbors(n_neighbors=6).fit(x)
        words = r"Expected n_neighbors <= n_samples_fit, but n_neighbors = 6, n_samples_fit = 5"
        for queries in (lattice(3), x):
            with pytest.raises(InvalidArgumentError, match=words):
                ours.kneighbors(queries)
        with pytest.raises(InvalidArgumentError, match="Expected n_neighbors < n_samples_fit"):
            ours.kneighbors(n_neighbors=5)
        assert self.gathered(ours.kneighbors(n_neighbors=4)[1]).shape == (5, 4)
        assert ours.kneighbors(lattice(3), n_neighbors=5)[1].shape == (3, 5)

    @pytest.mark.parametrize(
        ("n_neighbors", "words"), [(0, "> 0"), (-1, "> 0"), (2.0, "integer"), ("3", "integer")]
    )
    def test_numbers_of_neighbours(self, n_neighbors: Any, words: str) -> None:
        ours = NearestNeighbors().fit(self.collection(lattice(), [300]))
        with pytest.raises(InvalidArgumentError, match=words):
            ours.kneighbors(lattice(3), n_neighbors)

    @pytest.mark.parametrize(
        "options",
        [
            {"n_neighbors": 2.5},
            {"n_neighbors": 0},
            {"algorithm": "tree"},
            {"leaf_size": 0},
            {"metric": "no such metric"},
            {"metric": "cosine", "algorithm": "kd_tree"},
            {"metric": "haversine", "algorithm": "ball_tree"},
            {"metric": manhattan, "algorithm": "kd_tree"},
            {"p": 0},
        ],
        ids=named,
    )
    def test_parameters(self, options: dict[str, Any]) -> None:
        points = dataset("iris")[0]
        for x in (points, self.collection(points, [100, 50])):
            with pytest.raises(InvalidArgumentError):
                NearestNeighbors(**options).fit(x)

    def test_weights_of_no_kind(self) -> None:
        points, labels = dataset("iris")
        x, t = self.collection(points, [150]), self.collection(labels, [150])
        with pytest.raises(InvalidArgumentError, match="weights"):
            KNeighborsRegressor(weights="near").fit(x, t)  # type: ignore[arg-type]

    def test_neighbours_that_do_not_count(self) -> None:
        points, labels = dataset("iris")
        x, t = self.collection(points, [150]), self.collection(labels, [150])
        ours = KNeighborsClassifier(weights=np.zeros_like).fit(x, t)
        with pytest.raises(InvalidArgumentError, match="zero weights"):
            ours.predict(points)

    @pytest.mark.parametrize("radius", [-1.0, np.nan, "1", None])
    def test_radiuses(self, radius: Any) -> None:
        ours = NearestNeighbors(radius=-1.0 if radius is None else 1.0, n_neighbors=1)
        if radius is None:
            with pytest.raises(InvalidArgumentError, match="radius"):
                ours.fit(self.collection(lattice(), [300]))
            return
        ours.fit(self.collection(lattice(), [300]))
        with pytest.raises(InvalidArgumentError, match="radius"):
            ours.radius_neighbors(lattice(3), radius)

    def test_orders_and_modes(self) -> None:
        ours = NearestNeighbors().fit(self.collection(lattice(), [300]))
        with pytest.raises(InvalidArgumentError, match="return_distance"):
            ours.radius_neighbors(lattice(3), return_distance=False, sort_results=True)
        with pytest.raises(InvalidArgumentError, match="mode"):
            ours.kneighbors_graph(lattice(3), mode="edges")

    def test_other_features_than_fitted(self) -> None:
        ours = NearestNeighbors().fit(self.collection(lattice(), [100, 200]))
        wrong = lattice(n_features=3)
        with pytest.raises(ValueError, match="3 features, but NearestNeighbors is expecting 2"):
            ours.kneighbors(wrong)
        with pytest.raises(InvalidArgumentError, match="3 features, but NearestNeighbors is"):
            self.gathered(ours.kneighbors(self.collection(wrong, [300]))[1])

    def test_blocks_of_different_width(self) -> None:
        x = self.blocks([lattice(3), lattice(3, n_features=3)])
        with pytest.raises(InvalidArgumentError, match="columns"):
            NearestNeighbors(n_neighbors=1).fit(x)

    def test_no_points(self) -> None:
        with pytest.raises(InvalidArgumentError, match="0 sample"):
            NearestNeighbors().fit(self.collection(np.empty((0, 2)), [0]))

    def test_no_queries(self) -> None:
        ours = NearestNeighbors().fit(self.collection(lattice(), [100, 200]))
        made = ours.kneighbors(self.collection(np.empty((0, 2)), [0]))
        assert self.gathered(made[1]).shape == (0, 5)

    @pytest.mark.parametrize(
        "estimator", [NearestNeighbors(), KNeighborsClassifier(), KNeighborsRegressor()], ids=str
    )
    def test_unfitted(self, estimator: Any) -> None:
        x = self.collection(lattice(), [300])
        for use in ("kneighbors", "kneighbors_graph", "radius_neighbors", "predict", "score"):
            if hasattr(estimator, use):
                with pytest.raises(NotFittedError):
                    getattr(estimator, use)(x, *([lattice()] if use == "score" else []))

    def test_labels_blocked_otherwise(self) -> None:
        points, labels = dataset("iris")
        x = self.collection(points, [50, 100])
        with pytest.raises(AlignmentError):
            KNeighborsClassifier().fit(x, self.collection(labels, [60, 90]))
        with pytest.raises(InvalidArgumentError, match="y has 149 entries and the points have 150"):
            KNeighborsClassifier().fit(x, labels[1:])
        with split(x) as parts, pytest.raises(InvalidArgumentError, match=r"split\(X, y\)"):
            KNeighborsClassifier().fit(parts)
        t = self.collection(labels, [50, 100])
        with split(x, t) as parts, pytest.raises(InvalidArgumentError, match=r"split\(X\)"):
            NearestNeighbors().fit(parts)

    def test_sparse_queries_of_a_tree(self) -> None:
        ours = NearestNeighbors(algorithm="kd_tree").fit(self.collection(lattice(), [300]))
        with pytest.raises(InvalidArgumentError, match="sparse"):
            ours.kneighbors(scipy.sparse.csr_matrix(lattice(3)))
        asked = self.blocks([scipy.sparse.csr_matrix(lattice(3))])
        with pytest.raises(InvalidArgumentError, match=r"[Ss]parse"):
            self.gathered(ours.kneighbors(asked)[1])

    def test_distances_computed_before_need_memory(self) -> None:
        x = self.collection(np.zeros((4, 4)), [2, 2])
        with pytest.raises(InvalidArgumentError, match="precomputed"):
            NearestNeighbors(metric="precomputed").fit(x)
