"""What there is to compare on Ray: tasks per block where Ray puts them, and where the block is."""

from __future__ import annotations

from spliter_experiments.compare.engines.engine import EngineKind, Ways
from spliter_experiments.compare.engines.placement import Placement
from spliter_experiments.compare.engines.ray_engine import connect
from spliter_experiments.compare.workloads.per_block import ways_by_calls
from spliter_experiments.compare.workloads.ray import OWN

ENGINE = EngineKind(
    name="ray",
    address_option="--address",
    placements=frozenset({Placement.EVEN, Placement.CONTIGUOUS}),
    connect=connect,
    ways={
        app: Ways({**ways.run, **OWN[app]}, own=tuple(OWN[app]))
        for app, ways in ways_by_calls().items()
    },
)
"""Loaded by :mod:`.loading`."""
