"""What the classifiers and regressors of neighbours must predict on every engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn.neighbors
from sklearn.datasets import load_diabetes
from sklearn.exceptions import DataConversionWarning

from spliter import InvalidArgumentError, split
from spliter_apps.neighbors import (
    KNeighborsClassifier,
    KNeighborsRegressor,
    RadiusNeighborsClassifier,
    RadiusNeighborsRegressor,
)
from tests.kmeans_data import heights
from tests.neighbors_data import Array, dataset
from tests.neighbors_refusals import NeighborsRefusals


def inverse_squares(distances: Array) -> Array:
    """Weights that are a function: of an array of distances, or of arrays of them."""
    return 1 / (distances + 0.1) ** 2


class NeighborsPredictions(NeighborsRefusals):
    """Subclasses say how a collection of the engine is made."""

    @pytest.mark.parametrize("weights", [inverse_squares, "uniform", "distance", None])
    def test_regression(self, weights: Any) -> None:
        points, values = load_diabetes(return_X_y=True)
        rows = heights(400, 7)
        x, t = self.collection(points[:400], rows), self.collection(values[:400], rows)
        ours = KNeighborsRegressor(4, weights=weights).fit(x, t)
        theirs = sklearn.neighbors.KNeighborsRegressor(4, weights=weights)
        theirs.fit(points[:400], values[:400])
        expected = theirs.predict(points[400:])
        asked = self.collection(points[400:], [2, 40])
        np.testing.assert_allclose(ours.predict(points[400:]), expected)
        np.testing.assert_allclose(self.gathered(ours.predict(asked)), expected)
        truth = self.collection(values[400:], [2, 40])
        weight = np.random.default_rng(0).random(42)
        for sample_weight in (None, weight):
            score = theirs.score(points[400:], values[400:], sample_weight)
            assert ours.score(points[400:], values[400:], sample_weight) == pytest.approx(score)
            in_blocks = None if sample_weight is None else self.collection(weight, [2, 40])
            assert ours.score(asked, truth, in_blocks) == pytest.approx(score)

    def test_several_outputs(self) -> None:
        points, labels = dataset("iris")
        both = np.column_stack([labels, labels > 0])
        rows, asked = [40, 60, 30], self.collection(points[130:], [8, 12])
        x, t = self.collection(points[:130], rows), self.collection(both[:130], rows)
        ours = KNeighborsClassifier(3).fit(x, t)
        theirs = sklearn.neighbors.KNeighborsClassifier(3).fit(points[:130], both[:130])
        assert ours.outputs_2d_ is theirs.outputs_2d_ is True
        for mine, his in zip(ours.classes_, theirs.classes_, strict=True):
            np.testing.assert_array_equal(mine, his)
        expected = theirs.predict(points[130:])
        np.testing.assert_array_equal(self.gathered(ours.predict(asked)), expected)
        for mine, his in zip(
            ours.predict_proba(asked), theirs.predict_proba(points[130:]), strict=True
        ):
            np.testing.assert_allclose(self.gathered(mine), his)
        right = (expected == both[130:]).all(axis=1).mean()
        assert ours.score(asked, self.collection(both[130:], [8, 12])) == pytest.approx(right)
        values = KNeighborsRegressor(3).fit(x, self.collection(both[:130] * 1.5, rows))
        single = sklearn.neighbors.KNeighborsRegressor(3).fit(points[:130], both[:130] * 1.5)
        predicted = values.predict(asked)
        np.testing.assert_allclose(self.gathered(predicted), single.predict(points[130:]))
        assert values.score(asked, self.collection(both[130:] * 1.5, [8, 12])) == pytest.approx(
            single.score(points[130:], both[130:] * 1.5)
        )

    def test_labels_that_are_strings(self) -> None:
        points, labels = dataset("iris")
        names = np.array(["setosa", "versicolor", "no"])[labels]
        # Labels of different lengths, and classes, at different places.
        order = np.argsort(names, kind="stable")
        rows = [30, 40, 50, 30]
        x, t = self.collection(points[order], rows), self.collection(names[order], rows)
        ours = KNeighborsClassifier(1).fit(x, t)
        assert list(ours.classes_) == ["no", "setosa", "versicolor"]
        asked = self.collection(points, [100, 50])
        np.testing.assert_array_equal(self.gathered(ours.predict(asked)), names)
        assert ours.score(asked, self.collection(names, [100, 50])) == 1.0

    def test_score_with_weights(self) -> None:
        points, labels = dataset("iris")
        x, t = self.collection(points, [70, 80]), self.collection(labels, [70, 80])
        ours = KNeighborsClassifier(15).fit(x, t)
        weight = np.random.default_rng(0).random(150)
        expected = ours.score(points, labels, weight)
        assert 0.9 < expected < 1
        w = self.collection(weight, [70, 80])
        assert ours.score(x, t, w) == pytest.approx(expected)
        with split(x, t, w) as parts:
            assert ours.score(parts) == pytest.approx(expected)

    def test_labels_in_memory_next_to_points_in_blocks(self) -> None:
        points, labels = dataset("iris")
        names = np.array(["setosa", "versicolor", "no"])[labels]
        weight = np.random.default_rng(0).random(150)
        x = self.collection(points, [50, 0, 100])
        ours = KNeighborsClassifier(15).fit(x, pd.Series(names))
        theirs = sklearn.neighbors.KNeighborsClassifier(15).fit(points, names)
        np.testing.assert_array_equal(self.gathered(ours.predict(x)), theirs.predict(points))
        for truth in (names, names.tolist(), self.collection(names, [50, 0, 100])):
            score = theirs.score(points, names, weight)
            assert ours.score(x, truth, weight.tolist()) == pytest.approx(score)
        both = np.column_stack([labels, labels**2])
        values = KNeighborsRegressor(3).fit(x, both.tolist())
        expected = sklearn.neighbors.KNeighborsRegressor(3).fit(points, both)
        assert values.score(x, both) == pytest.approx(expected.score(points, both))

    def test_a_column_of_labels(self) -> None:
        points, labels = dataset("iris")
        rows = [75, 75]
        x, t = self.collection(points, rows), self.collection(labels[:, None], rows)
        with pytest.warns(DataConversionWarning, match="column-vector"):
            ours = KNeighborsClassifier().fit(x, t)
        assert ours.outputs_2d_ is False
        assert self.gathered(ours.predict(x)).shape == (150,)
        values = KNeighborsRegressor().fit(x, t)
        assert self.gathered(values.predict(x)).shape == (150, 1)
        assert values.predict(points).shape == (150, 1)

    # --- the fitted points, each without itself ----------------------------------------------

    def test_scores_of_the_fitted_points(self) -> None:
        points, labels = dataset("iris")
        rows, weight = heights(150, 7), np.random.default_rng(0).random(150)
        x, t = self.collection(points, rows), self.collection(labels, rows)
        w = self.collection(weight, rows)
        for ours, theirs in (
            (KNeighborsClassifier(3), sklearn.neighbors.KNeighborsClassifier(3)),
            (KNeighborsRegressor(3), sklearn.neighbors.KNeighborsRegressor(3)),
        ):
            ours.fit(x, t)
            theirs.fit(points, labels)
            expected = theirs.score(None, labels)
            assert 0.5 < expected < 1
            assert ours.score(None, t) == pytest.approx(expected)
            assert ours.score(None, labels) == pytest.approx(expected)
            expected = theirs.score(None, labels, weight)
            assert ours.score(None, t, w) == pytest.approx(expected)
            with pytest.raises(InvalidArgumentError, match="score\\(None\\) needs y"):
                ours.score(None)

    # --- within a radius --------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("algorithm", "weights"),
        [("kd_tree", "uniform"), ("brute", "distance"), ("ball_tree", inverse_squares)],
    )
    def test_classes_within_a_radius(self, algorithm: str, weights: Any) -> None:
        points, labels = dataset("iris")
        names = np.array(["setosa", "versicolor", "no"])[labels]
        queries = np.concatenate([points[100:], points[:5] + 1e3])
        rows, asked = [50, 0, 30, 20], self.collection(queries, [20, 0, 35])
        settings: dict[str, Any] = {
            "weights": weights,
            "algorithm": algorithm,
            "outlier_label": "no",
        }
        ours = RadiusNeighborsClassifier(0.505, **settings)
        theirs = sklearn.neighbors.RadiusNeighborsClassifier(0.505, **settings)
        ours.fit(self.collection(points[:100], rows), self.collection(names[:100], rows))
        theirs.fit(points[:100], names[:100])
        assert ours.outlier_label_ == theirs.outlier_label_
        expected = theirs.predict_proba(queries)
        np.testing.assert_allclose(ours.predict_proba(queries), expected)
        np.testing.assert_allclose(self.gathered(ours.predict_proba(asked)), expected)
        expected = theirs.predict(queries)
        found = self.gathered(ours.predict(asked))
        np.testing.assert_array_equal(found, expected)
        assert ours.predict(queries).dtype == expected.dtype
        assert ours.score(asked, expected) == 1.0
        assert ours.score(None, names[:100]) == pytest.approx(theirs.score(None, names[:100]))

    def test_most_frequent_class_of_outliers(self) -> None:
        points, labels = dataset("iris")
        both = np.column_stack([labels, labels > 0])
        rows = [50, 0, 60, 40]
        settings: dict[str, Any] = {"radius": 0.3, "outlier_label": "most_frequent"}
        ours = RadiusNeighborsClassifier(**settings)
        theirs = sklearn.neighbors.RadiusNeighborsClassifier(**settings).fit(points, both)
        ours.fit(self.collection(points, rows), self.collection(both, rows))
        assert ours.outlier_label_ == theirs.outlier_label_
        queries = np.concatenate([points[::3], points[:5] + 1e3])
        found = self.gathered(ours.predict(self.collection(queries, [30, 25])))
        np.testing.assert_array_equal(found, theirs.predict(queries))

    @pytest.mark.parametrize(
        ("n_outputs", "weights"), [(1, "uniform"), (2, "distance"), (2, inverse_squares)]
    )
    def test_values_within_a_radius(self, weights: Any, n_outputs: int) -> None:
        points, values = load_diabetes(return_X_y=True)
        values = values if n_outputs == 1 else np.column_stack([values, points[:, 2]])
        rows, asked = heights(400, 7), self.collection(points[400:], [2, 40])
        ours = RadiusNeighborsRegressor(0.2, weights=weights)
        theirs = sklearn.neighbors.RadiusNeighborsRegressor(0.2, weights=weights)
        ours.fit(self.collection(points[:400], rows), self.collection(values[:400], rows))
        expected = theirs.fit(points[:400], values[:400]).predict(points[400:])
        np.testing.assert_allclose(ours.predict(points[400:]), expected)
        np.testing.assert_allclose(self.gathered(ours.predict(asked)), expected)
        score = theirs.score(points[400:], values[400:])
        assert ours.score(asked, values[400:]) == pytest.approx(score)

    def test_nothing_within_a_radius(self) -> None:
        points, labels = dataset("iris")
        x, far = self.collection(points, [50, 100]), points[:3] + 1e3
        ours = RadiusNeighborsClassifier(0.5).fit(x, labels)
        with pytest.raises(InvalidArgumentError, match="No neighbors found for 3 of the"):
            ours.predict(far)
        values = RadiusNeighborsRegressor(0.5).fit(x, labels)
        with pytest.warns(UserWarning, match="no neighbors within specified radius"):
            assert np.isnan(values.predict(far)).all()
        asked = self.collection(far, [1, 2])
        assert np.isnan(self.gathered(values.predict(asked))).all()
        with pytest.raises(InvalidArgumentError, match="NaN, which cannot be scored"):
            values.score(asked, labels[:3])

    @pytest.mark.parametrize(
        ("label", "words"),
        [([1, 2], "inconsistent with the output length"), ([[1]], "scalar"), (0.5, "dtype")],
        ids=str,
    )
    def test_labels_that_outliers_cannot_have(self, label: Any, words: str) -> None:
        points, labels = dataset("iris")
        x = self.collection(points, [50, 100])
        with pytest.raises(InvalidArgumentError, match=words):
            RadiusNeighborsClassifier(outlier_label=label).fit(x, labels)

    def test_a_label_of_outliers_that_is_no_class(self) -> None:
        points, labels = dataset("iris")
        ours = RadiusNeighborsClassifier(0.5, outlier_label=7)
        with pytest.warns(UserWarning, match="Outlier label 7 is not in training classes"):
            ours.fit(self.collection(points, [50, 100]), labels)
        far = self.collection(points[:3] + 1e3, [1, 2])
        np.testing.assert_array_equal(self.gathered(ours.predict(far)), [7, 7, 7])
        np.testing.assert_array_equal(self.gathered(ours.predict_proba(far)), np.zeros((3, 3)))
