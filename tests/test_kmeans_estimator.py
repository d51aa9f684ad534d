"""k-means as scikit-learn expects an estimator to be, on arrays in memory."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from spliter_apps.kmeans import KMeans

pytestmark = pytest.mark.thorough

# scikit-learn's own KMeans is let off these two as well, for the same reason.
WEIGHTS = (
    "the draws of first centres see a point of weight 2 once and a repeated point twice, and the "
    "tolerance follows the variance of the points, whatever their weights"
)
EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": WEIGHTS,
    "check_sample_weight_equivalence_on_sparse_data": WEIGHTS,
}


def expected_failures(estimator: Any) -> dict[str, str]:
    return EXPECTED_FAILURES


# Some checks have fewer different points than clusters.
@pytest.mark.filterwarnings("ignore:Number of distinct clusters:UserWarning")
@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [KMeans(n_init=1), KMeans(init="k-means||"), KMeans(init="random", n_init=2)],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_interface(estimator: Any, check: Any) -> None:
    check(estimator)
