"""Measure building and querying of nearest-neighbour trees, without a cluster.

Everything runs in one thread of this process.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import psutil
from threadpoolctl import threadpool_limits

from spliter_apps.neighbors.kernel import Tree, build_tree, nearest
from spliter_apps.neighbors.metric import Search
from spliter_experiments.compare.data.sources import GeneratedPoints
from spliter_experiments.compare.workloads.knn import ALGORITHM
from spliter_experiments.evaluation.bench import rounds_of
from spliter_experiments.evaluation.plan import PlannedRun
from spliter_experiments.evaluation.schema import NeighborsParameters, Scenario
from spliter_experiments.harness.console import Listener
from spliter_experiments.harness.memory import held_by
from spliter_experiments.harness.runner import Answer, Bench, Contender, Judge, Measurement


def in_process(
    scenario: Scenario, runs: Sequence[PlannedRun], address: str | None, listen: Listener
) -> Iterator[tuple[PlannedRun, Measurement]]:
    """Run the runs of one stand in this process; `address` is ignored."""
    first, asked = runs[0], scenario.parameters
    assert isinstance(asked, NeighborsParameters)
    start = time.perf_counter()
    rows = GeneratedPoints(first.rows + first.queries, asked.dims, first.seed)
    points, queries = rows.read(0, first.rows), rows.read(first.rows, rows.rows)
    numbers = np.arange(first.rows)
    init = {"init": time.perf_counter() - start}

    def fit() -> Tree:
        return build_tree(points, numbers, Search(ALGORITHM))

    tree = fit()

    def query() -> Answer:
        nearest(tree, queries, asked.neighbors)
        return Answer(None)

    contenders = {
        "fit": Contender("fit", lambda: Answer(fit()), on_cluster=False),
        "kneighbors": Contender("kneighbors", query, on_cluster=False),
    }
    # The two compute different things, so there are no answers to compare.
    bench = Bench(Judge(lambda _, __: True), memory=held_by([psutil.Process()]))
    with threadpool_limits(1):
        for run, found in rounds_of(bench, contenders, runs, listen):
            yield run, replace(found, phases=init)
