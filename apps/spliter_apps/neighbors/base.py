"""Base class of the neighbours estimators: fit a forest of search trees, and query it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.base import BaseEstimator, MultiOutputMixin

from spliter import InvalidArgumentError, Partition, Split, gather
from spliter_apps._blocks import keep_schema
from spliter_apps._data import check_members, is_blocked, open_data
from spliter_apps._differences import Names
from spliter_apps._requirements import Requirements, validated
from spliter_apps._row_values import is_in_memory
from spliter_apps.neighbors.forest import Forest, order_by_item
from spliter_apps.neighbors.inspection import TargetKind, Targets, output_names
from spliter_apps.neighbors.kernel import build_tree
from spliter_apps.neighbors.metric import TREES, resolve_search
from spliter_apps.neighbors.precomputed import check_format, check_not_negative
from spliter_apps.neighbors.tasks import FinishFunction, Query, concatenate_results, cut_results

Output = tuple[npt.DTypeLike, tuple[int, ...]]
"""Dtype of one output array, and its shape without the rows."""

PARAMS = ("n_neighbors", "radius", "algorithm", "leaf_size", "metric", "p", "metric_params")
"""Parameters shared with scikit-learn's estimators."""


class NeighborsEstimator(MultiOutputMixin, BaseEstimator):  # type: ignore[misc]
    """Base estimator with scikit-learn's interface over a forest: one search tree per location."""

    metric: Any
    n_samples_fit_: int
    n_features_in_: int
    _forest: Forest
    _kind: TargetKind | None = None
    """Kind of the targets; None for estimators without targets."""
    _output_names: Names = None
    """Names of the columns of the targets, if there are several."""

    def _fit(self, X: Any, y: Any = None) -> None:
        """Validate the input, choose the search, and build the trees (or start tasks that do)."""
        if is_blocked(X):
            self._fit_blocks(X, y)
        else:
            self._fit_array(X, y)

    def _fit_array(self, X: Any, y: Any) -> None:
        if self._takes_distances():
            check_format(X)
        checks: dict[str, Any] = {"accept_sparse": "csr", "order": "C"}
        checks["ensure_all_finite"] = self._finite()
        if self._kind is None:
            points, targets = validated(self, X, **checks), None
        else:
            points, targets = validated(self, X, y, multi_output=True, **checks)
            self._output_names = output_names(y)
        if self._takes_distances():
            check_not_negative(points)
            if points.shape[0] != points.shape[1]:
                raise InvalidArgumentError(
                    "Precomputed matrix must be square. Input is a "
                    f"{points.shape[0]}x{points.shape[1]} matrix."
                )
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
        if self._takes_distances():
            raise InvalidArgumentError(
                "metric='precomputed' needs all distances in one matrix in memory; for points in "
                "blocks, choose another metric"
            )
        with ExitStack() as stack:
            given = () if self._kind is None else (y,)
            data = open_data(X, *given, materialize=False, partitions_per_location=1)
            stack.enter_context(data)
            if self._kind is None:
                check_members(data, 1, "split(X)")
            else:
                if data.parts.ncollections == 1:
                    raise InvalidArgumentError(
                        f"This {type(self).__name__} estimator requires y to be passed, but the "
                        "target y is None: pass a collection blocked like the points, or the "
                        "Split of both, split(X, y)"
                    )
                check_members(data, 2, "split(X, y)")
            data.parts.resolve_item_indexes()
            forest, sample = Forest.build(data.parts, self._params(), self._kind)
            keep_schema(self, sample.schema)
            if sample.targets is not None:
                self._keep_targets(sample.targets, None)
                self._output_names = sample.targets.names or names_in_memory(y)
            self._keep(forest, sample.schema.n_items)
            # Keep the Split open: the blocks are needed to rebuild a lost tree.
            stack.pop_all()

    def _params(self) -> dict[str, Any]:
        known = self.get_params(deep=False)
        return {name: known[name] for name in PARAMS if name in known}

    def _takes_distances(self) -> bool:
        return isinstance(self.metric, str) and self.metric == "precomputed"

    def _finite(self) -> bool | str:
        return "allow-nan" if self.metric == "nan_euclidean" else True

    def _keep(self, forest: Forest, n_items: int) -> None:
        self._forest = forest
        self.n_samples_fit_ = n_items
        self.effective_metric_ = forest.search.metric
        self.effective_metric_params_ = dict(forest.search.metric_params or {})

    def _keep_targets(self, found: Targets, targets: Any) -> Any:
        """Set the attributes that describe targets; return in-memory ones as stored in trees."""
        # Not abstract: never called for NearestNeighbors, which has no targets.
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle; the trees of blocked training data are gathered first."""
        state: dict[str, Any] = dict(super().__getstate__())
        if "_forest" in state:
            state["_forest"] = state["_forest"].gathered()
        return state

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.metric == "nan_euclidean"
        tags.input_tags.pairwise = self._takes_distances()
        tags.input_tags.positive_only = tags.input_tags.pairwise
        return tags

    def _query(
        self, X: Any, query: Query, finish: FinishFunction, outputs: Sequence[Output]
    ) -> tuple[Any, ...]:
        """Query the forest with points of any kind; the result is of the same kind."""
        forest = self._forest
        if X is None:
            found = forest.query_own_points(query, finish)
            if forest.parts is not None:
                return _assemble(forest.parts, found, outputs)
            results = [concatenate_results(gather(futures)) for _, futures in found]
            return order_by_item(results, [tree.items for tree in forest.trees])
        if is_blocked(X):
            with open_data(X, materialize=False) as data:
                return _assemble(data.parts, self._query_blocks(data.parts, query, finish), outputs)
        return forest.query_array(self._queries(X), query, finish)

    def _query_blocks(
        self, parts: Split, query: Query, finish: FinishFunction
    ) -> list[tuple[Partition, list[Any]]]:
        search = self._forest.search
        requirements = Requirements.by(
            self, search.dtype, accept_sparse=search.algorithm == "brute"
        )
        return self._forest.query_blocks(parts, requirements.of_blocks(parts), query, finish)

    def _queries(self, X: Any) -> Any:
        """Validate queries in memory."""
        if self._takes_distances():
            check_format(X)
        checked = validated(
            self, X, accept_sparse="csr", reset=False, order="C", ensure_all_finite=self._finite()
        )
        search = self._forest.search
        if sparse.issparse(checked) and search.algorithm in TREES:
            raise InvalidArgumentError(
                f"{search.algorithm} does not work with sparse matrices. Densify the data, or "
                "set algorithm='brute'"
            )
        return checked.astype(search.dtype, copy=False)


def names_in_memory(y: Any) -> Names:
    """Return the names of several outputs in memory; those in blocks are compared by tasks."""
    return output_names(y) if is_in_memory(y) else None


def _assemble(parts: Split, found: Any, outputs: Sequence[Output]) -> tuple[Any, ...]:
    """Assemble the results for the partitions of `parts` into collections with the same blocks."""
    cut = [(partition, partition.submit(cut_results, futures)) for partition, futures in found]
    return tuple(
        parts.assemble(cut, dtype=dtype, trailing_shape=trailing, output=number)
        for number, (dtype, trailing) in enumerate(outputs)
    )
