"""Look up the ways of an app on an engine."""

from __future__ import annotations

import importlib
from typing import Any

from spliter_experiments.compare.engines.engine import EngineKind
from spliter_experiments.compare.ways import OFF_CLUSTER
from spliter_experiments.compare.workloads.workload import App, Ways, per_block


def ways_of(kind: EngineKind, app: type[App[Any]]) -> Ways:
    """Return the ways of an app on an engine: SplIter's, ``per-block``, and the engine's own.

    Examples
    --------
    >>> from spliter_experiments.compare.engines.loading import load_engine
    >>> from spliter_experiments.compare.workloads.sums import Sum
    >>> list(ways_of(load_engine("dask"), Sum).run)
    ['spliter', 'per-block', 'rechunk-p2p', 'rechunk-tasks', 'dask']
    """
    common = {**app.split_ways, "per-block": per_block(app)}
    if kind.own_ways is None:
        return Ways(common)
    own: Ways = importlib.import_module(kind.own_ways).ways(app)
    return Ways({**common, **own.run}, own.own, own.absent)


def ways_on(kind: EngineKind, app: App[Any]) -> tuple[str, ...]:
    """Return the names of the ways of an app on an engine, in the order of the tables.

    Ways of this engine alone come after the common ones and before those off the cluster.
    """
    table = ways_of(kind, type(app))
    on_cluster = [way for way in app.ways if way in table.run]
    off_cluster = [way for way in app.ways if way in OFF_CLUSTER]
    return (*on_cluster, *table.own, *off_cluster)
