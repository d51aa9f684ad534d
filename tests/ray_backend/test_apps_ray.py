"""The applications on Ray."""

from __future__ import annotations

import pytest

pytest.importorskip("ray")

from tests.csvm_suite import CascadeSVMTests
from tests.engine_cases import (
    CASCADE_SVM,
    GRAPHS,
    HISTOGRAM,
    KMEANS,
    LINEAR,
    NEIGHBORS,
    one_case_of,
)
from tests.graph.suite import GraphTests
from tests.histogram_suite import HistogramTests
from tests.kmeans_suite import KMeansTests
from tests.linear_suite import LinearTests
from tests.neighbors_suite import NeighborsTests
from tests.ray_backend.placing import ShuffledCollections

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.backend("ray"),
    pytest.mark.timeout(200),
    pytest.mark.usefixtures("nodes"),
]


@one_case_of(*HISTOGRAM)
class TestHistogram(ShuffledCollections, HistogramTests):
    """Blocks at nodes drawn at random."""


@one_case_of(*GRAPHS)
class TestGraphs(ShuffledCollections, GraphTests):
    """Blocks at nodes drawn at random."""


@one_case_of(*LINEAR)
class TestLinear(ShuffledCollections, LinearTests):
    """Blocks at nodes drawn at random."""


@one_case_of(*KMEANS)
class TestKMeans(ShuffledCollections, KMeansTests):
    """Blocks at nodes drawn at random."""


@one_case_of(*CASCADE_SVM)
class TestCascadeSVM(ShuffledCollections, CascadeSVMTests):
    """Blocks at nodes drawn at random."""


@one_case_of(*NEIGHBORS)
class TestNeighbors(ShuffledCollections, NeighborsTests):
    """Blocks at nodes drawn at random."""
