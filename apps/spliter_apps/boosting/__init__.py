"""What distributed boosting libraries need of distributed data, and XGBoost trained on it.

XGBoost's and LightGBM's modules for Dask each put together, by hand, which rows are at which
worker, with their labels, weights and queries. :func:`colocate` is that step by itself, for any
engine. :func:`train_xgboost` goes on from there.
"""

from __future__ import annotations

from spliter_apps.boosting.colocated import Colocated, LocalRows, colocate
from spliter_apps.boosting.xgboost_training import (
    TrainedBooster,
    TrainersMissingError,
    train_xgboost,
)

__all__ = [
    "Colocated",
    "LocalRows",
    "TrainedBooster",
    "TrainersMissingError",
    "colocate",
    "train_xgboost",
]
