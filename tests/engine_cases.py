"""One case of each estimator's suite for each engine; the whole grid of cases runs on local."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

SuiteT = TypeVar("SuiteT", bound=type)

HISTOGRAM = (
    "test_columns_and_weights_of_a_dataframe",
    "test_columns_blocked_otherwise",
    "test_listing_5",
    "test_no_rows",
    "test_one_task_per_partition",
    "test_a_split_is_used_again",
    "test_the_split_made_inside_is_closed",
    "test_weights_blocked_otherwise",
)
KMEANS = (
    "test_same_as_scikit_learn",
    "test_empty_clusters_are_relocated",
    "test_labels_are_blocked_like_the_points",
    "test_data_frames",
    "test_fit_predict_and_fit_transform",
    "test_materialized_or_not",
    "test_one_task_per_partition_and_iteration",
    "test_points_that_are_not_finite",
    "test_sparse_blocks",
    "test_weights",
)
CASCADE_SVM = (
    "test_accuracy_of_svc",
    "test_frames",
    "test_kernels",
    "test_one_class_only",
    "test_predictions_are_blocked_like_the_points",
    "test_sparse_points",
    "test_support_is_numbered_in_the_whole_collection",
)
NEIGHBORS = (
    "test_same_as_scikit_learn",
    "test_blocks_of_different_width",
    "test_data_frames",
    "test_fewer_points_at_a_place_than_neighbours",
    "test_fitted_in_memory_asked_in_blocks",
    "test_graphs",
    "test_labels_blocked_otherwise",
    "test_one_tree_per_place",
    "test_pickling_brings_the_trees_along",
    "test_regression",
    "test_some_blocks_are_sparse",
)
GRAPHS = (
    "test_same_as_scipy_and_networkx",
    "test_blocks_differ",
    "test_negative_weights",
    "test_one_task_per_partition",
)
LINEAR = (
    "test_frames",
    "test_pca",
    "test_regression",
    "test_sparse_blocks",
    "test_targets_in_memory_and_a_split",
)


def one_case_of(*names: str) -> Callable[[SuiteT], SuiteT]:
    """Keep the named tests of a suite, each with the last of its parameters."""

    def thinned(suite: SuiteT) -> SuiteT:
        tests = [name for name in dir(suite) if name.startswith("test_")]
        assert set(names) <= set(tests), f"the suite has no {set(names) - set(tests)}"
        for name in tests:
            setattr(suite, name, _last_case(getattr(suite, name)) if name in names else None)
        return suite

    return thinned


def _last_case(test: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        test(*args, **kwargs)

    run.pytestmark = [_last(mark) for mark in getattr(test, "pytestmark", [])]  # type: ignore[attr-defined]
    return run


def _last(mark: pytest.Mark) -> pytest.Mark:
    if mark.name != "parametrize":
        return mark
    names, cases = mark.args
    return pytest.mark.parametrize(names, [*cases][-1:], **mark.kwargs).mark
