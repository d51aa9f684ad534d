"""Run the runs of one stand: start the cluster and load the data once, then measure in rounds.

Clusters, ways and counters come from ``spliter compare``, the rounds from the harness.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, TypeAlias

from spliter_experiments.compare.data.blocks import cut_rows
from spliter_experiments.compare.data.datasets import InputChoice
from spliter_experiments.compare.engines.engine import ClusterChoice, Engine, EngineKind
from spliter_experiments.compare.engines.loading import load_engine
from spliter_experiments.compare.registry import ways_of
from spliter_experiments.compare.workloads.csvm import CascadeSvm
from spliter_experiments.compare.workloads.histogram import Histogram
from spliter_experiments.compare.workloads.kmeans import KMeans
from spliter_experiments.compare.workloads.knn import Neighbors
from spliter_experiments.compare.workloads.workload import App, Site, loaded
from spliter_experiments.evaluation.plan import PlannedRun
from spliter_experiments.evaluation.schema import (
    CascadeParameters,
    HistogramParameters,
    KMeansParameters,
    Scenario,
)
from spliter_experiments.harness.console import Listener
from spliter_experiments.harness.errors import ClusterError
from spliter_experiments.harness.memory import held_by_children, held_by_workers
from spliter_experiments.harness.runner import Bench, Contender, Judge, Measurement, run_rounds

JOIN_SECONDS = 180
"""Maximum wait for workers to join a cluster that was not started here."""

SPLITS = 3
"""Number of timed splits per stand; the median is recorded."""


Measure: TypeAlias = Callable[
    [Scenario, Sequence[PlannedRun], str | None, Listener],
    Iterator[tuple[PlannedRun, Measurement]],
]
"""Runs the runs of one stand, on the cluster at an address or a new one; yields each."""


def on_cluster(
    scenario: Scenario, runs: Sequence[PlannedRun], address: str | None, listen: Listener
) -> Iterator[tuple[PlannedRun, Measurement]]:
    """Run the runs of one stand on a cluster."""
    first = runs[0]
    kind, app = load_engine(first.engine), app_of(scenario, first)
    choice = InputChoice(None, None, first.rows, scenario.parameters.dims, first.seed)
    with ExitStack() as stack:
        dataset = stack.enter_context(app.open(choice))
        app.check(dataset)
        listen.step(f"{first.stand}: starting the cluster", 0)
        cluster = cluster_of(kind, first, address)
        engine = stack.enter_context(kind.connect(cluster))
        _await_workers(engine, first, cluster.workers)
        meter = stack.enter_context(engine.meter())
        listen.step(f"{first.stand}: loading {first.blocks} blocks", 0)
        row_chunks = cut_rows(dataset.points.rows, first.blocks)
        data = stack.enter_context(loaded(engine, dataset, row_chunks))
        problem, ways = app.pose(data.site), ways_of(kind, type(app)).run
        apart = {"init": data.init_seconds}
        splitting = _split_seconds(data.site)
        held = held_by_children() if address is None else _held_elsewhere(engine)
        bench = Bench(Judge(app.same), meter.reading, data.resting.wait, held)

        def contender(run: PlannedRun) -> Contender:
            return Contender(run.configuration, lambda: ways[run.way](data.site, problem))

        for run, found in rounds_of(
            bench, {run.configuration: contender(run) for run in runs}, runs, listen
        ):
            own = {"split": splitting} if run.way.startswith("spliter") else {}
            yield run, replace(found, phases={**found.phases, **apart, **own})


def cluster_of(kind: EngineKind, run: PlannedRun, address: str | None) -> ClusterChoice:
    """Return the cluster that a run needs."""
    workers = run.nodes if kind.node_is_worker else run.workers
    return ClusterChoice(address, workers=workers, threads=run.cores // workers)


def rounds_of(
    bench: Bench,
    contenders: Mapping[str, Contender],
    runs: Sequence[PlannedRun],
    listen: Listener,
) -> Iterator[tuple[PlannedRun, Measurement]]:
    """Run the runs of one stand, one round per repetition."""
    planned = {(run.repetition, str(run.configuration)): run for run in runs}
    rounds: dict[int, list[str]] = {}
    for repetition, configuration in planned:
        rounds.setdefault(repetition, []).append(configuration)
    stand = runs[0].stand
    found = run_rounds(
        bench,
        list(contenders.values()),
        rounds,
        seed=f"{stand} {runs[0].seed}",
        step=lambda name, _: listen.step(f"{stand}: {name}", 0),
    )
    for one in found:
        yield planned[one.round, one.way], one


def app_of(scenario: Scenario, run: PlannedRun) -> App[Any]:
    """Return the ``spliter compare`` app of a scenario."""
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
    """Wait until this number of workers has joined the cluster."""
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
