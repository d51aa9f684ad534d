"""Run the runs of one stand: the cluster and the data are there once, and the runs interleave.

Clusters, ways, counters and the comparison of answers are those of ``spliter compare``; here is
what a scenario adds: which runs there are still to do, and what is noted of each.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from spliter import split
from spliter_experiments.compare.comparison import App, Listener, Site
from spliter_experiments.compare.data.blocks import NO_LABELS, cut_rows, no_points
from spliter_experiments.compare.data.datasets import InputChoice
from spliter_experiments.compare.engines.engine import ClusterChoice, Engine
from spliter_experiments.compare.engines.loading import load_engine
from spliter_experiments.compare.engines.placement import Placement
from spliter_experiments.compare.workloads.csvm import CascadeSvm
from spliter_experiments.compare.workloads.histogram import Histogram
from spliter_experiments.compare.workloads.kmeans import KMeans
from spliter_experiments.compare.workloads.knn import Neighbors
from spliter_experiments.evaluation.plan import PlannedRun
from spliter_experiments.evaluation.schema import (
    CascadeParameters,
    HistogramParameters,
    KMeansParameters,
    Scenario,
)
from spliter_experiments.harness.errors import ClusterError
from spliter_experiments.harness.memory import held_by_children, held_by_workers, watched
from spliter_experiments.harness.runner import Contender, Judge, Measurement, measure

JOIN_SECONDS = 180
"""How long workers may take to join a cluster that is not started here."""

SPLITS = 3
"""How often a split is timed at a stand."""


@dataclass(frozen=True)
class Measured:
    """What a run took.

    Parameters
    ----------
    run : PlannedRun
        Which one.
    position : int
        Its place among the runs of the stand.
    seconds, init_seconds : float
        Of the run, and of loading the data.
    split_seconds, rechunk_seconds : float or None
        Parts of it, where it has them.
    tasks, nbytes, peak : int or None
        Tasks, bytes from worker to worker, most memory; None where nothing tells.
    """

    run: PlannedRun
    position: int
    seconds: float
    init_seconds: float
    split_seconds: float | None = None
    rechunk_seconds: float | None = None
    tasks: int | None = None
    nbytes: int | None = None
    peak: int | None = None


class Bench(Protocol):
    """Runs the runs of one stand, and tells of each as soon as it has run."""

    def __call__(
        self, scenario: Scenario, runs: Sequence[PlannedRun], address: str | None, listen: Listener
    ) -> Iterator[Measured]:
        """Run them.

        Parameters
        ----------
        scenario : Scenario
            What they are of.
        runs : sequence of PlannedRun
            Of one stand.
        address : str or None
            Where the user's cluster is; None to start one.
        listen : Listener
            Told what is done.
        """


@dataclass(frozen=True)
class _Scene:
    """What the runs of a stand have in common."""

    engine: Engine
    site: Site[Engine]
    problem: Any
    ways: Mapping[str, Callable[[Any, Any], Any]]
    reading: Callable[[], Any]
    rest: Callable[[], None]
    held: Callable[[], int | None]
    init_seconds: float
    split_seconds: float
    judge: Judge = field(repr=False)


def on_cluster(
    scenario: Scenario, runs: Sequence[PlannedRun], address: str | None, listen: Listener
) -> Iterator[Measured]:
    """Run the runs of one stand on a cluster, after each configuration has run once unmeasured.

    Raises
    ------
    ExperimentError
        If the cluster cannot be used, or two configurations disagree.
    """
    with ExitStack() as stack:
        scene = _set_up(stack, scenario, runs[0], address, listen)
        contenders = {run.way: Contender(run.way, _call(scene, run)) for run in runs}
        for way, contender in contenders.items():
            listen.step(f"{runs[0].stand}: warming up {way}", 0)
            _measured(scene, contender)
        for position, run in enumerate(interleaved(runs)):
            listen.step(f"{run.stand}: {run.configuration}", 0)
            with watched(scene.held) as peak:
                found = _measured(scene, contenders[run.way])
            yield Measured(
                run=run,
                position=position,
                seconds=found.seconds,
                init_seconds=scene.init_seconds,
                split_seconds=scene.split_seconds if run.way.startswith("spliter") else None,
                rechunk_seconds=found.phases.get("rechunk"),
                tasks=found.tasks,
                nbytes=found.nbytes,
                peak=peak.nbytes,
            )


def interleaved(runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Order runs so that every round has each configuration once, in an order shuffled anew.

    Examples
    --------
    >>> from spliter_experiments.evaluation import load_scenario, plan_runs
    >>> runs = interleaved(plan_runs(load_scenario("9"), "laptop", repetitions=2, nodes=[1]))
    >>> [run.repetition for run in runs]
    [1, 1, 1, 2, 2, 2]
    """
    order = random.Random(f"{runs[0].stand} {runs[0].seed}") if runs else random.Random()
    shuffled = order.sample(runs, len(runs))
    return sorted(shuffled, key=lambda run: run.repetition)


def app_of(scenario: Scenario, run: PlannedRun) -> App[Any]:
    """Return the app that a scenario is about, as ``spliter compare`` has it."""
    asked = scenario.parameters
    if isinstance(asked, HistogramParameters):
        return Histogram(asked.bins)
    if isinstance(asked, KMeansParameters):
        return KMeans(asked.clusters, asked.iterations, run.seed)
    if isinstance(asked, CascadeParameters):
        return CascadeSvm(None, asked.iterations, 0.0)
    return Neighbors(asked.neighbors, run.queries)


def _set_up(
    stack: ExitStack, scenario: Scenario, run: PlannedRun, address: str | None, listen: Listener
) -> _Scene:
    kind = load_engine(run.engine)
    app = app_of(scenario, run)
    choice = InputChoice(None, None, None, run.rows, scenario.parameters.dims, run.seed)
    dataset = stack.enter_context(app.open(choice))
    app.check(dataset)
    listen.step(f"{run.stand}: starting the cluster", 0)
    engine = stack.enter_context(
        kind.connect(ClusterChoice(address, workers=run.workers, threads=run.threads))
    )
    _await_workers(engine, run, run.nodes if kind.node_is_worker else run.workers)
    meter = stack.enter_context(engine.meter())
    row_chunks = cut_rows(dataset.points.rows, run.blocks)
    listen.step(f"{run.stand}: loading {run.blocks} blocks", 0)

    def load(source: Any, like: Any) -> Any:
        return stack.enter_context(engine.persisted(source, row_chunks, like, Placement.EVEN))

    start = time.perf_counter()
    array = load(dataset.points, no_points(dataset.points))
    labels = None if dataset.labels is None else load(dataset.labels, NO_LABELS)
    init_seconds = time.perf_counter() - start
    collections = [array] if labels is None else [array, labels]
    site = Site(engine, dataset, array, labels)
    return _Scene(
        engine=engine,
        site=site,
        problem=app.pose(site),
        ways=kind.ways[app.name].run,
        reading=meter.reading,
        rest=engine.rest(collections).wait,
        held=held_by_children() if address is None else _held_elsewhere(engine),
        init_seconds=init_seconds,
        split_seconds=_split_seconds(collections),
        judge=Judge(app.same),
    )


def _call(scene: _Scene, run: PlannedRun) -> Callable[[], Any]:
    site = scene.site
    if run.configuration == "rechunk" and run.blocks < run.cores:
        # To rechunk to one chunk per core would cut the blocks, of which there are few, smaller.
        site = replace(site, engine=one_chunk_per_worker(site.engine))
    return lambda: scene.ways[run.way](site, scene.problem)


def one_chunk_per_worker(engine: Any) -> Engine:
    """Return a Dask engine that says it has as many cores as workers, to rechunk by."""
    from spliter_experiments.compare.engines.dask_engine import DaskEngine

    class OnePerWorker(DaskEngine):
        """Told apart by nothing else."""

        @property
        def cores(self) -> int:
            return self.workers

    return OnePerWorker(engine.client)


def _measured(scene: _Scene, contender: Contender) -> Measurement:
    scene.rest()
    found, answer = measure(contender, 1, scene.reading)
    scene.judge.hear({contender.name: answer})
    return found


def _split_seconds(collections: Sequence[Any]) -> float:
    """Time a split, apart from the runs, which do not tell how long theirs takes."""
    taken = []
    for _ in range(SPLITS):
        start = time.perf_counter()
        with split(*collections):
            taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def _await_workers(engine: Engine, run: PlannedRun, workers: int) -> None:
    """Wait for so many workers, which join a cluster one by one.

    Raises
    ------
    ClusterError
        If they do not all come, or are not those that the run is for.
    """
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
