"""What there is to compare on dataClay: it does not rechunk, nor has it algorithms of its own."""

from __future__ import annotations

from spliter_experiments import _csvm, _dataclay_ways, _histogram, _kmeans, _knn, _sum
from spliter_experiments._dataclay_engine import connect
from spliter_experiments._engine import EngineKind, Ways
from spliter_experiments._placement import Placement

ENGINE = EngineKind(
    name="dataclay",
    address_option="--address",
    placements=frozenset({Placement.EVEN, Placement.DATACLAY}),
    connect=connect,
    ways={
        "sum": Ways({"spliter": _sum.by_spliter, "per-block": _dataclay_ways.sum_per_block}),
        "histogram": Ways(
            {"spliter": _histogram.by_spliter, "per-block": _dataclay_ways.histogram_per_block}
        ),
        "kmeans": Ways({**_kmeans.ESTIMATOR, "per-block": _dataclay_ways.kmeans_per_block}),
        "csvm": Ways({**_csvm.ESTIMATOR, "per-block": _dataclay_ways.csvm_per_block}),
        "knn": Ways({"spliter": _knn.by_spliter, "per-block": _dataclay_ways.knn_per_block}),
    },
)
"""Loaded by :mod:`._engines`."""
