"""Execute the unfinished runs of a plan, and record each run when it finishes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError, with_config

from spliter_experiments.compare.registry import load_engine
from spliter_experiments.evaluation.bench import OpenBench, cluster_of, in_process, on_cluster
from spliter_experiments.evaluation.catalog import file_stem, parse_scenario, read_scenario
from spliter_experiments.evaluation.plan import (
    PROCESS,
    PlannedRun,
    command_of,
    plan_digest,
    plan_runs,
    visits_of,
)
from spliter_experiments.evaluation.schema import Scenario, SizeName
from spliter_experiments.harness.console import Listener
from spliter_experiments.harness.errors import ClusterError, PlanError, ResultsError
from spliter_experiments.harness.facts import facts
from spliter_experiments.harness.files import clear_partial
from spliter_experiments.harness.records import ResultsFolder, Text, record_of
from spliter_experiments.harness.runner import run_rounds


@with_config(extra="forbid")
@dataclass(frozen=True)
class Request:
    """Runs requested by the user; stored with the results, so that they can be resumed."""

    scenario: Text
    text: str
    size: SizeName
    engine: str
    configurations: tuple[str, ...] | None = None
    nodes: tuple[int, ...] | None = None
    repetitions: int | None = None

    @property
    def parsed(self) -> Scenario:
        return parse_scenario(self.text, self.scenario)

    @property
    def name(self) -> str:
        return f"{file_stem(self.parsed.figure)}-{self.size}-{self.engine}"

    def runs(
        self, measured: Callable[[PlannedRun], float | None] = lambda _: None
    ) -> list[PlannedRun]:
        """Return all requested runs; `measured` returns the seconds of earlier ones, or None."""
        return plan_runs(
            self.parsed,
            self.size,
            engine=self.engine,
            configurations=self.configurations,
            nodes=self.nodes,
            repetitions=self.repetitions,
            called=self.scenario,
            measured=measured,
        )

    def with_runs_of(self, other: Request) -> Request:
        usual = self.parsed.sizes[self.size].repetitions
        times = max(each.repetitions or usual for each in (self, other))
        return replace(
            self,
            configurations=_both(self.configurations, other.configurations),
            nodes=_both(self.nodes, other.nodes),
            repetitions=None if times == usual else times,
        )


def _both(one: tuple[Any, ...] | None, other: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    """Return the items of two tuples; ``None`` stands for all."""
    return None if one is None or other is None else tuple(dict.fromkeys((*other, *one)))


def request_for(scenario: str, size: SizeName, engine: str, **chosen: Any) -> Request:
    """Return a request for a figure, or for a scenario file.

    >>> request_for("fig 9", "laptop", "dask").name
    'fig09-laptop-dask'
    """
    text, _ = read_scenario(scenario)
    found = Request(scenario, text, size, engine, **chosen)
    kernel = found.parsed.kind == "kernel"
    return Request(scenario, text, size, PROCESS if kernel else engine, **chosen)


def requests_in(folder: ResultsFolder) -> list[Request]:
    return [_request(plan, folder.path) for plan in folder.plans()]


_REQUEST = TypeAdapter(Request)


def _request(plan: dict[str, Any], path: Path) -> Request:
    try:
        return _REQUEST.validate_python(plan)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise ResultsError(
            f"{path}: a plan cannot be read ({wrong['loc'][0]}: {wrong['msg']}); remove it and ask "
            "for its runs again"
        ) from error


def keep_request(request: Request, folder: ResultsFolder) -> None:
    """Store a request, with the runs that were requested in the folder before."""
    for kept in requests_in(folder) if folder.has_plan(request.name) else ():
        if kept.name == request.name:
            request = request.with_runs_of(kept)
    folder.keep_plan(request.name, asdict(request))


def pending(request: Request, folder: ResultsFolder, only: Sequence[str] = ()) -> list[PlannedRun]:
    planned = request.runs()
    unknown = [name for name in only if name not in {run.id for run in planned}]
    if unknown:
        raise PlanError(
            f"--only: {request.name} has no run {unknown[0]!r}; `spliter experiment show "
            f"{request.scenario} --size {request.size} --runs` lists them"
        )
    done = folder.done()
    return [run for run in planned if run.id not in done and (not only or run.id in only)]


def run_request(
    request: Request,
    folder: ResultsFolder,
    *,
    only: Sequence[str] = (),
    address: str | None = None,
    listen: Listener | None = None,
    command: str = "",
    open_bench: OpenBench | None = None,
) -> int:
    """Execute the unfinished runs, and return their number.

    Without an address, a cluster is started for every stand. The command is recorded with the
    results. `open_bench` replaces the scenario's own. If a run fails, the finished ones are kept.
    """
    listen = listen or Listener()
    scenario, here = request.parsed, facts()
    digest = plan_digest(scenario, request.size)
    todo = pending(request, folder, only)
    folder.check_fits(scenario.figure, request.size, digest, here)
    # A job that executes some runs of a plan must not overwrite the plan.
    if not only or not folder.has_plan(request.name):
        keep_request(request, folder)
    clear_partial(folder.path)
    opened = open_bench or (in_process if scenario.kind == "kernel" else on_cluster)
    listen.begin(len(todo))
    for runs in visits_of(todo, scenario.sizes[request.size].visits, scenario.seed):
        stand = runs[0].stand
        planned = {(run.repetition, str(run.configuration)): run for run in runs}
        rounds: dict[int, list[str]] = {}
        for repetition, configuration in planned:
            rounds.setdefault(repetition, []).append(configuration)
        with opened(scenario, runs, address, listen) as bench:
            for found in run_rounds(bench, rounds, seed=f"{stand} {runs[0].seed}"):
                run = planned[found.round, found.way]
                folder.append(record_of(found, here, command, plan_digest=digest, **run.columns()))
                listen.step(f"{stand}: {run.configuration}", 1)
    return len(todo)


def run_launched(
    request: Request,
    folder: ResultsFolder,
    *,
    only: Sequence[str] = (),
    address: str | None = None,
    listen: Listener | None = None,
) -> int | None:
    """Execute the unfinished runs, each stand in a command inside the engine's launcher.

    Returns the number of executed runs, or None if the engine needs no launcher. If a command
    fails, the finished runs are kept.
    """
    if request.engine == PROCESS:
        return None
    engine, listen = load_engine(request.engine), listen or Listener()
    launch = engine.launcher()
    if launch is None:
        return None
    todo = pending(request, folder, only)
    # The commands execute parts of the plan, and would store a plan of their runs only.
    keep_request(request, folder)
    listen.begin(len(todo))
    scenario = request.parsed
    for runs in visits_of(todo, scenario.sizes[request.size].visits, scenario.seed):
        listen.step(f"{runs[0].stand}: launching", 0)
        status = launch(cluster_of(engine, runs[0], address), _arguments(runs, folder, address))
        if status:
            raise ClusterError(
                f"{runs[0].stand} has failed in {request.engine}: it ended with status {status}"
            )
        listen.step(f"{runs[0].stand}: {len(runs)} runs", len(runs))
    return len(todo)


def _arguments(
    runs: Sequence[PlannedRun], folder: ResultsFolder, address: str | None
) -> Sequence[str]:
    command = command_of(runs, folder.path)[1:]
    return command if address is None else [*command, "--address", address]
