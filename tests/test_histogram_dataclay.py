"""The histogram on three dataClay backends, samples shuffled over them."""

from __future__ import annotations

import pytest

pytest.importorskip("dataclay")

from tests.dataclay_backend.conftest import cluster
from tests.dataclay_backend.placing import ShuffledCollections
from tests.histogram_suite import HistogramTests

__all__ = ["cluster"]  # the fixture

pytestmark = [
    pytest.mark.backend("dataclay"),
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("cluster"),
]


class TestDataClay(ShuffledCollections, HistogramTests):
    """Arrays, each block of which is at a backend drawn at random."""
