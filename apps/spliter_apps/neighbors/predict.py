"""Base classes of neighbours classifiers and regressors: predict and score."""

from __future__ import annotations

import operator
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import check_is_fitted

from spliter import InvalidArgumentError, gather, split
from spliter_apps._data import check_members, is_blocked, open_data
from spliter_apps._differences import Names, check_same_columns, refuse_masked
from spliter_apps._row_values import block_like, persist_if_lazy
from spliter_apps.neighbors.base import NeighborsEstimator, Output, names_in_memory
from spliter_apps.neighbors.inspection import Targets
from spliter_apps.neighbors.scores import Tally, tally_results, tally_rows
from spliter_apps.neighbors.search import KNeighborsMixin, RadiusNeighborsMixin
from spliter_apps.neighbors.tasks import FinishFunction, Query
from spliter_apps.neighbors.votes import (
    ErrorSums,
    Outliers,
    Weights,
    averages,
    check_weights,
    hits,
    mean_dtype,
    probabilities,
    winners,
)


class NeighborsPredictor(NeighborsEstimator):
    """Base class of estimators whose trees store targets with their points."""

    weights: Weights

    def fit(self, X: Any, y: Any = None) -> Self:
        """Build a search tree of the points and targets at each location.

        Parameters
        ----------
        X : array-like, sparse matrix, or blocked collection, of shape (n, n_features)
            Points.
        y : array-like or collection of shape (n,) or (n, n_outputs)
            Labels or values to predict, in memory or blocked like `X`. Omitted if `X` is a
            Split made by ``split(X, y)``.

        Returns
        -------
        Self
            The estimator.

        Raises
        ------
        InvalidArgumentError
            If the points, `y` or a parameter are invalid, the columns of two blocks differ, or
            elements are masked. A ``ValueError``.
        AlignmentError
            If `y` is not blocked like `X`.
        """
        self._fit(X, y)
        return self

    def _fit(self, X: Any, y: Any = None) -> None:
        check_weights(self.weights)
        super()._fit(X, y)

    @abstractmethod
    def _targets_query(self, X: Any) -> Query:
        """Return the search that a prediction needs, including the neighbours' targets."""

    @abstractmethod
    def predict(self, X: Any) -> Any:
        """Return predictions for queries."""

    def _predict(self, X: Any, finish: FinishFunction, outputs: Sequence[Any]) -> tuple[Any, ...]:
        """Query the targets of neighbours and compute predictions at the queries' locations."""
        return self._query(X, self._targets_query(X), finish, outputs)

    def _is_in_blocks(self, X: Any) -> bool:
        """Return whether `X`, or the training points if it is ``None``, are in blocks."""
        check_is_fitted(self, "n_samples_fit_")
        return is_blocked(X) if X is not None else self._forest.parts is not None

    def _tally_blocks(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        finish: FinishFunction,
        tally: Tally,
        merge: Callable[[Any, Any], Any],
    ) -> Any:
        """Score predictions for blocks at their locations; return the merged score."""
        if X is None:
            return self._tally_fitted(y, sample_weight, tally, merge)
        with open_data(X, y, sample_weight, materialize=False) as data:
            if data.parts.ncollections != 3:
                check_members(data, 2, "split(X, y) or split(X, y, sample_weight)")
            found = self._query_blocks(data.parts, self._targets_query(X), finish)
            tallies = [
                partition.submit(tally_results, results, tally) for partition, results in found
            ]
            return self._merged(gather(tallies), merge)

    def _tally_fitted(
        self, y: Any, sample_weight: Any, tally: Tally, merge: Callable[[Any, Any], Any]
    ) -> Any:
        """Score predictions for the training points, each without itself."""
        if y is None:
            raise InvalidArgumentError("score(None) needs y: pass the targets of the fitted points")
        predicted = persist_if_lazy(self.predict(None))
        truth = block_like(predicted, {"y": y, "sample_weight": sample_weight})
        with split(predicted, *truth.values()) as parts:
            return self._merged(gather(parts.map(tally_rows, tally)), merge)

    def _merged(self, found: Sequence[tuple[Names, Any]], merge: Callable[[Any, Any], Any]) -> Any:
        """Merge partial scores, each with the names of the outputs that it compares."""
        names, tallies = zip(*found, strict=True)
        for others in names:
            check_same_columns(names[0], others, "all blocks of y")
        self._check_outputs(names[0])
        return reduce(merge, tallies)

    def _check_outputs(self, names: Names) -> None:
        if names is not None and self._output_names is not None:
            check_same_columns(self._output_names, names, "y of fit and score")

    def _check_in_memory(self, y: Any, sample_weight: Any) -> None:
        """Reject masked values in memory, and outputs named otherwise than those of the fit."""
        refuse_masked(y, "y")
        refuse_masked(sample_weight, "sample_weight")
        self._check_outputs(names_in_memory(y))


class KNeighborsPredictor(KNeighborsMixin, NeighborsPredictor):
    """A predictor from the k nearest neighbours."""

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        weights: Weights = "uniform",
        algorithm: str = "auto",
        leaf_size: int = 30,
        p: float = 2,
        metric: Any = "minkowski",
        metric_params: dict[str, Any] | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.algorithm = algorithm
        self.leaf_size = leaf_size
        self.p = p
        self.metric = metric
        self.metric_params = metric_params
        self.n_jobs = n_jobs

    def _targets_query(self, X: Any) -> Query:
        return self._nearest(X, with_targets=True)[0]


class RadiusNeighborsPredictor(RadiusNeighborsMixin, NeighborsPredictor):
    """A predictor from all neighbours within a radius."""

    def __init__(
        self,
        radius: float = 1.0,
        *,
        weights: Weights = "uniform",
        algorithm: str = "auto",
        leaf_size: int = 30,
        p: float = 2,
        metric: Any = "minkowski",
        metric_params: dict[str, Any] | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.radius = radius
        self.weights = weights
        self.algorithm = algorithm
        self.leaf_size = leaf_size
        self.p = p
        self.metric = metric
        self.metric_params = metric_params
        self.n_jobs = n_jobs

    def _targets_query(self, X: Any) -> Query:
        return self._within(with_targets=True)


class NeighborsClassifier(ClassifierMixin, NeighborsPredictor):  # type: ignore[misc]
    """Base class of predictors of classes by votes of neighbours."""

    _kind = "classes"

    def predict(self, X: Any) -> Any:
        """Return the class with the most votes of neighbours.

        Parameters
        ----------
        X : array-like, sparse matrix or blocked collection of shape (n_queries, n_features)
            Points; ``None`` for the training points, without their own vote.

        Returns
        -------
        ndarray of shape (n_queries,) or (n_queries, n_outputs), or collection
            Labels, blocked like the points; ties go to the first class.

        Raises
        ------
        InvalidArgumentError
            If the queries do not match the training data, or all neighbours of one have weight 0.
        """
        return self._predict(X, self._winners(X), [self._output_of_labels()])[0]

    def predict_proba(self, X: Any) -> Any:
        """Return the share of the votes for each class.

        Parameters
        ----------
        X : array-like, sparse matrix or blocked collection of shape (n_queries, n_features)
            As for :meth:`predict`.

        Returns
        -------
        ndarray of float64, shape (n_queries, n_classes), or collection
            Columns in the order of ``classes_``; a list with one array per output if labels
            have several columns.

        Raises
        ------
        InvalidArgumentError
            If the queries do not match the training data, or all neighbours of one have weight 0.
        """
        check_is_fitted(self, "n_samples_fit_")
        classes = self._classes()
        finish = partial(
            probabilities,
            classes=classes,
            weights=self.weights,
            outliers=self._labels_of_outliers(),
        )
        outputs: list[Output] = [(np.float64, (len(known),)) for known in classes]
        found = self._predict(X, finish, outputs)
        return list(found) if self.outputs_2d_ else found[0]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the mean accuracy; a row counts only if all its outputs are correct.

        Parameters
        ----------
        X : array-like, sparse matrix or blocked collection of shape (n, n_features)
            Points; or a Split made by ``split(X, y)`` or ``split(X, y, sample_weight)``;
            ``None`` for the training points, without their own vote.
        y : array-like or collection of shape (n,) or (n, n_outputs)
            True labels, in memory or blocked like the points.
        sample_weight : array-like or collection of shape (n,), optional
            Weights of the rows, in memory or blocked like the points.

        Returns
        -------
        float
            Between 0 and 1.

        Raises
        ------
        InvalidArgumentError
            If the points do not match the training data, labels are of another kind or outputs have
            other names than at fit, or labels or weights are masked or missing.
        """
        self._check_in_memory(y, sample_weight)
        if not self._is_in_blocks(X):
            return float(super().score(X, y, sample_weight))
        right, counted = self._tally_blocks(
            X, y, sample_weight, self._winners(X), hits, operator.add
        ).tolist()
        return float(right / counted)

    def _winners(self, X: Any) -> Any:
        check_is_fitted(self, "n_samples_fit_")
        return partial(
            winners,
            classes=self._classes(),
            weights=self.weights,
            one_output=not self.outputs_2d_,
            outliers=self._labels_of_outliers(),
        )

    def _labels_of_outliers(self) -> Outliers:
        """Return a label per output for queries without neighbours, None if it is an error."""
        return None

    def _classes(self) -> list[Any]:
        return list(self.classes_) if self.outputs_2d_ else [self.classes_]

    def _output_of_labels(self) -> Output:
        classes = self._classes()
        return np.result_type(*classes), (len(classes),) if self.outputs_2d_ else ()

    def _keep_targets(self, found: Targets, targets: Any) -> Any:
        if found.n_outputs == 1:
            warnings.warn(
                "A column-vector y was passed when a 1d array was expected. Please change the "
                "shape of y to (n_samples,), for example using ravel().",
                DataConversionWarning,
                stacklevel=5,
            )
        self.outputs_2d_ = found.n_outputs not in {None, 1}
        self.classes_ = list(found.classes) if self.outputs_2d_ else found.classes[0]
        return targets if targets is None or self.outputs_2d_ else targets.ravel()

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


class NeighborsRegressor(RegressorMixin, NeighborsPredictor):  # type: ignore[misc]
    """Base class of predictors of values by means over neighbours."""

    _kind = "values"

    def predict(self, X: Any) -> Any:
        """Return the mean value of the neighbours.

        Parameters
        ----------
        X : array-like, sparse matrix or blocked collection of shape (n_queries, n_features)
            Points; ``None`` for the training points, each without its own value.

        Returns
        -------
        ndarray of shape (n_queries,) or (n_queries, n_outputs), or collection
            Means, blocked like the points.

        Raises
        ------
        InvalidArgumentError
            If the queries do not match the training data.
        """
        check_is_fitted(self, "n_samples_fit_")
        return self._predict(X, self._averages(), [self._output])[0]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the coefficient of determination, averaged over the outputs.

        Parameters
        ----------
        X : array-like, sparse matrix or blocked collection of shape (n, n_features)
            Points; or a Split made by ``split(X, y)`` or ``split(X, y, sample_weight)``;
            ``None`` for the training points, each without its own value.
        y : array-like or collection of shape (n,) or (n, n_outputs)
            True values, in memory or blocked like the points.
        sample_weight : array-like or collection of shape (n,), optional
            Weights of the rows, in memory or blocked like the points.

        Returns
        -------
        float
            At most 1.

        Raises
        ------
        InvalidArgumentError
            If the points do not match the training data, outputs have other names than at fit, or
            values or weights are masked or missing.
        """
        self._check_in_memory(y, sample_weight)
        if not self._is_in_blocks(X):
            return float(super().score(X, y, sample_weight))
        spread: ErrorSums = self._tally_blocks(
            X, y, sample_weight, self._averages(), ErrorSums.of, ErrorSums.merged
        )
        return spread.r2()

    def _averages(self) -> Any:
        return partial(averages, weights=self.weights)

    def _keep_targets(self, found: Targets, targets: Any) -> Any:
        mean = mean_dtype(found.dtype, self.weights)
        self._output = (mean, () if found.n_outputs is None else (found.n_outputs,))
        return targets
