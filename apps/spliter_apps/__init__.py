"""Applications built on SplIter that run on any backend.

The loops over partitions are in modules of their own, apart from the numerical kernels. The
histogram needs only NumPy; the estimators follow scikit-learn's interface and need it:
``pip install 'pyspliter[apps]'``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from spliter_apps.histogram import histogramdd

if TYPE_CHECKING:
    from spliter_apps.kmeans import KMeans
    from spliter_apps.linear import PCA, LinearRegression, Ridge
    from spliter_apps.neighbors import (
        KNeighborsClassifier,
        KNeighborsRegressor,
        NearestNeighbors,
        RadiusNeighborsClassifier,
        RadiusNeighborsRegressor,
    )
    from spliter_apps.svm import CascadeSVM

__all__ = [
    "PCA",
    "CascadeSVM",
    "KMeans",
    "KNeighborsClassifier",
    "KNeighborsRegressor",
    "LinearRegression",
    "NearestNeighbors",
    "RadiusNeighborsClassifier",
    "RadiusNeighborsRegressor",
    "Ridge",
    "histogramdd",
]

_MODULES = {
    "CascadeSVM": "svm",
    "KMeans": "kmeans",
    "KNeighborsClassifier": "neighbors",
    "KNeighborsRegressor": "neighbors",
    "LinearRegression": "linear",
    "NearestNeighbors": "neighbors",
    "RadiusNeighborsClassifier": "neighbors",
    "PCA": "linear",
    "RadiusNeighborsRegressor": "neighbors",
    "Ridge": "linear",
}
"""Module of each estimator, imported on first use: scikit-learn may not be installed."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{name} is not usable here: {error}; pip install 'pyspliter[apps]'"
        ) from error
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
