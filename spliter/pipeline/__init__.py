"""Run chains of array functions on cache-sized batches, through the unmodified library.

>>> import numpy as np
>>> from spliter.pipeline import options, pipeline
>>> @pipeline
... def distance(x, y):
...     return np.sqrt(x * x + y * y)
>>> with options(threads=2, batch=1000):
...     distance(np.full(5000, 3.0), np.full(5000, 4.0)).sum()
np.float64(25000.0)

The packages, from the last to the first that a call meets::

    _over_split     one task per partition and pass, with the same planner and evaluator
    _running        batches, threads, results, warnings
    _planning       stages of calls that are cut alike
    _capture        lazy values, annotated functions, containers: how calls are captured
    _annotations    how functions of NumPy, SciPy and pandas may be cut
    _calls          calls, values, split types
"""

from __future__ import annotations

from spliter.pipeline._calls.groups import Groups
from spliter.pipeline._calls.reductions import Reduction
from spliter.pipeline._calls.split_types import (
    Axis,
    Generic,
    Rows,
    SplitType,
    broadcast,
    mut,
    unknown,
)
from spliter.pipeline._capture.annotated import splittable
from spliter.pipeline._decorators import lazy, module, pipeline
from spliter.pipeline._explain import explain
from spliter.pipeline._options import options

__all__ = [
    "Axis",
    "Generic",
    "Groups",
    "Reduction",
    "Rows",
    "SplitType",
    "broadcast",
    "explain",
    "lazy",
    "module",
    "mut",
    "options",
    "pipeline",
    "splittable",
    "unknown",
]
