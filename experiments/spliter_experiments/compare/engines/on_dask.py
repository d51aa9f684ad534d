"""What there is to compare on Dask."""

from __future__ import annotations

from spliter_experiments.compare.engines.dask_engine import connect
from spliter_experiments.compare.engines.engine import EngineKind
from spliter_experiments.compare.engines.placement import Placement
from spliter_experiments.compare.workloads import (
    csvm_dask,
    histogram_dask,
    kmeans_dask,
    knn_dask,
    sums_dask,
)

ENGINE = EngineKind(
    name="dask",
    address_option="--scheduler",
    placements=frozenset({Placement.EVEN, Placement.CONTIGUOUS, Placement.DASK}),
    connect=connect,
    ways={
        "sum": sums_dask.WAYS,
        "histogram": histogram_dask.WAYS,
        "kmeans": kmeans_dask.WAYS,
        "csvm": csvm_dask.WAYS,
        "knn": knn_dask.WAYS,
    },
)
"""Loaded by :mod:`.loading`."""
