"""The neighbours estimators as scikit-learn expects estimators to be, on arrays in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from spliter_apps.neighbors import (
    KNeighborsClassifier,
    KNeighborsRegressor,
    NearestNeighbors,
    RadiusNeighborsClassifier,
    RadiusNeighborsRegressor,
)
from tests.neighbors_data import dataset

pytestmark = pytest.mark.thorough


# No check is expected to fail. scikit-learn itself skips what does not apply: array API input
# where SCIPY_ARRAY_API is not set, and decision functions, which votes do not have.
@pytest.mark.filterwarnings("ignore:cannot use tree with sparse input:UserWarning")
@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        NearestNeighbors(),
        NearestNeighbors(algorithm="brute"),
        KNeighborsClassifier(),
        KNeighborsClassifier(weights="distance", algorithm="ball_tree"),
        KNeighborsRegressor(),
        KNeighborsRegressor(weights="distance", algorithm="brute"),
        KNeighborsClassifier(metric="precomputed"),
        RadiusNeighborsClassifier(),
        RadiusNeighborsRegressor(weights="distance"),
    ]
)
def test_scikit_learn_interface(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize(
    "estimator",
    [
        NearestNeighbors(),
        KNeighborsClassifier(),
        KNeighborsRegressor(),
        RadiusNeighborsClassifier(),
        RadiusNeighborsRegressor(),
    ],
    ids=str,
)
def test_parameters_are_those_of_scikit_learn(estimator: Any) -> None:
    import sklearn.neighbors

    theirs = getattr(sklearn.neighbors, type(estimator).__name__)()
    assert estimator.get_params() == theirs.get_params()
    assert clone(estimator).get_params() == estimator.get_params()


def test_in_a_pipeline_and_a_search() -> None:
    points, labels = dataset("breast cancer")
    pipeline = make_pipeline(StandardScaler(), KNeighborsClassifier())
    search = GridSearchCV(pipeline, {"kneighborsclassifier__n_neighbors": [1, 5]}, cv=3)
    search.fit(points, labels)
    assert search.best_params_ == {"kneighborsclassifier__n_neighbors": 5}
    assert search.best_score_ > 0.95


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_no_numbers(bad: float) -> None:
    points, labels = dataset("iris")
    wrong = points.copy()
    wrong[3, 1] = bad
    for estimator in (NearestNeighbors(), KNeighborsClassifier(), KNeighborsRegressor()):
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            estimator.fit(wrong, labels)
        estimator.fit(points, labels)
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            estimator.kneighbors(wrong)
    targets = labels.astype(np.float64)
    targets[3] = bad
    for predictor in (KNeighborsClassifier(), KNeighborsRegressor()):
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            predictor.fit(points, targets)
