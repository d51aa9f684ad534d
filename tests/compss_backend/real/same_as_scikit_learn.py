"""The estimators against scikit-learn on a real COMPSs runtime; run inside ``runcompss``.

On digits, breast cancer, iris and blobs, each in 1, 7 and 200 blocks at nodes drawn at random.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spliter_backends.compss import configure
from tests.compss_backend.placing import MadeCollections
from tests.compss_backend.real.nodes import nodes_by_software
from tests.csvm_suite import CascadeSVMTests
from tests.kmeans_suite import KMeansTests
from tests.neighbors_suite import NeighborsTests


@pytest.fixture(autouse=True)
def _pinned() -> Iterator[None]:
    """Name the nodes, where they have names: else COMPSs chooses where blocks are made."""
    before = configure(pins=nodes_by_software())
    yield
    configure(pins=before.pins)


class TestKMeans(MadeCollections):
    test_same_as_scikit_learn = KMeansTests.test_same_as_scikit_learn


class TestCascadeSVM(MadeCollections):
    both = CascadeSVMTests.both
    test_accuracy_of_svc = CascadeSVMTests.test_accuracy_of_svc


class TestNeighbors(MadeCollections):
    pair = NeighborsTests.pair
    test_same_as_scikit_learn = NeighborsTests.test_same_as_scikit_learn
