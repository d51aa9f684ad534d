"""Expand a scenario into the list of its runs, with the resources and the command of each.

A *run* is one repetition of one configuration at one place of the figure. A *stand* is the set of
runs that differ in configuration and repetition only: the cluster is started and the data are
loaded once, and the runs are interleaved.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spliter_experiments.compare.registry import MODULES, load_engine, load_workload
from spliter_experiments.compare.workloads.app import ways_of
from spliter_experiments.evaluation.catalog import file_stem
from spliter_experiments.evaluation.schema import Configuration, Scenario, Size, SizeName
from spliter_experiments.harness.errors import PlanError
from spliter_experiments.harness.records import digest_of

PROCESS = "process"
"""Stands for the engine of kernels measured in this process."""

WAYS: Mapping[Configuration, str] = {
    "baseline": "per-block",
    "baseline-paper": "per-block-paper",
    "rechunk": "rechunk-p2p",
    "spliter": "spliter",
    "materialized": "spliter-materialized",
    "fit": "fit",
    "kneighbors": "kneighbors",
}
"""Name of each configuration in ``spliter compare``."""

MOST_RUNS = 100_000
"""Maximum size of a plan, many times the paper's evaluation; guards memory against typos."""

RECORDED = (
    *("figure", "app", "size", "engine", "configuration", "way", "nodes", "workers", "threads"),
    *("blocks", "blocks_per_core", "rows", "queries", "seed", "x"),
)
"""Attributes of a planned run that are columns of its record."""

FLOAT_BYTES = 8

WORKER_BYTES = 300 * 10**6
"""Memory of a worker without data: interpreter and libraries."""

COPIES: Mapping[Configuration, float] = {"rechunk": 2.0, "materialized": 2.0}
"""Peak memory of a configuration as a multiple of the data; 1.5 for the others."""

START_SECONDS: Mapping[SizeName, float] = {"full": 20.0, "laptop": 6.0}
"""Estimated time to start a cluster, import libraries in its workers, and load the data."""


@dataclass(frozen=True)
class PlannedRun:
    """A run of a plan; `RECORDED` are columns of its record.

    Workers, blocks, rows, queries and their blocks are those on all nodes. The id is the same in
    every plan of the scenario. The estimate of the seconds is from recorded runs, else from the
    paper, else from the scenario, with a share of the time to start the cluster and load the data;
    that of the memory is per node. `repetitions` is None unless their number differs from the
    scenario's.
    """

    id: str
    scenario: str
    figure: str
    app: str
    size: SizeName
    engine: str
    configuration: Configuration
    way: str
    nodes: int
    workers: int
    threads: int
    blocks: int
    blocks_per_node: int
    rows: int
    queries: int
    query_blocks: int
    repetition: int
    seed: int
    x: float
    memory_bytes: int
    estimated_seconds: float
    repetitions: int | None = None

    @property
    def cores(self) -> int:
        return self.workers * self.threads

    @property
    def blocks_per_core(self) -> float:
        """Blocks per thread, the paper's measure of fragmentation."""
        return self.blocks / self.cores

    @property
    def stand(self) -> str:
        return (
            f"{file_stem(self.figure)}-{self.size}-{self.engine}-n{self.nodes}"
            f"-b{self.blocks_per_node}"
        )

    def columns(self) -> dict[str, Any]:
        """Return the columns of the run's record that are known in advance."""
        return {"run_id": self.id} | {name: getattr(self, name) for name in RECORDED}


def command_of(runs: Sequence[PlannedRun], results_dir: str | Path) -> list[str]:
    """Return one command that executes runs of one scenario, size and engine.

    The caller adds the cluster's address, as ``--address ADDRESS``.

    >>> from spliter_experiments.evaluation import load_scenario, plan_runs
    >>> run = plan_runs(load_scenario("9"), "laptop")[0]
    >>> " ".join(command_of([run], "out"))
    'spliter experiment run 9 --size laptop --backend dask --results out --only fig09-...'
    """
    kinds = {(run.scenario, run.size, run.engine, run.repetitions) for run in runs}
    if len(kinds) != 1:
        raise PlanError(
            f"a command does runs of one scenario, size and engine; these are of {len(kinds)}"
        )
    ((scenario, size, engine, repetitions),) = kinds
    only = [word for run in runs for word in ("--only", run.id)]
    chosen = [] if engine == PROCESS else ["--backend", engine]
    if repetitions is not None:
        chosen += ["--repetitions", str(repetitions)]
    return [
        *("spliter", "experiment", "run", scenario, "--size", size),
        *(*chosen, "--results", str(results_dir), *only),
    ]


def plan_runs(
    scenario: Scenario,
    size: SizeName,
    *,
    engine: str = "dask",
    configurations: Sequence[str] | None = None,
    repetitions: int | None = None,
    nodes: Sequence[int] | None = None,
    called: str | None = None,
    measured: Callable[[PlannedRun], float | None] = lambda _: None,
) -> list[PlannedRun]:
    """Return all runs of a scenario in a size, in the order of the figure.

    The engine is ignored for kernels, which run in this process. `configurations`, `repetitions`
    and `nodes` replace the scenario's. `called` is the scenario argument of the command, if it is
    no figure of the paper; `measured` returns the recorded seconds of such runs, or None.

    >>> from spliter_experiments.evaluation import load_scenario, plan_runs
    >>> runs = plan_runs(load_scenario("9"), "full")
    >>> len(runs), max(run.nodes for run in runs), max(run.blocks for run in runs)
    (150, 16, 36864)
    """
    if size not in scenario.sizes:
        raise PlanError(
            f"figure {scenario.figure} has no size {size!r}; take one of "
            f"{', '.join(scenario.sizes)}"
        )
    asked = scenario.sizes[size]
    engine = PROCESS if scenario.kind == "kernel" else engine
    chosen = _configurations(scenario, engine, configurations)
    counts = _nodes(scenario, asked, nodes)
    times = asked.repetitions if repetitions is None else repetitions
    count_of_runs = len(counts) * len(asked.cuts()) * len(chosen) * times
    if count_of_runs > MOST_RUNS:
        raise PlanError(f"that is {count_of_runs:,} runs, more than the {MOST_RUNS:,} of a plan")
    return [
        replace(
            _run(scenario, size, engine, called, configuration, count, cut, repetition, measured),
            repetitions=repetitions,
        )
        for count in counts
        for cut in asked.cuts()
        for configuration in chosen
        for repetition in range(1, times + 1)
    ]


def plan_digest(scenario: Scenario, size: SizeName) -> str:
    """Hash the parameters that determine what a run computes; different results must not be mixed.

    The paper's numbers and the number of runs are not part of the hash.
    """
    asked = scenario.sizes[size].model_dump(
        mode="json", exclude={"repetitions", "visits", "seconds_per_run", "chosen", "nodes"}
    )
    computed = {
        "figure": scenario.figure,
        "kind": scenario.kind,
        "seed": scenario.seed,
        "parameters": scenario.parameters.model_dump(mode="json"),
        "size": asked,
    }
    return digest_of(computed)


def stands_of(runs: Sequence[PlannedRun]) -> dict[str, list[PlannedRun]]:
    found: dict[str, list[PlannedRun]] = {}
    for run in runs:
        found.setdefault(run.stand, []).append(run)
    return found


def visits_of(runs: Sequence[PlannedRun], visits: int, seed: int) -> list[list[PlannedRun]]:
    """Return the stands in execution order, visit by visit.

    Each visit has a newly shuffled order, so that a slower or busier machine affects all places of
    the axis alike.
    """
    order = random.Random(seed)
    found = []
    for visit in range(visits):
        now = [run for run in runs if (run.repetition - 1) % visits == visit]
        stands = list(stands_of(now).values())
        found += order.sample(stands, len(stands))
    return found


def _configurations(
    scenario: Scenario, engine: str, asked: Sequence[str] | None
) -> list[Configuration]:
    unknown = [name for name in asked or () if name not in scenario.configurations]
    if unknown or (asked is not None and not asked):
        raise PlanError(
            f"figure {scenario.figure} has no configuration {', '.join(unknown) or '(none)'}; "
            f"take some of {', '.join(scenario.configurations)}"
        )
    chosen = [name for name in scenario.configurations if asked is None or name in asked]
    if engine == PROCESS:
        return chosen
    if engine not in MODULES:
        raise PlanError(f"there is no backend {engine!r}; take one of {', '.join(MODULES)}")
    app: Any = load_workload(scenario.parameters.app)
    there = ways_of(load_engine(engine), app).run
    missing = [name for name in chosen if WAYS[name] not in there]
    if missing and asked is not None:
        raise PlanError(f"{engine} has no {', '.join(missing)} of {scenario.parameters.app}")
    return [name for name in chosen if name not in missing]


def _nodes(scenario: Scenario, size: Size, asked: Sequence[int] | None) -> list[int]:
    unknown = [count for count in asked or () if count not in size.nodes]
    if unknown:
        raise PlanError(
            f"figure {scenario.figure} is not measured on {', '.join(map(str, unknown))} nodes; "
            f"take some of {', '.join(map(str, size.nodes))}"
        )
    return [count for count in size.nodes if asked is None or count in asked]


def _run(
    scenario: Scenario,
    size: SizeName,
    engine: str,
    called: str | None,
    configuration: Configuration,
    nodes: int,
    blocks_per_node: int,
    repetition: int,
    measured: Callable[[PlannedRun], float | None],
) -> PlannedRun:
    asked = scenario.sizes[size]
    rows = asked.rows(blocks_per_node)
    stem = file_stem(scenario.figure)
    x = {
        "nodes": nodes,
        "blocks_per_core": blocks_per_node / asked.cores_per_node,
        "blocks_per_node": blocks_per_node,
        "rows": rows,
    }[scenario.x]
    run = PlannedRun(
        id=f"{stem}-{size}-{engine}-{configuration}-n{nodes}-b{blocks_per_node}-r{repetition}",
        scenario=called or scenario.figure,
        figure=scenario.figure,
        app=scenario.parameters.app,
        size=size,
        engine=engine,
        configuration=configuration,
        way=WAYS[configuration],
        nodes=nodes,
        workers=nodes * asked.workers_per_node,
        threads=asked.threads_per_worker,
        blocks=nodes * blocks_per_node,
        blocks_per_node=blocks_per_node,
        rows=nodes * rows,
        queries=nodes * (asked.queries_per_node or 0),
        query_blocks=nodes * (asked.query_blocks_per_node or 0),
        repetition=repetition,
        seed=scenario.seed,
        x=float(x),
        memory_bytes=_memory(scenario, asked, configuration, rows),
        estimated_seconds=0.0,
    )
    known = measured(run)
    seconds = known if known is not None else _expected(scenario, size, run)
    # The runs of a stand share its start, once per visit.
    start = 0.0 if engine == PROCESS else START_SECONDS[size] * asked.visits
    start /= asked.repetitions * len(scenario.configurations)
    return replace(run, estimated_seconds=round(seconds + start, 2))


def _memory(scenario: Scenario, size: Size, configuration: Configuration, rows: int) -> int:
    points = rows + (size.queries_per_node or 0)
    data = points * scenario.parameters.dims * FLOAT_BYTES
    return round(data * COPIES.get(configuration, 1.5)) + size.workers_per_node * WORKER_BYTES


def _expected(scenario: Scenario, size: SizeName, run: PlannedRun) -> float:
    """Return the paper's seconds if the size is the paper's, else the scenario's estimate."""
    paper, known = scenario.paper, {}
    if size == "full" and run.x in paper.x:
        at = paper.x.index(run.x)
        known = {name: seconds[at] for name, seconds in (paper.dask | paper.process).items()}
    if known:
        return known.get(run.configuration, statistics.fmean(known.values()))
    return scenario.sizes[size].seconds_per_run * max(1.0, run.nodes / 2)
