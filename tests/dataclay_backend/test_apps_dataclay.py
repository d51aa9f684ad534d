"""The applications on three dataClay backends, blocks shuffled over them."""

from __future__ import annotations

import pytest

pytest.importorskip("dataclay")

from tests.csvm_suite import CascadeSVMTests
from tests.dataclay_backend.placing import ShuffledCollections
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

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.backend("dataclay"),
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("cluster"),
]


@one_case_of(*HISTOGRAM)
class TestHistogram(ShuffledCollections, HistogramTests):
    """Each block at a backend drawn at random."""


@one_case_of(*GRAPHS)
class TestGraphs(ShuffledCollections, GraphTests):
    """Each block at a backend drawn at random."""


@one_case_of(*LINEAR)
class TestLinear(ShuffledCollections, LinearTests):
    """Each block at a backend drawn at random."""


@one_case_of(*KMEANS)
class TestKMeans(ShuffledCollections, KMeansTests):
    """Each block at a backend drawn at random."""


@one_case_of(*CASCADE_SVM)
class TestCascadeSVM(ShuffledCollections, CascadeSVMTests):
    """Each block at a backend drawn at random."""


@one_case_of(*NEIGHBORS)
class TestNeighbors(ShuffledCollections, NeighborsTests):
    """Each block at a backend drawn at random."""
