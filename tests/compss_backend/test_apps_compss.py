"""The four applications on COMPSs: without a runtime, and on the stand-in's nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compss_backend.placing import MadeCollections, made
from tests.csvm_suite import CascadeSVMTests
from tests.engine_cases import CASCADE_SVM, HISTOGRAM, KMEANS, NEIGHBORS, one_case_of
from tests.histogram_suite import HistogramTests, cut, points
from tests.kmeans_suite import KMeansTests
from tests.neighbors_suite import NeighborsTests
from tests.programs import listing5

pytestmark = [pytest.mark.thorough, pytest.mark.backend("compss"), pytest.mark.standin]


@one_case_of(*HISTOGRAM)
@pytest.mark.usefixtures("runtime")
class TestHistogram(MadeCollections, HistogramTests):
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
