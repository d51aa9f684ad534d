"""The estimators as scikit-learn expects them to be, on arrays in memory."""

from __future__ import annotations

from typing import Any

import pytest
import sklearn.neighbors
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from spliter_apps.kmeans import KMeans
from spliter_apps.linear import PCA, LinearRegression, Ridge
from spliter_apps.neighbors import (
    KNeighborsClassifier,
    KNeighborsRegressor,
    NearestNeighbors,
    RadiusNeighborsClassifier,
    RadiusNeighborsRegressor,
)
from spliter_apps.svm import CascadeSVM

pytestmark = pytest.mark.thorough

CHECKS_OF_WEIGHTS = (
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
)
WEIGHTS = {
    KMeans: "the draws of first centres see a point of weight 2 once and a repeated point twice, "
    "and the tolerance follows the variance of the points, whatever their weights",
    CascadeSVM: "libsvm stops within svc_tol of the optimum, where from depends on the order of "
    "points, and gamma='scale' knows no weights",
}
"""Why these fail the checks of weights; scikit-learn lets its own ones off as well."""

EXACT: dict[str, Any] = {"gamma": 0.1, "svc_tol": 1e-10}
"""What the reasons for the expected failures do not apply to."""


def expected_failures(estimator: Any) -> dict[str, str]:
    exact = EXACT.items() <= estimator.get_params().items()
    why = None if exact else WEIGHTS.get(type(estimator))
    return dict.fromkeys(CHECKS_OF_WEIGHTS, why) if why else {}


# Checks of interfaces set max_iter low, and some have fewer different points than clusters.
# scikit-learn itself skips what does not apply: array API input where SCIPY_ARRAY_API is not set,
# and decision functions, which votes do not have.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:Number of distinct clusters:UserWarning")
@pytest.mark.filterwarnings("ignore:cannot use tree with sparse input:UserWarning")
@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        CascadeSVM(),
        CascadeSVM(**EXACT),
        KMeans(n_init=1),
        KMeans(init="k-means||"),
        NearestNeighbors(),
        KNeighborsClassifier(),
        KNeighborsRegressor(),
        KNeighborsClassifier(metric="precomputed"),
        RadiusNeighborsClassifier(),
        RadiusNeighborsRegressor(weights="distance"),
        PCA(),
        PCA(n_components=1, whiten=True),
        LinearRegression(),
        LinearRegression(fit_intercept=False),
        Ridge(),
        Ridge(alpha=0.0, solver="cholesky"),
    ],
    expected_failed_checks=expected_failures,
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
def test_parameters_of_neighbours_are_those_of_scikit_learn(estimator: Any) -> None:
    theirs = getattr(sklearn.neighbors, type(estimator).__name__)()
    assert estimator.get_params() == theirs.get_params()
    assert clone(estimator).get_params() == estimator.get_params()
