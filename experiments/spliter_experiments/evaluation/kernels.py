"""Measure the kernels of nearest neighbours alone: to build a tree, and to look up in it.

No cluster takes part: one thread of this process does all of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
import psutil
from threadpoolctl import threadpool_limits

from spliter_apps.neighbors.kernel import Tree, build_tree, nearest
from spliter_apps.neighbors.metric import Search
from spliter_experiments.compare.comparison import Listener
from spliter_experiments.compare.data.sources import GeneratedPoints
from spliter_experiments.compare.workloads.knn import ALGORITHM
from spliter_experiments.evaluation.bench import Measured, interleaved
from spliter_experiments.evaluation.plan import PlannedRun
from spliter_experiments.evaluation.schema import NeighborsParameters, Scenario
from spliter_experiments.harness.memory import held_by, watched


def in_process(
    scenario: Scenario, runs: Sequence[PlannedRun], address: str | None, listen: Listener
) -> Iterator[Measured]:
    """Run the runs of one stand here; `address` is not used."""
    first, asked = runs[0], scenario.parameters
    assert isinstance(asked, NeighborsParameters)
    start = time.perf_counter()
    rows = GeneratedPoints(first.rows + first.queries, asked.dims, first.seed)
    points, queries = rows.read(0, first.rows), rows.read(first.rows, rows.rows)
    numbers = np.arange(first.rows)
    init_seconds = time.perf_counter() - start

    def fit() -> Tree:
        return build_tree(points, numbers, Search(ALGORITHM))

    with threadpool_limits(1):
        tree = fit()
        nearest(tree, queries, asked.neighbors)
        for position, run in enumerate(interleaved(runs)):
            listen.step(f"{run.stand}: {run.configuration}", 0)
            with watched(held_by([psutil.Process()])) as peak:
                start = time.perf_counter()
                if run.configuration == "fit":
                    fit()
                else:
                    nearest(tree, queries, asked.neighbors)
                seconds = time.perf_counter() - start
            yield Measured(run, position, seconds, init_seconds, peak=peak.nbytes)
