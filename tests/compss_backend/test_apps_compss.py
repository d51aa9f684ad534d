"""The applications on COMPSs: without a runtime, and on the stand-in's nodes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compss_backend.placing import MadeCollections, made
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
from tests.engine_collections import cut
from tests.graph.suite import GraphTests
from tests.histogram_suite import HistogramTests, points
from tests.kmeans_suite import KMeansTests
from tests.linear_suite import LinearTests
from tests.neighbors_suite import NeighborsTests
from tests.programs import listing5

pytestmark = [pytest.mark.thorough, pytest.mark.backend("compss"), pytest.mark.standin]


@one_case_of(*HISTOGRAM)
@pytest.mark.usefixtures("runtime")
class TestHistogram(MadeCollections, HistogramTests):
    """Blocks at nodes drawn at random."""


@one_case_of(*GRAPHS)
@pytest.mark.usefixtures("runtime")
class TestGraphs(MadeCollections, GraphTests):
    """Blocks at nodes drawn at random."""


@one_case_of(*LINEAR)
@pytest.mark.usefixtures("runtime")
class TestLinear(MadeCollections, LinearTests):
    """Blocks at nodes drawn at random."""


@one_case_of(*KMEANS)
@pytest.mark.usefixtures("runtime")
class TestKMeans(MadeCollections, KMeansTests):
    """Blocks at nodes drawn at random."""


@one_case_of(*CASCADE_SVM)
@pytest.mark.usefixtures("runtime")
class TestCascadeSVM(MadeCollections, CascadeSVMTests):
    """Blocks at nodes drawn at random."""


@one_case_of(*NEIGHBORS)
@pytest.mark.usefixtures("runtime")
class TestNeighbors(MadeCollections, NeighborsTests):
    """Blocks at nodes drawn at random."""


def test_blocks_that_said_where_they_are_need_not_be_asked(runtime: Any) -> None:
    blocks = made(cut(points(), [30, 0, 25, 35]))
    before = len(runtime.submitted)
    listing5.histogram(blocks, 4, [(0.0, 9.0)] * 3)
    assert {name.partition("_")[0] for name in runtime.submitted[before:]} == {"call"}
