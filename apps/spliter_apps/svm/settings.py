"""Validate the parameters of a Cascade SVM and derive those of its SVCs.

``gamma="scale"`` and ``class_weight="balanced"`` depend on all data. The SVCs of a cascade see
parts of them, so they get numbers instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.svm import SVC
from sklearn.utils.class_weight import compute_class_weight

from spliter import InvalidArgumentError
from spliter.backend import check_count
from spliter_apps._requirements import check_number
from spliter_apps.svm.inspection import DataSummary

SHARED = (
    "C", "kernel", "degree", "gamma", "coef0", "shrinking", "class_weight", "cache_size",
    "decision_function_shape", "break_ties",
)  # fmt: skip
"""Parameters that a Cascade SVM has in common with SVC."""


def unfitted_svc(estimator: Any) -> SVC:
    """Validate the parameters of an estimator; return an SVC with those that SVC has in common."""
    check_count("cascade_arity", estimator.cascade_arity, 2)
    if estimator.max_iter != -1:
        check_count("max_iter", estimator.max_iter, instead="-1 (for no limit) or ")
    if estimator.cascade not in (True, False, "auto"):
        raise InvalidArgumentError(
            f"cascade must be True, False or 'auto', got {estimator.cascade!r}"
        )
    if estimator.probability:
        raise InvalidArgumentError(
            f"probability={estimator.probability!r} is not supported; fit without it and pass the "
            "model to sklearn.calibration.CalibratedClassifierCV"
        )
    check_number("tol", estimator.tol)
    if isinstance(estimator.kernel, str) and estimator.kernel == "precomputed":
        raise InvalidArgumentError(
            "kernel='precomputed' is not supported, because its matrix has no points to split; "
            "pass a callable that computes the kernel of two sets of points"
        )
    shared = {name: getattr(estimator, name) for name in SHARED}
    svc = SVC(tol=estimator.svc_tol, max_iter=estimator.svc_max_iter, **shared)
    try:
        svc._validate_params()
    except ValueError as error:
        raise InvalidArgumentError(
            f"{error} (its 'tol' and 'max_iter' are svc_tol and svc_max_iter of CascadeSVM)"
        ) from error
    return svc


def needs_variance(svc: SVC) -> bool:
    """Return whether an SVC's kernel uses gamma and gamma is "scale"."""
    with_gamma = isinstance(svc.kernel, str) and svc.kernel in {"poly", "rbf", "sigmoid"}
    return with_gamma and isinstance(svc.gamma, str) and svc.gamma == "scale"


def scale_svc(svc: SVC, summary: DataSummary) -> SVC:
    """Return an SVC with numbers for parameters that depend on all data.

    Its class weights, if any, are by class number.
    """
    copy: SVC = clone(svc)
    return copy.set_params(
        gamma=_gamma(svc, summary), class_weight=_class_weight(svc.class_weight, summary)
    )


def _gamma(svc: SVC, summary: DataSummary) -> float:
    if not isinstance(svc.gamma, str):
        return float(svc.gamma)
    if svc.gamma == "auto":
        return 1.0 / summary.schema.n_features
    # Kernels without gamma ignore it.
    if summary.moments is None or summary.moments.variance == 0:
        return 1.0
    variance = float(summary.moments.variance)
    if not np.isfinite(variance):
        raise InvalidArgumentError(
            f"gamma='scale' needs the variance of the points, which is {variance}, because squares "
            "of values overflow; scale the points, or remove wrong ones"
        )
    return 1.0 / (summary.schema.n_features * variance)


def _class_weight(class_weight: Any, summary: DataSummary) -> dict[int, float] | None:
    if class_weight is None:
        return None
    counts, classes = summary.counts, summary.classes
    if isinstance(class_weight, str):
        weights = counts.sum() / (len(counts) * counts.astype(np.float64))
    else:
        try:
            weights = compute_class_weight(class_weight, classes=classes, y=classes)
        except ValueError as error:
            raise InvalidArgumentError(str(error)) from error
    return dict(enumerate(weights.tolist()))
