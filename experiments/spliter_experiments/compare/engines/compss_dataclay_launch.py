"""Kind of the engine ``compss+dataclay``; imports neither COMPSs nor dataClay."""

from __future__ import annotations

from spliter_experiments.compare.engines.compss_launch import connect_inside, launcher
from spliter_experiments.compare.engines.engine import EngineKind
from spliter_experiments.compare.engines.placement import Placement

ENGINE = EngineKind(
    name="compss+dataclay",
    placements=frozenset({Placement.EVEN, Placement.CONTIGUOUS}),
    connect=connect_inside("spliter_experiments.compare.engines.compss_dataclay_engine"),
    launcher=launcher,
    node_is_worker=True,
)
