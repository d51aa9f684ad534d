"""Compute predictions from the targets of neighbours, and scores from predictions.

Pure functions on arrays. Predictions are computed at the location of the queries, from candidates
that carry their targets; labels of other points do not cross the network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter import InvalidArgumentError
from spliter_apps._moments import Moments
from spliter_apps.neighbors.kernel import Candidates
from spliter_apps.neighbors.radius import Neighbourhoods
from spliter_apps.neighbors.tree import Floats

Array: TypeAlias = npt.NDArray[Any]
Found: TypeAlias = Candidates | Neighbourhoods
Weights: TypeAlias = Literal["uniform", "distance"] | Callable[[Any], Any] | None
Outliers: TypeAlias = Sequence[Any] | None


def check_weights(weights: Any) -> None:
    """Reject invalid values of the parameter `weights`."""
    known = isinstance(weights, str) and weights in {"uniform", "distance"}
    if not (weights is None or known or callable(weights)):
        raise InvalidArgumentError(
            "the 'weights' parameter must be 'uniform', 'distance', a callable or None, got "
            f"{weights!r}"
        )


def neighbour_weights(found: Found, weights: Weights) -> Floats | None:
    """Return the weight of each neighbour, query by query; ``None`` if all weights are equal.

    As in scikit-learn, a function gets an array of distances of shape (n_queries, k), or, for
    neighbours within a radius, an array of arrays.

    Examples
    --------
    >>> found = Candidates(np.array([[0.5, 2.0], [0.0, 2.0]]), np.array([[4, 1], [3, 8]]))
    >>> neighbour_weights(found, "distance")
    array([2. , 0.5, 1. , 0. ])
    """
    if weights is None or (isinstance(weights, str) and weights == "uniform"):
        return None
    if callable(weights):
        if isinstance(found, Candidates):
            return np.asarray(weights(found.distances), dtype=np.float64).ravel()
        given = weights(found.one_array_each(found.distances))
        return np.concatenate([np.empty(0), *given]).astype(np.float64, copy=False)
    flat = in_rows(found)
    with np.errstate(divide="ignore"):
        inverse = 1.0 / flat.distances
    # A query equal to training points has only these as neighbours.
    at_point = np.isinf(inverse)
    exact = np.isin(flat.rows, flat.rows[at_point])
    inverse[exact] = at_point[exact]
    return inverse


def in_rows(found: Found) -> Neighbourhoods:
    """Return the same neighbours in concatenated form."""
    if not isinstance(found, Candidates):
        return found
    n_queries, k = found.items.shape
    targets = found.targets
    return Neighbourhoods(
        n_queries,
        np.repeat(np.arange(n_queries), k),
        found.distances.ravel(),
        found.items.ravel(),
        None if targets is None else targets.reshape(n_queries * k, *targets.shape[2:]),
    )


def votes(
    found: Found, classes: Sequence[Array], weights: Weights, outliers: Outliers = None
) -> list[Floats]:
    """Add up the weights of the neighbours of each class: (n_queries, n_classes) for each output.

    `outliers` are the labels, one for each output, of queries without neighbours: such a query has
    one vote for it if it is among the classes. ``None`` to raise an error for such queries.
    """
    flat, counted = in_rows(found), neighbour_weights(found, weights)
    alone = np.bincount(flat.rows, minlength=flat.n_queries) == 0
    if alone.any() and outliers is None:
        raise InvalidArgumentError(
            f"No neighbors found for {alone.sum()} of the test samples, you can try using larger "
            "radius, giving a label for outliers (outlier_label=...), or considering removing "
            "them from your dataset."
        )
    counts = None if counted is None else np.bincount(flat.rows, counted != 0, flat.n_queries)
    if outliers is None and counts is not None and not counts.all():
        raise InvalidArgumentError(
            "All neighbors of some sample is getting zero weights. Please modify 'weights' to "
            "avoid this case if you are using a user-defined function."
        )
    assert flat.targets is not None
    labels = flat.targets if flat.targets.ndim == 2 else flat.targets[:, None]
    totals = []
    for output, known in enumerate(classes):
        cells = flat.rows * len(known) + np.searchsorted(known, labels[:, output])
        total = np.bincount(cells, counted, flat.n_queries * len(known)).astype(np.float64)
        total = total.reshape(flat.n_queries, len(known))
        if outliers is not None:
            total[np.ix_(alone, known == outliers[output])] = 1.0
        totals.append(total)
    return totals


def probabilities(
    found: Found, classes: Sequence[Array], weights: Weights, outliers: Outliers = None
) -> tuple[Floats, ...]:
    """Return the share of the votes for each class; rows of zeros if no class has a vote."""
    shares = []
    for total in votes(found, classes, weights, outliers):
        of_query = total.sum(axis=1, keepdims=True)
        shares.append(total / np.where(of_query == 0, 1.0, of_query))
    return tuple(shares)


def winners(
    found: Found,
    classes: Sequence[Array],
    weights: Weights,
    one_output: bool,
    outliers: Outliers = None,
) -> tuple[Array]:
    """Return the class with the most votes; ties go to the first class.

    If `one_output`, the array has one axis.
    """
    won = []
    for output, total in enumerate(votes(found, classes, weights, outliers)):
        won.append(classes[output][np.argmax(total, axis=1)])
        if outliers is not None:
            won[-1][~total.any(axis=1)] = outliers[output]
    return (won[0] if one_output else np.stack(won, axis=1),)


def averages(found: Found, weights: Weights) -> tuple[Array]:
    """Return the mean target of the neighbours; NaN for queries without neighbours."""
    assert found.targets is not None
    counted = neighbour_weights(found, weights)
    if isinstance(found, Candidates):
        # Equally many for each query: use the same sums as scikit-learn, with equal rounding.
        if counted is None:
            return (np.mean(found.targets, axis=1),)
        one_each = counted.reshape(*found.items.shape, *[1] * (found.targets.ndim - 2))
        total = (found.targets * one_each).sum(axis=1)
        return (np.asarray(total / one_each.sum(axis=1), dtype=np.float64),)
    columns = _in_columns(found.targets)
    weighted = columns if counted is None else columns * counted[:, None]
    totals = [np.bincount(found.rows, column, found.n_queries) for column in weighted.T]
    with np.errstate(invalid="ignore"):
        means = (
            np.stack(totals, axis=1) / np.bincount(found.rows, counted, found.n_queries)[:, None]
        )
    dtype = mean_dtype(found.targets.dtype, weights)
    shape = (found.n_queries, *found.targets.shape[1:])
    return (means.reshape(shape).astype(dtype, copy=False),)


def mean_dtype(targets: npt.DTypeLike, weights: Weights) -> np.dtype[Any]:
    """Return the dtype of means of targets, as in scikit-learn.

    It is float32 for unweighted means of float32, else float64 (for all usual targets).
    """
    uniform = weights is None or (isinstance(weights, str) and weights == "uniform")
    return np.mean(np.zeros(1, targets)).dtype if uniform else np.dtype(np.float64)


def _in_columns(values: Array) -> Array:
    return values if values.ndim == 2 else values[:, None]


def hits(truth: Array, predicted: Array, sample_weight: Array | None) -> Floats:
    """Return the weight of the rows predicted correctly in all outputs, and of all rows."""
    right = _in_columns(truth) == _in_columns(predicted)
    counted = np.ones(len(predicted)) if sample_weight is None else sample_weight
    return np.array([counted[right.all(axis=1)].sum(), counted.sum()], dtype=np.float64)


@dataclass(frozen=True, eq=False)
class ErrorSums:
    """Sums from which the coefficient of determination is computed, for each output.

    truth: Weighted moments of the true values.
    errors (ndarray of float64, shape (n_outputs,)): Weighted sums of the squared errors of the
        predictions.
    """

    truth: Moments
    errors: Floats

    @classmethod
    def of(cls, truth: Array, predicted: Array, sample_weight: Array | None) -> ErrorSums:
        """Compute the sums of some rows, with weight 0 if there are none."""
        expected = _in_columns(truth).astype(np.float64)
        counted = np.ones(len(predicted)) if sample_weight is None else sample_weight
        counted = counted.astype(np.float64)[:, None]
        weight = float(counted.sum())
        mean = (counted * expected).sum(axis=0) / (weight or 1.0)
        errors = expected - _in_columns(predicted)
        if (unknown := np.isnan(errors).any(axis=1).sum()) > 0:
            raise InvalidArgumentError(
                f"{unknown} points have no neighbour within the radius, so their prediction is "
                "NaN, which cannot be scored; use a larger radius"
            )
        variance = (counted * (expected - mean) ** 2).sum(axis=0) / (weight or 1.0)
        return cls(Moments(weight, mean, variance), (counted * errors**2).sum(axis=0))

    def merged(self, other: ErrorSums) -> ErrorSums:
        """Return the sums of these rows and others."""
        return ErrorSums(self.truth.merged(other.truth), self.errors + other.errors)

    def r2(self) -> float:
        """Return the mean coefficient of determination of the outputs.

        A constant output counts as 1.0 if it is predicted exactly, else 0.0.
        """
        squares = self.truth.variance * self.truth.count
        varies = squares > 0
        scores = np.where(self.errors > 0, 0.0, 1.0)
        scores[varies] = 1.0 - self.errors[varies] / squares[varies]
        return float(scores.mean())
