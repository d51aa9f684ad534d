"""Choose the search algorithm by scikit-learn's rules, once for the trees of all locations.

scikit-learn's ``algorithm="auto"`` depends on the number of points. A tree of one location holds
only some of them, so the rule applied there could choose another algorithm at each location. Here
it is applied to the whole collection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.spatial import cKDTree
from sklearn.metrics._dist_metrics import DistanceMetric32
from sklearn.metrics.pairwise import PAIRWISE_BOOLEAN_FUNCTIONS
from sklearn.neighbors import VALID_METRICS, BallTree, KDTree
from sklearn.neighbors import NearestNeighbors as SingleSearch

from spliter import InvalidArgumentError

TREES: Mapping[str, Any] = {"kd_tree": KDTree, "ball_tree": BallTree}
"""scikit-learn's trees by the name of the algorithm."""

ORDERS: Mapping[str, float] = {
    "l1": 1,
    "manhattan": 1,
    "cityblock": 1,
    "l2": 2,
    "euclidean": 2,
    "infinity": np.inf,
    "chebyshev": np.inf,
}
"""Metrics that are Minkowski distances, with their order."""

MAX_TREE_FEATURES = 15
"""Columns up to which scikit-learn expects a tree to be faster than brute force."""


@dataclass(frozen=True)
class Search:
    """Search algorithm and metric, fully resolved.

    metric: scikit-learn's ``effective_metric_``.
    metric_params: scikit-learn's ``effective_metric_params_``.
    leaf_size: Points in a leaf of a tree.

    Examples
    --------
    >>> Search("kd_tree").metric
    'euclidean'
    """

    algorithm: str
    metric: Any = "euclidean"
    metric_params: Mapping[str, Any] | None = None
    leaf_size: int = 30

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype to which points are converted.

        bool for metrics of sets, float32 for a ``DistanceMetric`` made for that, else float64.
        """
        if isinstance(self.metric, DistanceMetric32):
            return np.dtype(np.float32)
        of_sets = isinstance(self.metric, str) and self.metric in PAIRWISE_BOOLEAN_FUNCTIONS
        return np.dtype(np.bool_ if of_sets and self.algorithm == "brute" else np.float64)

    @property
    def is_precomputed(self) -> bool:
        """Whether the distances are computed by the caller."""
        return isinstance(self.metric, str) and self.metric == "precomputed"

    @property
    def rounds(self) -> bool:
        """Whether scikit-learn's distances are rounded differently from one call to the next.

        With brute force it computes Euclidean distances from a matrix product, whose last bits
        depend on the position of a pair in the matrix.
        """
        return (
            self.algorithm == "brute"
            and isinstance(self.metric, str)
            and self.metric in {"euclidean", "sqeuclidean"}
        )

    @property
    def order(self) -> float | None:
        """Order of the Minkowski distance if SciPy's k-d tree is used, else None.

        SciPy's tree finds the same neighbours more than twice as fast as scikit-learn's (8
        columns, 100,000 points), but supports only these distances.
        """
        if self.algorithm != "kd_tree" or not isinstance(self.metric, str):
            return None
        params = self.metric_params or {}
        if self.metric in {"minkowski", "p"} and params.get("w") is None:
            return float(params.get("p", 2))
        return ORDERS.get(self.metric)

    @property
    def recomputes(self) -> bool:
        """Whether distances are recomputed from the coordinate differences of found pairs."""
        return self.rounds or self.order is not None

    def index(self, points: Any) -> Any:
        """Build the search index of points; ``None`` if the distances are given.

        The points are of dtype :attr:`dtype`, in C order, and not copied. With brute force the
        index is an estimator of scikit-learn's.
        """
        if self.is_precomputed:
            return None
        if self.order is not None:
            return cKDTree(points, leafsize=self.leaf_size)
        params = dict(self.metric_params or {})
        if self.algorithm in TREES:
            tree = TREES[self.algorithm]
            return tree(points, leaf_size=self.leaf_size, metric=self.metric, **params)
        # p=None: avoids a conflict with a p in metric_params.
        return SingleSearch(
            algorithm="brute", metric=self.metric, p=None, metric_params=params or None
        ).fit(points)


def resolve_search(
    params: Mapping[str, Any], *, n_items: int, n_features: int, is_sparse: bool
) -> Search:
    """Validate an estimator's parameters and choose the search, as scikit-learn does.

    `n_items` and `n_features` are those of the whole collection: the search is the same for every
    location. Errors have scikit-learn's message.

    Notes
    -----
    The rule of ``"auto"``: brute force if points are sparse, have more than 15 columns, half of
    them are requested, or no tree supports the metric; else a k-d tree if it supports the metric,
    else a ball tree.

    Examples
    --------
    >>> params = {"n_neighbors": 5, "algorithm": "auto", "metric": "minkowski", "p": 2}
    >>> resolve_search(params, n_items=1000, n_features=3, is_sparse=False).algorithm
    'kd_tree'
    """
    known = dict(params)
    if callable(known["metric"]) and known["algorithm"] == "ball_tree":
        # A user's function may not be defined for the zeros used below.
        known["algorithm"] = "brute"
    columns = 1 if known["metric"] == "precomputed" else n_features
    zeros: npt.NDArray[np.float64] = np.zeros((1, columns))
    try:
        trial = SingleSearch(**known).fit(sparse.csr_matrix(zeros) if is_sparse else zeros)
        found = Search(
            "brute" if is_sparse else params["algorithm"],
            trial.effective_metric_,
            trial.effective_metric_params_,
            trial.leaf_size,
        )
        if found.algorithm == "auto":
            chosen = _chosen(found, params.get("n_neighbors"), n_items, columns)
            found = Search(chosen, found.metric, found.metric_params, found.leaf_size)
            if chosen in TREES and not callable(found.metric):
                found.index(zeros)
    except (ValueError, TypeError) as error:
        raise InvalidArgumentError(str(error)) from error
    return found


def _chosen(search: Search, n_neighbors: int | None, n_items: int, n_features: int) -> str:
    """Choose the algorithm for ``"auto"`` by scikit-learn's rule."""
    metric, params = search.metric, search.metric_params or {}
    many = n_neighbors is not None and n_neighbors >= n_items // 2
    if n_features > MAX_TREE_FEATURES or many:
        return "brute"
    if metric == "minkowski" and params["p"] < 1:
        return "brute"
    if callable(metric) or (metric == "minkowski" and params.get("w") is not None):
        return "ball_tree"
    for algorithm in TREES:
        if metric in VALID_METRICS[algorithm]:
            return algorithm
    return "brute"
