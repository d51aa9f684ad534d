"""Nearest neighbours of distributed points: scikit-learn's estimators on any engine.

One task per location puts the points that are there into a search tree, which stays there. A
query is answered by all trees at once, each with its best candidates; the best of these are the
answer. The numerics are in :mod:`spliter_apps._neighbors_kernel`, the tasks in
:mod:`spliter_apps._neighbors_forest`.
"""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from spliter_apps._data import is_blocked
from spliter_apps._neighbors_base import Output, warn_of_column
from spliter_apps._neighbors_predict import PredictingNeighbors
from spliter_apps._neighbors_sample import Targets
from spliter_apps._neighbors_search import NearestNeighbors
from spliter_apps._neighbors_votes import Spread, averages, hits, probabilities, winners

__all__ = ["KNeighborsClassifier", "KNeighborsRegressor", "NearestNeighbors"]


class KNeighborsClassifier(ClassifierMixin, PredictingNeighbors):  # type: ignore[misc]
    """Classify points by the votes of their nearest neighbours.

    Like ``sklearn.neighbors.KNeighborsClassifier``, for points in memory or in blocks on any
    engine. Labels stay beside their points; those of the neighbours travel with them.

    Parameters
    ----------
    n_neighbors : int, default 5
        Neighbours that vote.
    weights : {'uniform', 'distance'}, callable or None, default 'uniform'
        What a vote counts: the same, the inverse of the distance, or what a function makes
        of an array of distances.
    algorithm, leaf_size, p, metric, metric_params, n_jobs
        As for :class:`NearestNeighbors`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,), or list of these
        Sorted labels; a list of one array per output if labels have several columns.
    outputs_2d_ : bool
        Whether they do.
    n_samples_fit_, effective_metric_, effective_metric_params_, n_features_in_
        As of :class:`NearestNeighbors`.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter_apps.neighbors import KNeighborsClassifier
    >>> points = [np.array([[0.0], [1.0]]), np.array([[5.0]])]
    >>> labels = [np.array(["near", "near"]), np.array(["far"])]
    >>> model = KNeighborsClassifier(n_neighbors=1).fit(points, labels)
    >>> model.predict(np.array([[4.0], [0.4]]))
    array(['far', 'near'], dtype='<U4')
    """

    _kind = "classes"

    def fit(self, X: Any, y: Any = None) -> KNeighborsClassifier:
        """Put the points of each location, with their labels, into a tree there.

        Parameters
        ----------
        X : array-like, sparse matrix, or blocked collection, of shape (n, n_features)
            Points.
        y : array-like, or collection blocked like `X`, of shape (n,) or (n, n_outputs)
            Labels. With a Split as `X`, made by ``split(X, y)``, left out.

        Returns
        -------
        KNeighborsClassifier
            Itself.

        Raises
        ------
        InvalidArgumentError
            If the points, the labels or a parameter cannot be used. It is a ``ValueError``.
        AlignmentError
            If `y` is not blocked like `X`.
        """
        self._fit(X, y)
        return self

    def predict(self, X: Any) -> Any:
        """Return the class that most neighbours have.

        Parameters
        ----------
        X : array-like, sparse matrix or blocked collection of shape (n_queries, n_features)
            Points; ``None`` for the fitted ones, without their own vote.

        Returns
        -------
        ndarray of shape (n_queries,) or (n_queries, n_outputs), or collection
            Labels; the first of several with as many votes. Blocked like the points.

        Raises
        ------
        InvalidArgumentError
            As :meth:`kneighbors`.
        """
        return self._predicted(X, self._winners(X), [self._output_of_labels()])[0]

    def predict_proba(self, X: Any) -> Any:
        """Return the part of the votes that each class has.

        Parameters
        ----------
        X : array-like, sparse matrix or blocked collection of shape (n_queries, n_features)
            As for :meth:`predict`.

        Returns
        -------
        ndarray of float64, shape (n_queries, n_classes), or collection
            In the order of ``classes_``; a list of one per output if labels have several
            columns.

        Raises
        ------
        InvalidArgumentError
            As :meth:`kneighbors`.
        """
        check_is_fitted(self, "n_samples_fit_")
        classes = self._classes()
        conclude = partial(probabilities, classes=classes, weights=self.weights)
        outputs: list[Output] = [(np.float64, (len(known),)) for known in classes]
        found = self._predicted(X, conclude, outputs)
        return list(found) if self.outputs_2d_ else found[0]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the mean accuracy; of labels with several columns, all have to be right.

        Parameters
        ----------
        X : array-like, sparse matrix or blocked collection of shape (n, n_features)
            Points; or a Split made by ``split(X, y)`` or ``split(X, y, sample_weight)``.
        y : array-like or collection of shape (n,) or (n, n_outputs)
            Their labels, blocked like `X` if that is blocked.
        sample_weight : array-like or collection of shape (n,), optional
            Their weights, likewise.

        Returns
        -------
        float
            Between 0 and 1.
        """
        if not is_blocked(X):
            return float(super().score(X, y, sample_weight))
        right, counted = self._tallied(
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
        )

    def _classes(self) -> list[Any]:
        return list(self.classes_) if self.outputs_2d_ else [self.classes_]

    def _output_of_labels(self) -> Output:
        classes = self._classes()
        return np.result_type(*classes), (len(classes),) if self.outputs_2d_ else ()

    def _keep_targets(self, found: Targets, targets: Any) -> Any:
        warn_of_column(found.n_outputs)
        self.outputs_2d_ = found.n_outputs not in {None, 1}
        self.classes_ = list(found.classes) if self.outputs_2d_ else found.classes[0]
        return targets if targets is None or self.outputs_2d_ else targets.ravel()

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


class KNeighborsRegressor(RegressorMixin, PredictingNeighbors):  # type: ignore[misc]
    """Predict the mean value of the nearest neighbours.

    Like ``sklearn.neighbors.KNeighborsRegressor``, for points in memory or in blocks on any
    engine. Values stay beside their points; those of the neighbours travel with them.

    Parameters
    ----------
    n_neighbors : int, default 5
        Neighbours to average.
    weights : {'uniform', 'distance'}, callable or None, default 'uniform'
        What a neighbour counts: the same, the inverse of the distance, or what a function
        makes of an array of distances.
    algorithm, leaf_size, p, metric, metric_params, n_jobs
        As for :class:`NearestNeighbors`.

    Attributes
    ----------
    n_samples_fit_, effective_metric_, effective_metric_params_, n_features_in_
        As of :class:`NearestNeighbors`.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter_apps.neighbors import KNeighborsRegressor
    >>> points = [np.array([[0.0], [1.0]]), np.array([[5.0]])]
    >>> values = [np.array([1.0, 3.0]), np.array([7.0])]
    >>> KNeighborsRegressor(n_neighbors=2).fit(points, values).predict([[0.2]])
    array([2.])
    """

    _kind = "values"

    def fit(self, X: Any, y: Any = None) -> KNeighborsRegressor:
        """Put the points of each location, with their values, into a tree there.

        Parameters
        ----------
        X : array-like, sparse matrix, or blocked collection, of shape (n, n_features)
            Points.
        y : array-like, or collection blocked like `X`, of shape (n,) or (n, n_outputs)
            Values. With a Split as `X`, made by ``split(X, y)``, left out.

        Returns
        -------
        KNeighborsRegressor
            Itself.

        Raises
        ------
        InvalidArgumentError
            If the points, the values or a parameter cannot be used. It is a ``ValueError``.
        AlignmentError
            If `y` is not blocked like `X`.
        """
        self._fit(X, y)
        return self

    def predict(self, X: Any) -> Any:
        """Return the mean value of the neighbours.

        Parameters
        ----------
        X : array-like, sparse matrix or blocked collection of shape (n_queries, n_features)
            Points; ``None`` for the fitted ones, each without its own value.

        Returns
        -------
        ndarray of shape (n_queries,) or (n_queries, n_outputs), or collection
            Means. Blocked like the points.

        Raises
        ------
        InvalidArgumentError
            As :meth:`kneighbors`.
        """
        check_is_fitted(self, "n_samples_fit_")
        return self._predicted(X, self._averages(), [self._output])[0]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the coefficient of determination, the mean of those of all outputs.

        Parameters
        ----------
        X : array-like, sparse matrix or blocked collection of shape (n, n_features)
            Points; or a Split made by ``split(X, y)`` or ``split(X, y, sample_weight)``.
        y : array-like or collection of shape (n,) or (n, n_outputs)
            Their values, blocked like `X` if that is blocked.
        sample_weight : array-like or collection of shape (n,), optional
            Their weights, likewise.

        Returns
        -------
        float
            At most 1.
        """
        if not is_blocked(X):
            return float(super().score(X, y, sample_weight))
        spread: Spread = self._tallied(
            X, y, sample_weight, self._averages(), Spread.of, Spread.merged
        )
        return spread.r2()

    def _averages(self) -> Any:
        return partial(averages, weights=self.weights)

    def _keep_targets(self, found: Targets, targets: Any) -> Any:
        uniform = self.weights is None or self.weights == "uniform"
        mean = np.mean(np.zeros(1, found.dtype)).dtype if uniform else np.dtype(np.float64)
        self._output = (mean, () if found.n_outputs is None else (found.n_outputs,))
        return targets
