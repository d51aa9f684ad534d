"""Colocate distributed rows for boosting libraries, and train XGBoost on them.

XGBoost's and LightGBM's modules for Dask each collect the rows of every worker with their labels,
weights and queries. :func:`colocate` is that step by itself, for any engine;
:func:`train_xgboost` builds on it.
"""

from __future__ import annotations

from spliter_apps.boosting.colocated import ColocatedCollections, colocate
from spliter_apps.boosting.local_rows import LocalRows
from spliter_apps.boosting.xgboost_training import (
    TrainedBooster,
    TrainersMissingError,
    train_xgboost,
)

__all__ = [
    "ColocatedCollections",
    "LocalRows",
    "TrainedBooster",
    "TrainersMissingError",
    "colocate",
    "train_xgboost",
]
