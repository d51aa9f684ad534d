"""The workloads of ``spliter compare``: where each is defined, and its line in the help.

Workloads are imported when they are run: some need packages that take seconds to import.
"""

from __future__ import annotations

import importlib
from typing import Final

from spliter_experiments.harness.workload import Workload

ROOMS: Final = "spliter_experiments"

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
    "layout": ("layouts.workload:Layout", "Pack and unpack data that is not contiguous every way."),
}
"""Module and class, and help line, of each workload."""


def load_workload(name: str) -> type[Workload]:
    """Import a workload.

    Examples
    --------
    >>> load_workload("sum").name
    'sum'
    """
    module, _, attribute = WORKLOADS[name][0].partition(":")
    found: type[Workload] = getattr(importlib.import_module(f"{ROOMS}.{module}"), attribute)
    return found
