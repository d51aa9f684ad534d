"""Decision values, margins and dual objective of a trained SVC, for each pair of classes.

libsvm trains one machine for each pair of classes and stores their coefficients in a packed
table. Here they are unpacked into one column per pair, so that decision values are a matrix
product: equal to ``SVC.decision_function`` up to rounding, and several times as fast as libsvm's
own loop over points.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.svm import SVC

from spliter_apps._blocks import dense

Floats = npt.NDArray[np.float64]

MAX_ELEMENTS = 2**22
"""Maximum number of elements of a kernel matrix in memory (32 MiB)."""


@dataclass(frozen=True)
class PairCoefficients:
    """The machines of a trained SVC, one for each pair of classes.

    coefficients (ndarray of float64, shape (n_support, n_pairs)): ``alpha * y`` of each support
        vector in each machine.
    intercepts (ndarray of float64, shape (n_pairs,)): Constants of the decision functions.
    signs (ndarray of float64, shape (n_classes, n_pairs)): Side of each machine on which the items
        of a class belong: 1, -1, or 0 if the machine does not involve that class.
    """

    coefficients: Floats
    intercepts: Floats
    signs: Floats

    @classmethod
    def of(cls, model: SVC) -> PairCoefficients:
        """Unpack the coefficients of a trained SVC; pairs in the order of "ovo"."""
        packed = dense(model.dual_coef_)
        nclasses = len(model.n_support_)
        pairs = list(combinations(range(nclasses), 2))
        ends = np.cumsum(model.n_support_)
        of_class = [
            slice(end - count, end) for end, count in zip(ends, model.n_support_, strict=True)
        ]
        coefficients = np.zeros((packed.shape[1], len(pairs)))
        signs = np.zeros((nclasses, len(pairs)))
        # With two classes scikit-learn flips the signs, so that the second one is positive.
        towards_first = -1.0 if nclasses == 2 else 1.0
        for at, (first, second) in enumerate(pairs):
            coefficients[of_class[first], at] = packed[second - 1, of_class[first]]
            coefficients[of_class[second], at] = packed[first, of_class[second]]
            signs[first, at], signs[second, at] = towards_first, -towards_first
        return cls(coefficients, np.asarray(model.intercept_), signs)


def kernel_matrix(svc: SVC, a: Any, b: Any) -> Floats:
    """Evaluate the kernel of an SVC, whose gamma is a number, of each point of a with each of b."""
    if callable(svc.kernel):
        return np.asarray(svc.kernel(a, b), dtype=np.float64)
    matrix: Floats = pairwise_kernels(
        a,
        b,
        metric=svc.kernel,
        filter_params=True,
        gamma=svc.gamma,
        degree=svc.degree,
        coef0=svc.coef0,
    )
    return matrix


def _products(
    svc: SVC, points: Any, support: Any, coefficients: Floats
) -> Iterator[tuple[slice, Floats]]:
    """Yield ``kernel(points, support) @ coefficients`` for slices of the points."""
    step = max(MAX_ELEMENTS // max(support.shape[0], 1), 1)
    for start in range(0, points.shape[0], step):
        rows = slice(start, start + step)
        yield rows, kernel_matrix(svc, points[rows], support) @ coefficients


def dual_objective(model: SVC, support: Any) -> float:
    """Return the dual objective maximised by training, summed over pairs of classes.

    It is ``sum(alpha) - 1/2 sum(alpha_i alpha_j y_i y_j k(x_i, x_j))``. The model, whose gamma is a
    number, has these support vectors; with a callable kernel it does not store them.

    Examples
    --------
    >>> model = SVC(kernel="linear").fit([[-1.0], [1.0]], [0, 1])
    >>> dual_objective(model, model.support_vectors_)
    0.5
    """
    coefficients = PairCoefficients.of(model).coefficients
    nvectors = support.shape[0]
    step = max(MAX_ELEMENTS // max(nvectors, 1), 1)
    quadratic = 0.0
    for start in range(0, nvectors, step):
        # The matrix is symmetric: elements right of the diagonal block count twice.
        own, mine = slice(start, start + step), coefficients[start : start + step]
        matrix = kernel_matrix(model, support[own], support[start:])
        quadratic += 2 * float(np.sum(mine * (matrix @ coefficients[start:])))
        quadratic -= float(np.sum(mine * (matrix[:, : len(mine)] @ mine)))
    return float(np.abs(coefficients).sum()) - quadratic / 2


def slacks(model: SVC, support: Any, points: Any, labels: npt.NDArray[np.intp]) -> Floats:
    """Return the slack of each point, summed over pairs of classes.

    It is ``sum(max(0, 1 - y f(x)))`` over the machines of the point's class. Values up to the
    model's ``tol``, the accuracy of libsvm, count as 0. The model was trained on class numbers and
    knows all labels.

    Examples
    --------
    >>> model = SVC(kernel="linear", gamma=1.0).fit([[-1.0], [1.0]], [0, 1])
    >>> slacks(model, model.support_vectors_, np.array([[1.5], [0.0]]), np.array([1, 1]))
    array([0., 1.])
    """
    found = np.empty(points.shape[0])
    for rows, short, concerned in _shortfalls(model, support, points, labels):
        found[rows] = np.sum(short, axis=1, where=concerned & (short > model.tol))
    return found


def near_margin(
    model: SVC, support: Any, points: Any, labels: npt.NDArray[np.intp], distance: float
) -> npt.NDArray[np.bool_]:
    """Tell which points are inside a margin, or outside within a distance in units of the margin.

    Whether ``y f(x) < 1 + distance`` in one of the machines of the point's class; see
    :func:`slacks`.
    """
    found = np.empty(points.shape[0], dtype=np.bool_)
    for rows, short, concerned in _shortfalls(model, support, points, labels):
        found[rows] = np.any(concerned & (short > -distance), axis=1)
    return found


def _shortfalls(
    model: SVC, support: Any, points: Any, labels: npt.NDArray[np.intp]
) -> Iterator[tuple[slice, Floats, npt.NDArray[np.bool_]]]:
    """Yield ``1 - y f(x)`` by pair of classes, and which pairs involve the point's class."""
    pairs = PairCoefficients.of(model)
    sides = pairs.signs[np.searchsorted(model.classes_, labels)]
    for rows, product in _products(model, points, support, pairs.coefficients):
        side = sides[rows]
        yield rows, 1.0 - side * (product + pairs.intercepts), side != 0


def bounds(model: SVC, labels: npt.NDArray[np.intp], weights: Floats | None) -> Floats:
    """Return the upper bound of each item's dual multiplier: ``C`` times class and item weight."""
    of_class: Floats = model.C * model.class_weight_[np.searchsorted(model.classes_, labels)]
    return of_class if weights is None else of_class * weights
