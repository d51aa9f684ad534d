"""Search methods of the estimators: the k nearest neighbours, and all within a radius."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from spliter import InvalidArgumentError, Split
from spliter_apps._requirements import check_number
from spliter_apps.neighbors.base import NeighborsEstimator, Output
from spliter_apps.neighbors.kernel import Candidates
from spliter_apps.neighbors.radius import Neighbourhoods
from spliter_apps.neighbors.tasks import NearestQuery, RadiusQuery


class KNeighborsMixin(NeighborsEstimator):
    """Mixin that searches for the k nearest neighbours."""

    n_neighbors: int

    def kneighbors(
        self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> Any:
        """Find the nearest neighbours of points.

        Parameters
        ----------
        X : array-like, sparse matrix or blocked collection of shape (n_queries, n_features)
            Queries; by default the training points, which are not their own neighbours.
        n_neighbors : int, optional
            Number of neighbours; by default that of the estimator.
        return_distance : bool, default True
            Whether to return the distances too.

        Returns
        -------
        distances : ndarray of float64, shape (n_queries, n_neighbors), or collection
            Ascending; only if requested. Blocked like the queries.
        items : ndarray of int64, shape (n_queries, n_neighbors), or collection
            Row numbers of the training data; ties are in their order.

        Raises
        ------
        InvalidArgumentError
            If there are fewer points than neighbours, `n_neighbors` is not an int of at
            least 1, or the queries do not match the training data. A ``ValueError``.
        NotFittedError
            If the estimator is not fitted.

        Examples
        --------
        >>> import numpy as np
        >>> from spliter_apps.neighbors import NearestNeighbors
        >>> blocks = [np.array([[0.0], [1.0]]), np.array([[5.0]])]
        >>> NearestNeighbors(n_neighbors=2).fit(blocks).kneighbors([[4.0]])
        (array([[1., 3.]]), array([[2, 1]]))
        """
        query, k = self._nearest(X, n_neighbors)
        outputs: list[Output] = [(np.float64, (k,)), (np.int64, (k,))]
        result = self._query(
            X,
            query,
            partial(Candidates.as_arrays, return_distance=return_distance),
            outputs if return_distance else outputs[1:],
        )
        return result if return_distance else result[0]

    def kneighbors_graph(
        self, X: Any = None, n_neighbors: int | None = None, mode: str = "connectivity"
    ) -> Any:
        """Compute the graph of the nearest neighbours.

        Parameters
        ----------
        X, n_neighbors
            As for :meth:`kneighbors`.
        mode : {'connectivity', 'distance'}
            Whether the value of an edge is 1 or the distance.

        Returns
        -------
        csr_matrix of float64, shape (n_queries, n_samples_fit), or collection of these
            Row i has an edge to each neighbour of query i.

        Raises
        ------
        InvalidArgumentError
            As for :meth:`kneighbors`, or if `mode` is unknown.
        """
        query, _ = self._nearest(X, n_neighbors)
        finish = partial(
            Candidates.as_graph, n_items=self.n_samples_fit_, with_distances=_wants_distances(mode)
        )
        return self._query(X, query, finish, [(np.float64, (self.n_samples_fit_,))])[0]

    def _nearest(
        self, X: Any, n_neighbors: int | None = None, *, with_targets: bool = False
    ) -> tuple[NearestQuery, int]:
        """Return the search in each tree, and the number of neighbours in the result."""
        check_is_fitted(self, "n_samples_fit_")
        k: Any = self.n_neighbors if n_neighbors is None else n_neighbors
        if not isinstance(k, int | np.integer):
            raise InvalidArgumentError(
                f"n_neighbors does not take {type(k)} value, enter integer value"
            )
        if k <= 0:
            raise InvalidArgumentError(f"Expected n_neighbors > 0. Got {k}")
        itself = X is None
        if k + itself > self.n_samples_fit_:
            raise InvalidArgumentError(
                f"Expected n_neighbors {'<' if itself else '<='} n_samples_fit, but "
                f"n_neighbors = {k}, n_samples_fit = {self.n_samples_fit_}, "
                f"n_samples = {self.n_samples_fit_ if itself else _rows_of(X)}"
            )
        return NearestQuery(int(k) + itself, with_targets), int(k)


class RadiusNeighborsMixin(NeighborsEstimator):
    """Mixin that searches for all neighbours within a radius."""

    radius: float

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
            Queries; by default the training points, which are not their own neighbours.
        radius : float, optional
            Inclusive; by default that of the estimator.
        return_distance : bool, default True
            Whether to return the distances too.
        sort_results : bool, default False
            Whether to order the neighbours of a query by distance; by default they are in the
            order of the training data.

        Returns
        -------
        distances : ndarray of object, shape (n_queries,), or collection
            Elements are ndarrays of float64; only if requested. Blocked like the queries.
        items : ndarray of object, shape (n_queries,), or collection
            Elements are ndarrays of int64: row numbers of the training data.

        Raises
        ------
        InvalidArgumentError
            If the radius is not a number >= 0, or the queries do not match the training data.

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
        finish = partial(
            Neighbourhoods.as_arrays, return_distance=return_distance, by_distance=sort_results
        )
        outputs: list[Output] = [(object, ())] * (1 + return_distance)
        result = self._query(X, self._within(radius), finish, outputs)
        return result if return_distance else result[0]

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
            Whether the value of an edge is 1 or the distance.
        sort_results : bool, default False
            Whether the edges of a row are ordered by distance; needs ``mode='distance'``.

        Returns
        -------
        csr_matrix of float64, shape (n_queries, n_samples_fit), or collection of these
            Row i has an edge to each neighbour of query i.

        Raises
        ------
        InvalidArgumentError
            As for :meth:`radius_neighbors`, or if `mode` is unknown.
        """
        query = self._within(radius)
        finish = partial(
            Neighbourhoods.as_graph,
            n_items=self.n_samples_fit_,
            with_distances=_wants_distances(mode),
            by_distance=sort_results,
        )
        return self._query(X, query, finish, [(np.float64, (self.n_samples_fit_,))])[0]

    def _within(self, radius: float | None = None, *, with_targets: bool = False) -> RadiusQuery:
        """Return the search in each tree."""
        check_is_fitted(self, "n_samples_fit_")
        chosen: Any = self.radius if radius is None else radius
        check_number("radius", chosen)
        return RadiusQuery(float(chosen), with_targets)


def _wants_distances(mode: str) -> bool:
    if mode not in {"connectivity", "distance"}:
        raise InvalidArgumentError(
            f'Unsupported mode, must be one of "connectivity", or "distance" but got "{mode}" '
            "instead"
        )
    return mode == "distance"


def _rows_of(X: Any) -> Any:
    if isinstance(X, Split):
        return X.grid.extent[0] or "unknown"
    return X.shape[0] if hasattr(type(X), "shape") else len(X)
