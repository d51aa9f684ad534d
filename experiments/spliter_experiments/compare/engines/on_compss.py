"""What there is to compare on COMPSs; loaded without PyCOMPSs, which is where COMPSs is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spliter_experiments.compare.engines.compss_launch import launcher
from spliter_experiments.compare.engines.engine import ClusterChoice, Engine, EngineKind
from spliter_experiments.compare.engines.placement import Placement
from spliter_experiments.compare.workloads.per_block import ways_by_calls
from spliter_experiments.harness.errors import ClusterError


@contextmanager
def connect(choice: ClusterChoice) -> Iterator[Engine]:
    """Connect to the application that this is the main program of.

    Raises
    ------
    ClusterError
        If there is no PyCOMPSs, or its nodes cannot be used.
    """
    try:
        from spliter_experiments.compare.engines import compss_engine
    except ImportError as error:
        raise ClusterError(f"--backend compss cannot be used here: {error}") from error
    with compss_engine.connect(choice) as engine:
        yield engine


ENGINE = EngineKind(
    name="compss",
    address_option="--address",
    placements=frozenset({Placement.EVEN, Placement.COMPSS}),
    connect=connect,
    ways=ways_by_calls(),
    launcher=launcher,
    node_is_worker=True,
)
"""Loaded by :mod:`.loading`."""
