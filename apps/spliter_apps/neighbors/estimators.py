"""The neighbours estimators: scikit-learn's interface for distributed points on any engine.

One task per location builds a search tree of the points there; the tree stays there. Each query is
sent to all trees, which return their best candidates; the best of these are the result. The
numerical code is in :mod:`spliter_apps.neighbors.kernel`, the tasks in
:mod:`spliter_apps.neighbors.forest`.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from spliter import InvalidArgumentError
from spliter_apps.neighbors.inspection import Targets
from spliter_apps.neighbors.predict import (
    KNeighborsPredictor,
    NeighborsClassifier,
    NeighborsRegressor,
    RadiusNeighborsPredictor,
)
from spliter_apps.neighbors.search import KNeighborsMixin, RadiusNeighborsMixin
from spliter_apps.neighbors.votes import Outliers, Weights

__all__ = [
    "KNeighborsClassifier",
    "KNeighborsRegressor",
    "NearestNeighbors",
    "RadiusNeighborsClassifier",
    "RadiusNeighborsRegressor",
]


class NearestNeighbors(KNeighborsMixin, RadiusNeighborsMixin):
    """Search for neighbours, without predictions.

    Like ``sklearn.neighbors.NearestNeighbors``, for points in memory or in blocks on any
    engine. Distances equal scikit-learn's; ties are broken by the order of the training data,
    independent of locations.

    Parameters
    ----------
    n_neighbors : int, default 5
        Number of neighbours returned by :meth:`kneighbors`.
    radius : float, default 1.0
        Radius of :meth:`radius_neighbors`.
    algorithm : {'auto', 'ball_tree', 'kd_tree', 'brute'}
        Search algorithm; ``'auto'`` makes the same choice for all locations.
    leaf_size : int, default 30
        Points in a leaf of a tree.
    metric : str, callable or DistanceMetric, default 'minkowski'
        Distance metric; see the notes.
    p : float, default 2
        Power of the Minkowski metric.
    metric_params : dict, optional
        Further parameters of the metric.
    n_jobs : int, optional
        For compatibility with scikit-learn, without effect: queries run on the threads of the
        engine.

    Attributes
    ----------
    n_samples_fit_ : int
        Number of fitted points.
    effective_metric_ : str or callable
        The metric used; ``'euclidean'`` for Minkowski's with ``p=2``.
    effective_metric_params_ : dict
        Parameters of the metric.
    n_features_in_ : int
        Number of columns of the points.
    feature_names_in_ : ndarray of str, shape (n_features_in_,)
        Column names of DataFrames, if all of them are strings.

    Notes
    -----
    ``metric='precomputed'`` (a matrix of all distances, or a sparse graph of some, as computed
    by ``sklearn.neighbors.KNeighborsTransformer``) and ``'nan_euclidean'`` (missing values) need
    the training data in memory; sparse points are compared pair by pair, as with
    ``algorithm='brute'``. A ``DistanceMetric`` made for float32 computes in float32.

    Fitted on blocks, the estimator keeps the trees at their locations and the blocks alive, so
    that a tree lost with a worker is rebuilt. Pickling it gathers all trees in this process.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter_apps.neighbors import NearestNeighbors
    >>> blocks = [np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 3.0]])]
    >>> search = NearestNeighbors(n_neighbors=1).fit(blocks)
    >>> search.kneighbors(np.array([[0.0, 2.0]]))
    (array([[1.]]), array([[2]]))
    """

    def __init__(
        self,
        *,
        n_neighbors: int = 5,
        radius: float = 1.0,
        algorithm: str = "auto",
        leaf_size: int = 30,
        metric: Any = "minkowski",
        p: float = 2,
        metric_params: dict[str, Any] | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.radius = radius
        self.algorithm = algorithm
        self.leaf_size = leaf_size
        self.metric = metric
        self.p = p
        self.metric_params = metric_params
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any = None) -> NearestNeighbors:
        """Build a search tree of the points at each location.

        Parameters
        ----------
        X : array-like, sparse matrix, or blocked collection, of shape (n, n_features)
            Points. Whatever :func:`spliter.split` accepts, and a Split, is blocked.
        y : ignored
            Present for compatibility with scikit-learn.

        Returns
        -------
        NearestNeighbors
            The fitted estimator. Trees of blocked points may still be pending.

        Raises
        ------
        InvalidArgumentError
            If the points or a parameter are invalid, the columns of two blocks differ, or elements
            are masked. A ``ValueError``.
        """
        self._fit(X)
        return self


class KNeighborsClassifier(KNeighborsPredictor, NeighborsClassifier):
    """Classify points by the votes of their nearest neighbours.

    Like ``sklearn.neighbors.KNeighborsClassifier``, for points in memory or in blocks on any
    engine. Labels are stored with their points; those of the neighbours are sent with them.

    Parameters
    ----------
    n_neighbors : int, default 5
        Number of neighbours that vote.
    weights : {'uniform', 'distance'}, callable or None, default 'uniform'
        Weight of a vote: constant, the inverse of the distance, or the result of a function of
        an array of distances.
    algorithm, leaf_size, p, metric, metric_params, n_jobs
        As for :class:`NearestNeighbors`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,), or list of these
        Sorted labels; a list of one array per output if labels have several columns.
    outputs_2d_ : bool
        Whether labels have several columns.
    n_samples_fit_, effective_metric_, effective_metric_params_, n_features_in_
        As for :class:`NearestNeighbors`.

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


class KNeighborsRegressor(KNeighborsPredictor, NeighborsRegressor):
    """Predict the mean value of the nearest neighbours.

    Like ``sklearn.neighbors.KNeighborsRegressor``, for points in memory or in blocks on any
    engine. Values are stored with their points; those of the neighbours are sent with them.

    Parameters
    ----------
    n_neighbors : int, default 5
        Number of neighbours to average.
    weights : {'uniform', 'distance'}, callable or None, default 'uniform'
        Weight of a neighbour: constant, the inverse of the distance, or the result of a
        function of an array of distances.
    algorithm, leaf_size, p, metric, metric_params, n_jobs
        As for :class:`NearestNeighbors`.

    Attributes
    ----------
    n_samples_fit_, effective_metric_, effective_metric_params_, n_features_in_
        As for :class:`NearestNeighbors`.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter_apps.neighbors import KNeighborsRegressor
    >>> points = [np.array([[0.0], [1.0]]), np.array([[5.0]])]
    >>> values = [np.array([1.0, 3.0]), np.array([7.0])]
    >>> KNeighborsRegressor(n_neighbors=2).fit(points, values).predict([[0.2]])
    array([2.])
    """


class RadiusNeighborsClassifier(RadiusNeighborsPredictor, NeighborsClassifier):
    """Classify points by the votes of all neighbours within a radius.

    Like ``sklearn.neighbors.RadiusNeighborsClassifier``, for points in memory or in blocks on
    any engine.

    Parameters
    ----------
    radius : float, default 1.0
        Maximum distance of the points that vote.
    weights : {'uniform', 'distance'}, callable or None, default 'uniform'
        Weight of a vote: constant, the inverse of the distance, or the result of a function of
        an array of arrays of distances, one per query.
    algorithm, leaf_size, p, metric, metric_params, n_jobs
        As for :class:`NearestNeighbors`.
    outlier_label : label, list of labels, 'most_frequent' or None, default None
        Class of queries without neighbours: one for all outputs, one for each, or the most
        frequent one in the training data. ``None`` to raise an error for such queries.

    Attributes
    ----------
    outlier_label_ : list or None
        Class of queries without neighbours, for each output.
    classes_, outputs_2d_
        As for :class:`KNeighborsClassifier`.
    n_samples_fit_, effective_metric_, effective_metric_params_, n_features_in_
        As for :class:`NearestNeighbors`.

    Notes
    -----
    If `outlier_label` is not among the classes, all class probabilities of such queries are 0.
    Fitting warns about it.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter_apps.neighbors import RadiusNeighborsClassifier
    >>> points = [np.array([[0.0], [1.0]]), np.array([[5.0]])]
    >>> labels = ["near", "near", "far"]
    >>> model = RadiusNeighborsClassifier(2.0, outlier_label="far").fit(points, labels)
    >>> model.predict(np.array([[0.4], [9.0]]))
    array(['near', 'far'], dtype='<U4')
    """

    def __init__(
        self,
        radius: float = 1.0,
        *,
        weights: Weights = "uniform",
        algorithm: str = "auto",
        leaf_size: int = 30,
        p: float = 2,
        metric: Any = "minkowski",
        outlier_label: Any = None,
        metric_params: dict[str, Any] | None = None,
        n_jobs: int | None = None,
    ) -> None:
        super().__init__(
            radius,
            weights=weights,
            algorithm=algorithm,
            leaf_size=leaf_size,
            p=p,
            metric=metric,
            metric_params=metric_params,
            n_jobs=n_jobs,
        )
        self.outlier_label = outlier_label

    def _labels_of_outliers(self) -> Outliers:
        labels: Outliers = self.outlier_label_
        return labels

    def _keep_targets(self, found: Targets, targets: Any) -> Any:
        kept = super()._keep_targets(found, targets)
        self.outlier_label_ = _labels_of_outliers(self.outlier_label, found)
        return kept


class RadiusNeighborsRegressor(RadiusNeighborsPredictor, NeighborsRegressor):
    """Predict the mean value of all neighbours within a radius.

    Like ``sklearn.neighbors.RadiusNeighborsRegressor``, for points in memory or in blocks on
    any engine.

    Parameters
    ----------
    radius : float, default 1.0
        Maximum distance of the points that are averaged.
    weights : {'uniform', 'distance'}, callable or None, default 'uniform'
        Weight of a neighbour: constant, the inverse of the distance, or the result of a
        function of an array of arrays of distances, one per query.
    algorithm, leaf_size, p, metric, metric_params, n_jobs
        As for :class:`NearestNeighbors`.

    Attributes
    ----------
    n_samples_fit_, effective_metric_, effective_metric_params_, n_features_in_
        As for :class:`NearestNeighbors`.

    Notes
    -----
    The prediction for a query without neighbours is NaN, with a warning if queries are in
    memory.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter_apps.neighbors import RadiusNeighborsRegressor
    >>> points = [np.array([[0.0], [1.0]]), np.array([[5.0]])]
    >>> values = [np.array([1.0, 3.0]), np.array([7.0])]
    >>> RadiusNeighborsRegressor(2.0).fit(points, values).predict([[0.2], [4.0]])
    array([2., 7.])
    """

    def predict(self, X: Any) -> Any:
        """Return the mean value of the neighbours.

        Parameters
        ----------
        X : array-like, sparse matrix or blocked collection of shape (n_queries, n_features)
            Points; ``None`` for the training points, each without its own value.

        Returns
        -------
        ndarray of shape (n_queries,) or (n_queries, n_outputs), or collection
            Means, NaN for queries without neighbours; blocked like the points.

        Raises
        ------
        InvalidArgumentError
            If the queries do not match the training data.
        """
        predicted = super().predict(X)
        if isinstance(predicted, np.ndarray) and np.isnan(predicted).any():
            warnings.warn(
                "One or more samples have no neighbors within specified radius; predicting NaN.",
                stacklevel=2,
            )
        return predicted


def _labels_of_outliers(label: Any, found: Targets) -> list[Any] | None:
    """Return a valid label for the outliers of each output, None if there is no such label."""
    if label is None:
        return None
    if isinstance(label, str) and label == "most_frequent":
        return [
            known[counts.argmax()]
            for known, counts in zip(found.classes, found.counts, strict=True)
        ]
    labels = list(label) if np.ndim(label) else [label] * len(found.classes)
    if len(labels) != len(found.classes):
        raise InvalidArgumentError(
            f"The length of outlier_label: {label} is inconsistent with the output length: "
            f"{len(found.classes)}"
        )
    for known, of_output in zip(found.classes, labels, strict=True):
        if np.ndim(of_output):
            raise InvalidArgumentError(
                f"The outlier_label of classes {known} is supposed to be a scalar, got {of_output}."
            )
        if np.append(known, of_output).dtype != known.dtype:
            raise InvalidArgumentError(
                f"The dtype of outlier_label {of_output!r} is inconsistent with classes {known} "
                "in y."
            )
        if of_output not in known:
            warnings.warn(
                f"Outlier label {of_output} is not in training classes. All class probabilities "
                "of outliers will be assigned with 0.",
                stacklevel=5,
            )
    return labels
