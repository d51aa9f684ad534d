"""The stand-in for PyCOMPSs where the real one is not, and its cluster of three nodes."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

STANDIN = Path(__file__).parent / "standin"

if importlib.util.find_spec("pycompss") is None:
    sys.path.append(str(STANDIN))

REAL = importlib.util.find_spec("pycompss.cluster") is None
"""Whether PyCOMPSs is the real one."""

NODES = {f"node-{number}": f"NODE{number}" for number in range(3)}
"""Names of the nodes, and of the software that each one alone has."""


def pytest_runtest_setup(item: pytest.Item) -> None:
    if REAL and item.get_closest_marker("standin"):
        pytest.skip("PyCOMPSs is installed here; these tests are about the stand-in's modes")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "standin: runs on the stand-in for PyCOMPSs only")


@contextmanager
def started_nodes() -> Iterator[Any]:
    """Start the stand-in's cluster; it is left in sequential mode."""
    from pycompss import cluster
    from pycompss.util.context import CONTEXT

    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    with cluster.Cluster(NODES) as started:
        CONTEXT.where, cluster.RUNNING = "OUT_OF_SCOPE", None
        yield started
        CONTEXT.where, cluster.RUNNING = "MASTER", started


@contextmanager
def running(nodes: Any) -> Iterator[Any]:
    """Have a runtime: calls give futures, and tasks of a node's partitions are pinned to it."""
    from pycompss import cluster
    from pycompss.util.context import CONTEXT

    from spliter_backends.compss import configure

    before = configure(pins=NODES, computing_units=2)
    CONTEXT.where, cluster.RUNNING = "MASTER", nodes
    yield nodes
    CONTEXT.where, cluster.RUNNING = "OUT_OF_SCOPE", None
    configure(pins=before.pins, computing_units=before.computing_units)


@pytest.fixture(scope="session")
def nodes() -> Iterator[Any]:
    with started_nodes() as started:
        yield started


@pytest.fixture
def runtime(nodes: Any) -> Iterator[Any]:
    with running(nodes) as started:
        yield started
