"""The search for neighbours without anything to predict."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from spliter import InvalidArgumentError
from spliter_apps._neighbors_answers import as_arrays_of_arrays, as_radius_graph
from spliter_apps._neighbors_base import NeighborsEstimator, Output, wants_distances
from spliter_apps._neighbors_tasks import WhichWithin


class NearestNeighbors(NeighborsEstimator):
    """Search for neighbours, without anything to predict.

    Like ``sklearn.neighbors.NearestNeighbors``, for points in memory or in blocks on any
    engine. Distances are scikit-learn's; of neighbours at one distance those that come
    first in the training data are returned, wherever they are.

    Parameters
    ----------
    n_neighbors : int, default 5
        Neighbours that :meth:`kneighbors` returns.
    radius : float, default 1.0
        Radius that :meth:`radius_neighbors` looks in.
    algorithm : {'auto', 'ball_tree', 'kd_tree', 'brute'}
        How to search; ``'auto'`` chooses once for all locations.
    leaf_size : int, default 30
        Points in a leaf of a tree.
    metric : str, callable or DistanceMetric, default 'minkowski'
        The distance; see the notes.
    p : float, default 2
        Power of the Minkowski metric.
    metric_params : dict, optional
        Further parameters of the metric.
    n_jobs : int, optional
        Accepted as scikit-learn's is, and not used: a location's queries run on its
        engine's threads.

    Attributes
    ----------
    n_samples_fit_ : int
        Number of fitted points.
    effective_metric_ : str or callable
        The metric used; ``'euclidean'`` for Minkowski's with ``p=2``.
    effective_metric_params_ : dict
        Its parameters.
    n_features_in_ : int
        Columns of the points.
    feature_names_in_ : ndarray of str, shape (n_features_in_,)
        Their names, if the points were in DataFrames with string names.

    Notes
    -----
    ``metric='precomputed'`` (a dense matrix) and ``'nan_euclidean'`` (missing values) need
    the training data in memory; sparse points are compared pair by pair, as
    ``algorithm='brute'`` does.

    Fitted on blocks, the estimator keeps the trees where they are and the blocks alive, so
    that a tree that is lost with a worker is built again. Pickling it brings all trees here.

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
        """Put the points of each location into a tree there.

        Parameters
        ----------
        X : array-like, sparse matrix, or blocked collection, of shape (n, n_features)
            Points. Anything that :func:`spliter.split` takes, or a Split, is blocked.
        y : ignored
            For the sake of pipelines.

        Returns
        -------
        NearestNeighbors
            Itself. Trees of blocks may still be being built.

        Raises
        ------
        InvalidArgumentError
            If the points or a parameter cannot be used. It is a ``ValueError``.
        """
        self._fit(X)
        return self

    def radius_neighbors(
        self,
        X: Any = None,
        radius: float | None = None,
        return_distance: bool = True,
        sort_results: bool = False,
    ) -> Any:
        """Find all neighbours within a radius.

        Parameters
        ----------
        X : array-like, sparse matrix or blocked collection of shape (n_queries, n_features)
            Queries; by default the fitted points, which are then not their own neighbours.
        radius : float, optional
            Points at this distance count; by default as the estimator was made.
        return_distance : bool, default True
            Whether to return the distances too.
        sort_results : bool, default False
            Whether to order the neighbours of a query by distance; else they come in the
            order of the training data.

        Returns
        -------
        distances : ndarray of object, shape (n_queries,), or collection
            Of ndarrays of float64; only if asked for. Blocked like the queries if these are.
        items : ndarray of object, shape (n_queries,), or collection
            Of ndarrays of int64: rows of the training data.

        Raises
        ------
        InvalidArgumentError
            If the radius is not a number >= 0, or the queries do not fit.

        Examples
        --------
        >>> import numpy as np
        >>> from spliter_apps.neighbors import NearestNeighbors
        >>> search = NearestNeighbors(radius=2.0).fit([np.array([[5.0], [1.0]]), np.zeros((1, 1))])
        >>> search.radius_neighbors([[0.0]], return_distance=False)
        array([array([1, 2])], dtype=object)
        """
        if sort_results and not return_distance:
            raise InvalidArgumentError("return_distance must be True if sort_results is True.")
        conclude = partial(
            as_arrays_of_arrays, return_distance=return_distance, by_distance=sort_results
        )
        outputs: list[Output] = [(object, ())] * (1 + return_distance)
        answer = self._asked(X, self._within(radius), conclude, outputs)
        return answer if return_distance else answer[0]

    def radius_neighbors_graph(
        self,
        X: Any = None,
        radius: float | None = None,
        mode: str = "connectivity",
        sort_results: bool = False,
    ) -> Any:
        """Compute the graph of all neighbours within a radius.

        Parameters
        ----------
        X, radius
            As for :meth:`radius_neighbors`.
        mode : {'connectivity', 'distance'}
            Whether edges have 1 or the distance as value.
        sort_results : bool, default False
            Whether the edges of a row are ordered by distance; needs ``mode='distance'``.

        Returns
        -------
        csr_matrix of float64, shape (n_queries, n_samples_fit), or collection of these
            Row i has an edge to each neighbour of query i.

        Raises
        ------
        InvalidArgumentError
            As :meth:`radius_neighbors`, or if `mode` is not known.
        """
        question = self._within(radius)
        conclude = partial(
            as_radius_graph,
            n_items=self.n_samples_fit_,
            with_distances=wants_distances(mode),
            by_distance=sort_results,
        )
        return self._asked(X, question, conclude, [(np.float64, (self.n_samples_fit_,))])[0]

    def _within(self, radius: float | None) -> WhichWithin:
        check_is_fitted(self, "n_samples_fit_")
        chosen: Any = self.radius if radius is None else radius
        if not isinstance(chosen, float | int | np.number) or not chosen >= 0:
            raise InvalidArgumentError(f"radius must be a number >= 0, got {chosen!r}")
        return WhichWithin(float(chosen))
