"""Open the bench of a stand: start the cluster, load the data, and prepare the ways.

Clusters, ways and counters come from ``spliter compare``. Kernels run in this process.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import psutil
from threadpoolctl import threadpool_limits

from spliter_apps.neighbors.kernel import Tree, build_tree, nearest
from spliter_apps.neighbors.metric import Search
from spliter_experiments.compare.data.datasets import InputChoice
from spliter_experiments.compare.data.sources import GeneratedPoints, cut_rows
from spliter_experiments.compare.engines.engine import ClusterChoice, Engine, EngineKind
from spliter_experiments.compare.registry import load_engine
from spliter_experiments.compare.workloads.app import App, Solver, ways_of
from spliter_experiments.compare.workloads.csvm import CascadeSvm
from spliter_experiments.compare.workloads.histogram import Histogram
from spliter_experiments.compare.workloads.kmeans import KMeans
from spliter_experiments.compare.workloads.knn import ALGORITHM, Neighbors
from spliter_experiments.compare.workloads.site import Site, loaded
from spliter_experiments.evaluation.plan import PlannedRun
from spliter_experiments.evaluation.schema import (
    CascadeParameters,
    HistogramParameters,
    KMeansParameters,
    NeighborsParameters,
    Scenario,
)
from spliter_experiments.harness.console import Listener
from spliter_experiments.harness.errors import ClusterError
from spliter_experiments.harness.memory import held_by, held_by_children, held_by_workers
from spliter_experiments.harness.runner import Answer, Bench, Check, Way

JOIN_SECONDS = 180
"""Maximum wait for workers to join a cluster that was not started here."""

SPLITS = 3
"""Number of timed splits per stand; the median is recorded."""

OpenBench: TypeAlias = Callable[
    [Scenario, Sequence[PlannedRun], str | None, Listener], AbstractContextManager[Bench]
]
"""Opens the bench of the runs of one stand, on the cluster at an address or a new one; its ways are
the configurations."""


@contextmanager
def on_cluster(
    scenario: Scenario, runs: Sequence[PlannedRun], address: str | None, listen: Listener
) -> Iterator[Bench]:
    first = runs[0]
    kind, app = load_engine(first.engine), app_of(scenario, first)
    choice = InputChoice(None, None, first.rows, scenario.parameters.dims, first.seed)
    with ExitStack() as stack:
        dataset = app.open(choice)
        app.check(dataset)
        listen.step(f"{first.stand}: starting the cluster", 0)
        cluster = cluster_of(kind, first, address)
        engine = stack.enter_context(kind.connect(cluster))
        _await_workers(engine, first, cluster.workers)
        meter = stack.enter_context(engine.meter())
        listen.step(f"{first.stand}: loading {first.blocks} blocks", 0)
        row_chunks = cut_rows(dataset.points.rows, first.blocks)
        data = stack.enter_context(loaded(engine, dataset, row_chunks))
        problem, solvers = app.pose(data.site), ways_of(kind, type(app)).run
        splitting = _split_seconds(data.site)

        def way(run: PlannedRun) -> Way:
            own = {"split": splitting} if run.way.startswith("spliter") else {}
            return Way(
                run.configuration, lambda: _solved(solvers[run.way], data.site, problem, own)
            )

        yield Bench(
            {run.configuration: way(run) for run in runs},
            Check(app.same),
            meter.reading,
            data.idle.wait,
            held_by_children() if address is None else _held_elsewhere(engine),
            {"init": data.init_seconds},
        )


def _solved(solver: Solver, site: Site[Any], problem: Any, own: dict[str, float]) -> Answer:
    """Solve a problem; `own` are seconds that the way itself does not report."""
    answer = solver(site, problem)
    return replace(answer, phases={**answer.phases, **own})


@contextmanager
def in_process(
    scenario: Scenario, runs: Sequence[PlannedRun], address: str | None, listen: Listener
) -> Iterator[Bench]:
    """Open the bench of kernels: building and querying trees in one thread of this process."""
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

    ways = {
        "fit": Way("fit", lambda: Answer(fit()), on_cluster=False),
        "kneighbors": Way("kneighbors", query, on_cluster=False),
    }
    with threadpool_limits(1):
        # The two compute different things, so there are no answers to compare.
        yield Bench(ways, memory=held_by([psutil.Process()]), phases=init)


def cluster_of(kind: EngineKind, run: PlannedRun, address: str | None) -> ClusterChoice:
    workers = run.nodes if kind.node_is_worker else run.workers
    return ClusterChoice(address, workers=workers, threads=run.cores // workers)


def app_of(scenario: Scenario, run: PlannedRun) -> App[Any]:
    asked = scenario.parameters
    if isinstance(asked, HistogramParameters):
        return Histogram(asked.bins)
    if isinstance(asked, KMeansParameters):
        return KMeans(asked.clusters, asked.iterations, run.seed)
    if isinstance(asked, CascadeParameters):
        return CascadeSvm(None, asked.iterations, 0.0)
    return Neighbors(asked.neighbors, run.queries, run.query_blocks)


def _split_seconds(site: Site[Engine]) -> float:
    """Return the median time of a split; the runs do not report the time of theirs."""
    taken = []
    for _ in range(SPLITS):
        start = time.perf_counter()
        with site.split(*site.aligned):
            taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def _await_workers(engine: Engine, run: PlannedRun, workers: int) -> None:
    deadline = time.monotonic() + JOIN_SECONDS
    while engine.workers < workers and time.monotonic() < deadline:
        time.sleep(0.2)
    if (engine.workers, engine.cores) != (workers, run.cores):
        raise ClusterError(
            f"{run.id} is for {workers} workers with {run.cores} threads in all; the cluster "
            f"has {engine.workers} workers and {engine.cores} threads in all"
        )


def _held_elsewhere(engine: Engine) -> Callable[[], int | None]:
    client = getattr(engine, "client", None)
    return (lambda: None) if client is None else held_by_workers(client)
