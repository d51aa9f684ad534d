"""What there is to compare on dataClay: it does not rechunk, nor has it algorithms of its own."""

from __future__ import annotations

from spliter_experiments.compare.engines.dataclay_engine import connect
from spliter_experiments.compare.engines.engine import EngineKind
from spliter_experiments.compare.engines.placement import Placement
from spliter_experiments.compare.workloads.per_block import ways_by_calls

ENGINE = EngineKind(
    name="dataclay",
    address_option="--address",
    placements=frozenset({Placement.EVEN, Placement.CONTIGUOUS, Placement.DATACLAY}),
    connect=connect,
    ways=ways_by_calls(),
)
"""Loaded by :mod:`.loading`."""
