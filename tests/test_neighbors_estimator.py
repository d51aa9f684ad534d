"""The neighbours estimators as scikit-learn expects estimators to be, on arrays in memory."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from spliter_apps.neighbors import (
    KNeighborsClassifier,
    KNeighborsRegressor,
    NearestNeighbors,
    RadiusNeighborsClassifier,
    RadiusNeighborsRegressor,
)

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
