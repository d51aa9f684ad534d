"""What there is to compare on dataClay: it does not rechunk, nor has it algorithms of its own."""

from __future__ import annotations

from spliter_experiments._block_calls import ways_by_calls
from spliter_experiments._dataclay_engine import connect
from spliter_experiments._engine import EngineKind
from spliter_experiments._placement import Placement

ENGINE = EngineKind(
    name="dataclay",
    address_option="--address",
    placements=frozenset({Placement.EVEN, Placement.CONTIGUOUS, Placement.DATACLAY}),
    connect=connect,
    ways=ways_by_calls(),
)
"""Loaded by :mod:`._engines`."""
