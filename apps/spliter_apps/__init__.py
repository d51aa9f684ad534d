"""Applications written against SplIter alone; they know no engine.

Each is a loop that splits, in a module of its own name, around numerics that know nothing of
it. The histogram needs NumPy; the estimators follow scikit-learn's interface and need it:
``pip install 'pyspliter[apps]'``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from spliter_apps.histogram import histogramdd

if TYPE_CHECKING:
    from spliter_apps.kmeans import KMeans
    from spliter_apps.neighbors import (
        KNeighborsClassifier,
        KNeighborsRegressor,
        NearestNeighbors,
        RadiusNeighborsClassifier,
        RadiusNeighborsRegressor,
    )
    from spliter_apps.svm import CascadeSVM

__all__ = [
    "CascadeSVM",
    "KMeans",
    "KNeighborsClassifier",
    "KNeighborsRegressor",
    "NearestNeighbors",
    "RadiusNeighborsClassifier",
    "RadiusNeighborsRegressor",
    "histogramdd",
]

_MODULES = {
    "CascadeSVM": "svm",
    "KMeans": "kmeans",
    "KNeighborsClassifier": "neighbors",
    "KNeighborsRegressor": "neighbors",
    "NearestNeighbors": "neighbors",
    "RadiusNeighborsClassifier": "neighbors",
    "RadiusNeighborsRegressor": "neighbors",
}
"""Where each estimator is: imported on first use, as scikit-learn may not be there."""


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
