"""The workloads of ``spliter compare``, with their lines in the help, and its engines.

They are imported when they are run: some need packages that take seconds to import.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

from spliter_experiments.compare.engines.engine import EngineKind
from spliter_experiments.harness.errors import ClusterError, OptionError
from spliter_experiments.harness.workload import Workload

WORKLOADS: Final = {
    "sum": (
        "compare.workloads.sums:Sum",
        "Add up all values every way: next to no work, so that it shows what tasks cost.",
    ),
    "histogram": (
        "compare.workloads.histogram:Histogram",
        "Compute the same histogram every way, and show what each took.",
    ),
    "kmeans": (
        "compare.workloads.kmeans:KMeans",
        "Find the same clusters every way, and show what each took.",
    ),
    "csvm": (
        "compare.workloads.csvm:CascadeSvm",
        "Train the same classifier every way, and show what each took.",
    ),
    "knn": (
        "compare.workloads.knn:Neighbors",
        "Find the same neighbours every way, and show what each took.",
    ),
    "programs": (
        "compare.workloads.programs:Programs",
        "Run programs of Dask's own methods as they are, and with one task per partition.",
    ),
    "pipeline": (
        "pipelines.workload:Pipeline",
        "Run programs of NumPy, pandas and other libraries as they are, and as pipelines.",
    ),
    "ahead": (
        "ahead.workload:Ahead",
        "Read records that only the program can name every way, and show what each took.",
    ),
    "layout": ("layouts.workload:Layout", "Pack and unpack data that is not contiguous every way."),
}
"""Module and class, and help line, of each workload."""


def load_workload(name: str) -> type[Workload]:
    """Import a workload.

    >>> load_workload("sum").name
    'sum'
    """
    found: type[Workload] = _load(WORKLOADS[name][0])
    return found


MODULES: Final = {
    "dask": "compare.engines.dask_engine:ENGINE",
    "dataclay": "compare.engines.dataclay_engine:ENGINE",
    "compss": "compare.engines.compss_launch:ENGINE",
    "compss+dataclay": "compare.engines.compss_launch:WITH_DATACLAY",
    "ray": "compare.engines.ray_engine:ENGINE",
}
"""Module and kind of each engine."""


def load_engine(name: str) -> EngineKind:
    """Import an engine.

    >>> load_engine("dask").name
    'dask'
    """
    if name not in MODULES:
        raise OptionError(f"--backend: there is no {name!r}; take one of {', '.join(MODULES)}")
    try:
        found: EngineKind = _load(MODULES[name])
    except ImportError as error:
        extras = name.replace("+", ",")
        raise ClusterError(
            f'--backend {name} cannot be used here: {error}; pip install "pyspliter[{extras}]"'
        ) from error
    return found


def _load(location: str) -> Any:
    module, _, attribute = location.partition(":")
    return getattr(importlib.import_module(f"spliter_experiments.{module}"), attribute)
