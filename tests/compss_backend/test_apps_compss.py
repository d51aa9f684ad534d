"""The four applications on COMPSs: without a runtime, and on the stand-in's nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pytest

from tests.compss_backend.placing import MadeCollections, made
from tests.csvm_suite import CascadeSVMTests
from tests.histogram_suite import HistogramTests, cut, points
from tests.kmeans_suite import KMeansTests
from tests.neighbors_suite import NeighborsTests
from tests.programs import listing5

pytestmark = [pytest.mark.backend("compss"), pytest.mark.standin]


SuiteT = TypeVar("SuiteT", bound=type)


def keeping(*names: str) -> Callable[[SuiteT], SuiteT]:
    """Leave of a suite the tests named: those in which an engine takes part more than once.

    All of them run on other engines; here is what depends on how COMPSs hands blocks and results
    to tasks, and on how collections of its own are made.
    """

    def thinned(suite: SuiteT) -> SuiteT:
        there = {name for name in dir(suite) if name.startswith("test_")}
        assert there >= set(names), f"no tests {set(names) - there}"
        for name in there - set(names):
            setattr(suite, name, None)
        return suite

    return thinned


@keeping("test_dtypes", "test_dataframe", "test_one_task_per_partition")
class TestHistogram(MadeCollections, HistogramTests):
    """Without a runtime."""


@keeping("test_labels_are_blocked_like_the_points", "test_materialized_or_not")
class TestKMeans(MadeCollections, KMeansTests):
    """Without a runtime."""


@keeping("test_kernels", "test_predictions_are_blocked_like_the_points")
class TestCascadeSVM(MadeCollections, CascadeSVMTests):
    """Without a runtime."""


@keeping("test_regression", "test_fitted_in_memory_asked_in_blocks")
class TestNeighbors(MadeCollections, NeighborsTests):
    """Without a runtime."""


@keeping(
    "test_listing_5",
    "test_no_rows",
    "test_weights_blocked_otherwise",
    "test_columns_and_weights_of_a_dataframe",
    "test_columns_blocked_otherwise",
    "test_a_split_is_used_again",
    "test_objects",
    "test_one_task_per_partition",
    "test_the_split_made_inside_is_closed",
)
@pytest.mark.usefixtures("runtime")
class TestHistogramOnNodes(MadeCollections, HistogramTests):
    """Blocks at nodes drawn at random."""


@keeping(
    "test_same_as_scikit_learn",
    "test_weights",
    "test_a_callable",
    "test_empty_clusters_are_relocated",
    "test_labels_are_blocked_like_the_points",
    "test_data_frames",
    "test_fit_predict_and_fit_transform",
    "test_materialized_or_not",
    "test_one_task_per_partition_and_iteration",
    "test_points_that_are_not_finite",
    "test_sparse_blocks",
)
@pytest.mark.usefixtures("runtime")
class TestKMeansOnNodes(MadeCollections, KMeansTests):
    """Blocks at nodes drawn at random."""


@keeping(
    "test_accuracy_of_svc",
    "test_kernels",
    "test_support_is_numbered_in_the_whole_collection",
    "test_predictions_are_blocked_like_the_points",
    "test_a_model_too_large_to_go_with_each_task",
    "test_sparse_points",
    "test_frames",
    "test_one_class_only",
)
@pytest.mark.usefixtures("runtime")
class TestCascadeSVMOnNodes(MadeCollections, CascadeSVMTests):
    """Blocks at nodes drawn at random."""


@keeping(
    "test_same_as_scikit_learn",
    "test_a_function_as_metric",
    "test_graphs",
    "test_regression",
    "test_several_outputs",
    "test_fewer_points_at_a_place_than_neighbours",
    "test_data_frames",
    "test_some_blocks_are_sparse",
    "test_pickling_brings_the_trees_along",
    "test_fitted_in_memory_asked_in_blocks",
    "test_one_tree_per_place",
    "test_blocks_of_different_width",
    "test_labels_blocked_otherwise",
)
@pytest.mark.usefixtures("runtime")
class TestNeighborsOnNodes(MadeCollections, NeighborsTests):
    """Blocks at nodes drawn at random."""


def check_listing5(collection: Any) -> None:
    sample = points()
    limits = [(0.0, 9.0)] * 3
    found = listing5.histogram(collection, 4, limits)
    np.testing.assert_array_equal(found, np.histogramdd(sample, bins=4, range=limits)[0])


def test_listing5_without_a_runtime() -> None:
    check_listing5(made(cut(points(), [30, 0, 60])))


def test_listing5_on_nodes(runtime: Any) -> None:
    blocks = made(cut(points(), [30, 0, 25, 35]))
    before = len(runtime.submitted)
    check_listing5(blocks)
    kinds = {name.partition("_")[0] for name in runtime.submitted[before:]}
    assert kinds == {"call"}, "blocks that said where they are need not be asked"
