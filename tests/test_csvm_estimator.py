"""The Cascade SVM as scikit-learn expects an estimator to be, on arrays in memory."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from spliter_apps.svm import CascadeSVM

pytestmark = pytest.mark.thorough

WEIGHTS = (
    "libsvm stops within svc_tol of the optimum, where from depends on the order of points, and "
    "gamma='scale' knows no weights; scikit-learn lets its own SVC off this check too"
)
EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": WEIGHTS,
    "check_sample_weight_equivalence_on_sparse_data": WEIGHTS,
}

EXACT: dict[str, Any] = {"gamma": 0.1, "svc_tol": 1e-10}
"""What the reasons for the expected failures do not apply to."""


def expected_failures(estimator: Any) -> dict[str, str]:
    exact = EXACT.items() <= estimator.get_params().items()
    return {} if exact else EXPECTED_FAILURES


# Checks of interfaces set max_iter low.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [CascadeSVM(), CascadeSVM(kernel="linear"), CascadeSVM(**EXACT)],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_interface(estimator: Any, check: Any) -> None:
    check(estimator)
