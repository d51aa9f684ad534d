"""What the three estimators share: fitting a forest, and asking it for the nearest neighbours."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.base import BaseEstimator, MultiOutputMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from spliter import InvalidArgumentError, Partition, Split, gather
from spliter_apps._blocks import Expected, keep_schema
from spliter_apps._data import check_members, is_blocked, open_data
from spliter_apps._neighbors_answers import as_arrays, as_graph
from spliter_apps._neighbors_forest import Forest, in_item_order
from spliter_apps._neighbors_kernel import build_tree
from spliter_apps._neighbors_metric import TREES, resolve_search
from spliter_apps._neighbors_sample import Choice, TargetKind, Targets
from spliter_apps._neighbors_tasks import (
    Conclude,
    Question,
    WhichNearest,
    cut_answers,
    stacked,
)

Output = tuple[npt.DTypeLike, tuple[int, ...]]
"""What one of the arrays in an answer is: dtype, and shape without the rows."""

PARAMS = ("n_neighbors", "radius", "algorithm", "leaf_size", "metric", "p", "metric_params")
"""Parameters that scikit-learn's estimator of one machine has too."""


class NeighborsEstimator(MultiOutputMixin, BaseEstimator):  # type: ignore[misc]
    """A forest of trees, one per location, behind scikit-learn's interface."""

    n_neighbors: int
    metric: Any
    n_samples_fit_: int
    n_features_in_: int
    _forest: Forest
    _kind: TargetKind | None = None
    """What the targets are, in estimators that have some."""

    def _fit(self, X: Any, y: Any = None) -> None:
        """Check what was given, choose the search, build the trees (or start to)."""
        if is_blocked(X):
            self._fit_blocks(X, y)
        else:
            self._fit_array(X, y)

    def _fit_array(self, X: Any, y: Any) -> None:
        checks: dict[str, Any] = {"accept_sparse": "csr", "order": "C"}
        checks["ensure_all_finite"] = self._finite()
        if self._kind is None:
            points, targets = validate_data(self, X, **checks), None
        else:
            points, targets = validate_data(self, X, y, multi_output=True, **checks)
        if self.metric == "precomputed":
            _check_distances(points)
        if targets is not None:
            targets = self._keep_targets(Targets.of(targets, self._kind or "values"), targets)
        n_items, n_features = points.shape
        is_sparse = sparse.issparse(points)
        if is_sparse and self._params()["algorithm"] in TREES:
            warnings.warn("cannot use tree with sparse input: using brute force", stacklevel=3)
        search = resolve_search(
            self._params(), n_items=n_items, n_features=n_features, is_sparse=is_sparse
        )
        tree = build_tree(
            points.astype(search.dtype, copy=False), np.arange(n_items), search, targets
        )
        self._keep(Forest(search, (tree,)), n_items)

    def _fit_blocks(self, X: Any, y: Any) -> None:
        if self.metric == "precomputed":
            raise InvalidArgumentError(
                "metric='precomputed' needs all distances in one matrix in memory, and the "
                "points are in blocks; pass points and a metric"
            )
        with ExitStack() as stack:
            given = () if self._kind is None else (y,)
            data = open_data(X, *given, materialize=False, partitions_per_location=1)
            stack.enter_context(data)
            if self._kind is None:
                check_members(data, 1, "split(X)")
            else:
                check_members(data, 2, "split(X, y)")
            data.parts.resolve_item_indexes()
            n_items = sum(each.shape[0] or 0 for each in data.parts)  # all known by now
            choice = Choice(self._params(), self._kind, n_items)
            forest, sample = Forest.plant(data.parts, choice)
            keep_schema(self, sample.schema)
            if sample.targets is not None:
                self._keep_targets(sample.targets, None)
            self._keep(forest, sample.schema.n_items)
            # The forest needs the blocks if a tree is lost, or asked about its own points.
            stack.pop_all()

    def _params(self) -> dict[str, Any]:
        known = self.get_params(deep=False)
        return {name: known[name] for name in PARAMS if name in known}

    def _finite(self) -> bool | str:
        return "allow-nan" if self.metric == "nan_euclidean" else True

    def _keep(self, forest: Forest, n_items: int) -> None:
        self._forest = forest
        self.n_samples_fit_ = n_items
        self.effective_metric_ = forest.search.metric
        self.effective_metric_params_ = dict(forest.search.metric_params or {})

    def _keep_targets(self, found: Targets, targets: Any) -> Any:
        """Set the attributes that describe targets; return those in memory as trees have them."""
        # Not abstract: the estimator without targets, NearestNeighbors, is never asked.
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: of blocked training data all trees, gathered here."""
        state: dict[str, Any] = dict(super().__getstate__())
        if "_forest" in state:
            state["_forest"] = state["_forest"].gathered()
        return state

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.metric == "nan_euclidean"
        tags.input_tags.pairwise = self.metric == "precomputed"
        tags.input_tags.positive_only = tags.input_tags.pairwise
        return tags

    def kneighbors(
        self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> Any:
        """Find the nearest neighbours of points.

        Parameters
        ----------
        X : array-like, sparse matrix or blocked collection of shape (n_queries, n_features)
            Queries; by default the fitted points, which are then not their own neighbours.
        n_neighbors : int, optional
            How many; by default as the estimator was made.
        return_distance : bool, default True
            Whether to return the distances too.

        Returns
        -------
        distances : ndarray of float64, shape (n_queries, n_neighbors), or collection
            Ascending; only if asked for. Blocked like the queries if these are.
        items : ndarray of int64, shape (n_queries, n_neighbors), or collection
            Rows of the training data. Of several at one distance the first comes first.

        Raises
        ------
        InvalidArgumentError
            If there are fewer points than neighbours, `n_neighbors` is not an int of at
            least 1, or the queries do not fit the training data. It is a ``ValueError``.
        NotFittedError
            If the estimator has not been fitted.

        Examples
        --------
        >>> import numpy as np
        >>> from spliter_apps.neighbors import NearestNeighbors
        >>> blocks = [np.array([[0.0], [1.0]]), np.array([[5.0]])]
        >>> NearestNeighbors(n_neighbors=2).fit(blocks).kneighbors([[4.0]])
        (array([[1., 3.]]), array([[2, 1]]))
        """
        question, k = self._nearest(X, n_neighbors)
        outputs: list[Output] = [(np.float64, (k,)), (np.int64, (k,))]
        answer = self._asked(
            X,
            question,
            partial(as_arrays, return_distance=return_distance),
            outputs if return_distance else outputs[1:],
        )
        return answer if return_distance else answer[0]

    def kneighbors_graph(
        self, X: Any = None, n_neighbors: int | None = None, mode: str = "connectivity"
    ) -> Any:
        """Compute the graph of the nearest neighbours.

        Parameters
        ----------
        X, n_neighbors
            As for :meth:`kneighbors`.
        mode : {'connectivity', 'distance'}
            Whether edges have 1 or the distance as value.

        Returns
        -------
        csr_matrix of float64, shape (n_queries, n_samples_fit), or collection of these
            Row i has an edge to each neighbour of query i.

        Raises
        ------
        InvalidArgumentError
            As :meth:`kneighbors`, or if `mode` is not known.
        """
        question, _ = self._nearest(X, n_neighbors)
        conclude = partial(
            as_graph, n_items=self.n_samples_fit_, with_distances=wants_distances(mode)
        )
        return self._asked(X, question, conclude, [(np.float64, (self.n_samples_fit_,))])[0]

    def _nearest(
        self, X: Any, n_neighbors: int | None = None, *, with_targets: bool = False
    ) -> tuple[WhichNearest, int]:
        """Return what to ask the trees, and how many neighbours come of it."""
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
        return WhichNearest(int(k) + itself, with_targets), int(k)

    def _asked(
        self, X: Any, question: Question, conclude: Conclude, outputs: Sequence[Output]
    ) -> tuple[Any, ...]:
        """Ask the forest about queries of any kind; the answer is of the same kind."""
        forest = self._forest
        if X is None:
            found = forest.about_itself(question, conclude)
            if forest.parts is not None:
                return _assembled(forest.parts, found, outputs)
            answers = [stacked(gather(futures)) for _, futures in found]
            return in_item_order(answers, [tree.items for tree in forest.trees])
        if is_blocked(X):
            with open_data(X, materialize=False) as data:
                return _assembled(
                    data.parts, self._asked_blocks(data.parts, question, conclude), outputs
                )
        return forest.about_array(self._queries(X), question, conclude)

    def _asked_blocks(
        self, parts: Split, question: Question, conclude: Conclude
    ) -> list[tuple[Partition, list[Any]]]:
        search = self._forest.search
        expected = Expected.by(self, search.dtype, accept_sparse=search.algorithm == "brute")
        expected.check_grid(parts)
        return self._forest.about_blocks(parts, expected, question, conclude)

    def _queries(self, X: Any) -> Any:
        """Check queries in memory."""
        checked = validate_data(
            self,
            X,
            accept_sparse="csr",
            reset=False,
            order="C",
            ensure_all_finite=self._finite(),
        )
        search = self._forest.search
        if sparse.issparse(checked) and search.algorithm in TREES:
            raise InvalidArgumentError(
                f"{search.algorithm} does not work with sparse matrices. Densify the data, or "
                "set algorithm='brute'"
            )
        return checked.astype(search.dtype, copy=False)


def wants_distances(mode: str) -> bool:
    """Return whether the edges of a graph are to have distances as values.

    Parameters
    ----------
    mode : {'connectivity', 'distance'}
        As the caller says it.

    Returns
    -------
    bool
        Whether it is the latter.

    Raises
    ------
    InvalidArgumentError
        If it is neither.
    """
    if mode not in {"connectivity", "distance"}:
        raise InvalidArgumentError(
            f'Unsupported mode, must be one of "connectivity", or "distance" but got "{mode}" '
            "instead"
        )
    return mode == "distance"


def warn_of_column(n_outputs: int | None) -> None:
    """Say that labels in a column are taken for one-dimensional ones, as scikit-learn does.

    Parameters
    ----------
    n_outputs : int or None
        Columns of the labels, if they are two-dimensional.
    """
    if n_outputs == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Please change the shape "
            "of y to (n_samples,), for example using ravel().",
            DataConversionWarning,
            stacklevel=5,
        )


def _assembled(parts: Split, found: Any, outputs: Sequence[Output]) -> tuple[Any, ...]:
    """Make collections, blocked like `parts`, of the answers for its partitions."""
    cut = [(partition, partition.submit(cut_answers, futures)) for partition, futures in found]
    return tuple(
        parts.assemble(cut, dtype=dtype, trailing_shape=trailing, output=number)
        for number, (dtype, trailing) in enumerate(outputs)
    )


def _check_distances(matrix: Any) -> None:
    if sparse.issparse(matrix):
        raise InvalidArgumentError(
            "metric='precomputed' takes a dense matrix of all distances here, got a sparse one"
        )
    if matrix.shape[0] != matrix.shape[1]:
        raise InvalidArgumentError(
            f"Precomputed matrix must be square. Input is a {matrix.shape[0]}x{matrix.shape[1]} "
            "matrix."
        )


def _rows_of(X: Any) -> Any:
    if isinstance(X, Split):
        return X.grid.extent[0] or "unknown"
    return X.shape[0] if hasattr(type(X), "shape") else len(X)
