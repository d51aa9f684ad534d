"""What there is to compare on Dask."""

from __future__ import annotations

from spliter_experiments import _csvm_dask, _histogram_dask, _kmeans_dask, _knn_dask, _sum_dask
from spliter_experiments._dask_engine import connect
from spliter_experiments._engine import EngineKind
from spliter_experiments._placement import Placement

ENGINE = EngineKind(
    name="dask",
    address_option="--scheduler",
    placements=frozenset({Placement.EVEN, Placement.CONTIGUOUS, Placement.DASK}),
    connect=connect,
    ways={
        "sum": _sum_dask.WAYS,
        "histogram": _histogram_dask.WAYS,
        "kmeans": _kmeans_dask.WAYS,
        "csvm": _csvm_dask.WAYS,
        "knn": _knn_dask.WAYS,
    },
)
"""Loaded by :mod:`._engines`."""
