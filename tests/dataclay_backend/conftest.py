"""Real dataClay clusters of separate processes, one at a time: a process has one client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("dataclay")

from spliter_backends.dataclay.cluster import EmbeddedDataClay
from tests.conftest import SOURCE_ROOTS


def start(n_backends: int = 3) -> EmbeddedDataClay:
    """Start a cluster whose backends import what the tests do, and connect to it."""
    cluster = EmbeddedDataClay(n_backends, python_path=SOURCE_ROOTS).start()
    cluster.client()
    return cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedDataClay]:
    """Three backends for the tests of a module."""
    running = start()
    yield running
    running.close()
