"""The four applications on Ray: those tests of their suites that compare with the libraries."""

from __future__ import annotations

import pytest

pytest.importorskip("ray")

from tests.csvm_suite import CascadeSVMTests
from tests.histogram_suite import HistogramTests
from tests.kmeans_suite import KMeansTests
from tests.neighbors_suite import NeighborsTests
from tests.ray_backend.placing import ShuffledCollections

pytestmark = [
    pytest.mark.backend("ray"),
    pytest.mark.timeout(200),
    pytest.mark.usefixtures("nodes"),
]


class TestHistogram(ShuffledCollections):
    """Blocks at nodes drawn at random."""

    test_bins_and_ranges = HistogramTests.test_bins_and_ranges
    test_weights = HistogramTests.test_weights
    test_dataframe = HistogramTests.test_dataframe
    test_listing_5 = HistogramTests.test_listing_5


class TestKMeans(ShuffledCollections):
    """Blocks at nodes drawn at random."""

    test_same_as_scikit_learn = KMeansTests.test_same_as_scikit_learn
    test_when_iteration_ends = KMeansTests.test_when_iteration_ends
    test_weights = KMeansTests.test_weights
    test_sparse_blocks = KMeansTests.test_sparse_blocks
    test_labels_are_blocked_like_the_points = KMeansTests.test_labels_are_blocked_like_the_points
    test_materialized_or_not = KMeansTests.test_materialized_or_not


class TestCascadeSVM(ShuffledCollections):
    """Blocks at nodes drawn at random."""

    both = CascadeSVMTests.both
    test_accuracy_of_svc = CascadeSVMTests.test_accuracy_of_svc
    test_objective_of_svc = CascadeSVMTests.test_objective_of_svc
    test_predictions_are_blocked_like_the_points = (
        CascadeSVMTests.test_predictions_are_blocked_like_the_points
    )


class TestNeighbors(ShuffledCollections):
    """Blocks at nodes drawn at random."""

    pair = NeighborsTests.pair
    test_same_as_scikit_learn = NeighborsTests.test_same_as_scikit_learn
    test_regression = NeighborsTests.test_regression
    test_ties_go_to_the_smallest_number = NeighborsTests.test_ties_go_to_the_smallest_number
    test_one_tree_per_place = NeighborsTests.test_one_tree_per_place
