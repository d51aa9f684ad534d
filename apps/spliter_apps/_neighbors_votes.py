"""From the targets of the nearest neighbours to a prediction, and from that to a score.

Pure functions on arrays. A prediction is computed where the queries are, from candidates that
carry their targets; only its inputs have crossed the network, never the labels of all points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter import InvalidArgumentError
from spliter_apps._neighbors_kernel import Candidates
from spliter_apps._neighbors_tree import Floats

Array: TypeAlias = npt.NDArray[Any]
Weights: TypeAlias = Literal["uniform", "distance"] | Callable[[Floats], Any] | None


def check_weights(weights: Any) -> None:
    """Refuse weights that scikit-learn refuses.

    Parameters
    ----------
    weights : object
        Parameter of an estimator.

    Raises
    ------
    InvalidArgumentError
        If it is neither a name, nor callable, nor ``None``.
    """
    known = isinstance(weights, str) and weights in {"uniform", "distance"}
    if not (weights is None or known or callable(weights)):
        raise InvalidArgumentError(
            "the 'weights' parameter must be 'uniform', 'distance', a callable or None, got "
            f"{weights!r}"
        )


def neighbour_weights(distances: Floats, weights: Weights) -> Floats | None:
    """Return how much each neighbour counts.

    Parameters
    ----------
    distances : ndarray of float64, shape (n_queries, k)
        Distances.
    weights : {'uniform', 'distance'}, callable or None
        As in scikit-learn.

    Returns
    -------
    ndarray, shape (n_queries, k), or None
        ``None`` if all count alike.

    Examples
    --------
    >>> neighbour_weights(np.array([[0.5, 2.0], [0.0, 2.0]]), "distance")
    array([[2. , 0.5],
           [1. , 0. ]])
    """
    if weights is None or (isinstance(weights, str) and weights == "uniform"):
        return None
    if callable(weights):
        return np.asarray(weights(distances))
    with np.errstate(divide="ignore"):
        inverse = 1.0 / distances
    # At a point of the training data that point alone counts, and its duplicates.
    found = np.isinf(inverse)
    exact = found.any(axis=1)
    inverse[exact] = found[exact]
    return inverse


def votes(found: Candidates, classes: Sequence[Array], weights: Weights) -> list[Floats]:
    """Add up the weights of the neighbours of each class.

    Parameters
    ----------
    found : Candidates
        With targets.
    classes : sequence of ndarray, shape (n_classes,)
        Sorted labels of each output.
    weights : {'uniform', 'distance'}, callable or None
        How much each neighbour counts.

    Returns
    -------
    list of ndarray of float64, shape (n_queries, n_classes)
        One array per output.

    Raises
    ------
    InvalidArgumentError
        If no neighbour of a query counts.
    """
    counted = neighbour_weights(found.distances, weights)
    if counted is None:
        counted = np.ones_like(found.distances)
    elif not (counted != 0).any(axis=1).all():
        raise InvalidArgumentError(
            "All neighbors of some sample is getting zero weights. Please modify 'weights' to "
            "avoid this case if you are using a user-defined function."
        )
    assert found.targets is not None
    labels = found.targets if found.targets.ndim == 3 else found.targets[:, :, None]
    rows = np.arange(len(labels))
    totals = []
    for output, known in enumerate(classes):
        total = np.zeros((len(labels), len(known)))
        codes = np.searchsorted(known, labels[:, :, output])
        for neighbour in range(codes.shape[1]):
            total[rows, codes[:, neighbour]] += counted[:, neighbour]
        totals.append(total)
    return totals


def probabilities(
    found: Candidates, classes: Sequence[Array], weights: Weights
) -> tuple[Floats, ...]:
    """Return the part of the votes that each class has; see :func:`votes`."""
    return tuple(
        total / total.sum(axis=1, keepdims=True) for total in votes(found, classes, weights)
    )


def winners(
    found: Candidates, classes: Sequence[Array], weights: Weights, one_output: bool
) -> tuple[Array]:
    """Return the class of most votes, the first of several with as many.

    Parameters
    ----------
    found, classes, weights
        As for :func:`votes`.
    one_output : bool
        Whether labels are one-dimensional.

    Returns
    -------
    tuple of ndarray, shape (n_queries,) or (n_queries, n_outputs)
        One array, of the labels' type.
    """
    won = [
        known[np.argmax(total, axis=1)]
        for known, total in zip(classes, votes(found, classes, weights), strict=True)
    ]
    return (won[0] if one_output else np.stack(won, axis=1),)


def averages(found: Candidates, weights: Weights) -> tuple[Array]:
    """Return the mean target of the neighbours.

    Parameters
    ----------
    found : Candidates
        With targets.
    weights : {'uniform', 'distance'}, callable or None
        How much each neighbour counts.

    Returns
    -------
    tuple of ndarray, shape (n_queries,) or (n_queries, n_outputs)
        One array.
    """
    assert found.targets is not None
    counted = neighbour_weights(found.distances, weights)
    if counted is None:
        return (np.mean(found.targets, axis=1),)
    one_each = counted if found.targets.ndim == 2 else counted[:, :, None]
    total = (found.targets * one_each).sum(axis=1)
    return (np.asarray(total / one_each.sum(axis=1), dtype=np.float64),)


def _in_columns(values: Array) -> Array:
    return values if values.ndim == 2 else values[:, None]


def hits(truth: Array, predicted: Array, sample_weight: Array | None) -> Floats:
    """Return the weight of the rows predicted right in all outputs, and of all rows.

    Parameters
    ----------
    truth, predicted : ndarray of shape (n,) or (n, n_outputs)
        Labels.
    sample_weight : ndarray of shape (n,), or None
        Weights of the rows.

    Returns
    -------
    ndarray of float64, shape (2,)
        To be added up.
    """
    right = _in_columns(truth) == _in_columns(predicted)
    counted = np.ones(len(predicted)) if sample_weight is None else sample_weight
    return np.array([counted[right.all(axis=1)].sum(), counted.sum()], dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Spread:
    """What the coefficient of determination of some rows is computed from, for each output.

    Parameters
    ----------
    weight : float
        Of all rows.
    mean, squares : ndarray of float64, shape (n_outputs,)
        Mean of the truth, and its squared deviations from that.
    errors : ndarray of float64, shape (n_outputs,)
        Squared errors of the prediction.
    """

    weight: float
    mean: Floats
    squares: Floats
    errors: Floats

    @classmethod
    def of(cls, truth: Array, predicted: Array, sample_weight: Array | None) -> Spread:
        """Return that of rows.

        Parameters
        ----------
        truth, predicted : ndarray of shape (n,) or (n, n_outputs)
            Targets.
        sample_weight : ndarray of shape (n,), or None
            Weights of the rows.

        Returns
        -------
        Spread
            Of weight 0 if there are no rows.
        """
        expected = _in_columns(truth).astype(np.float64)
        counted = np.ones(len(predicted)) if sample_weight is None else sample_weight
        counted = counted.astype(np.float64)[:, None]
        weight = float(counted.sum())
        mean = (counted * expected).sum(axis=0) / (weight or 1.0)
        errors = expected - _in_columns(predicted)
        return cls(
            weight,
            mean,
            (counted * (expected - mean) ** 2).sum(axis=0),
            (counted * errors**2).sum(axis=0),
        )

    def merged(self, other: Spread) -> Spread:
        """Return that of these rows and others.

        Parameters
        ----------
        other : Spread
            Of the other rows.

        Returns
        -------
        Spread
            Of all of them.
        """
        weight = self.weight + other.weight
        apart = other.mean - self.mean
        share = other.weight / weight if weight else 0.0
        return Spread(
            weight,
            self.mean + apart * share,
            self.squares + other.squares + apart**2 * self.weight * share,
            self.errors + other.errors,
        )

    def r2(self) -> float:
        """Return the mean coefficient of determination of the outputs.

        Returns
        -------
        float
            For an output that is constant 1.0 if it is predicted right, else 0.0.
        """
        varies = self.squares > 0
        scores = np.where(self.errors > 0, 0.0, 1.0)
        scores[varies] = 1.0 - self.errors[varies] / self.squares[varies]
        return float(scores.mean())
