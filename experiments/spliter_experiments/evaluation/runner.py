"""Do the runs of a plan that are not done yet, and keep a record of each as soon as it has run."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from spliter_experiments.compare.comparison import Listener
from spliter_experiments.evaluation._errors import IncompatibleResultsError, PlanError
from spliter_experiments.evaluation.bench import Bench, Measured, on_cluster
from spliter_experiments.evaluation.catalog import file_stem, parse_scenario, read_scenario
from spliter_experiments.evaluation.kernels import in_process
from spliter_experiments.evaluation.plan import (
    PROCESS,
    PlannedRun,
    plan_digest,
    plan_runs,
    visits_of,
)
from spliter_experiments.evaluation.schema import Scenario, SizeName
from spliter_experiments.harness.errors import ResultsError
from spliter_experiments.harness.facts import Facts, facts
from spliter_experiments.harness.records import Record, ResultsFolder, check_together


@dataclass(frozen=True)
class Request:
    """What a user asks to be run; kept beside the results, so that they can be resumed.

    Parameters
    ----------
    scenario : str
        Figure, or path of a file.
    text : str
        The scenario itself.
    size, engine : str
        In which size and on what.
    configurations, nodes : tuple or None
        Only these.
    repetitions : int or None
        In place of the scenario's.
    """

    scenario: str
    text: str
    size: SizeName
    engine: str
    configurations: tuple[str, ...] | None = None
    nodes: tuple[int, ...] | None = None
    repetitions: int | None = None

    @property
    def parsed(self) -> Scenario:
        """The scenario.

        Raises
        ------
        ScenarioError
            If it is not one.
        """
        return parse_scenario(self.text, self.scenario)

    @property
    def name(self) -> str:
        """What files of it are called."""
        return f"{file_stem(self.parsed.figure)}-{self.size}-{self.engine}"

    def runs(self) -> list[PlannedRun]:
        """Return all runs of it.

        Raises
        ------
        PlanError
            If what it asks for cannot be run.
        """
        return plan_runs(
            self.parsed,
            self.size,
            engine=self.engine,
            configurations=self.configurations,
            nodes=self.nodes,
            repetitions=self.repetitions,
            called=self.scenario,
        )


def request_for(scenario: str, size: SizeName, engine: str, **chosen: Any) -> Request:
    """Return a request for a figure, or a scenario in a file.

    Raises
    ------
    ScenarioError
        If there is none.

    Examples
    --------
    >>> request_for("fig 9", "laptop", "dask").name
    'fig09-laptop-dask'
    """
    text, _ = read_scenario(scenario)
    found = Request(scenario, text, size, engine, **chosen)
    kernel = found.parsed.kind == "kernel"
    return Request(scenario, text, size, PROCESS if kernel else engine, **chosen)


def requests_in(folder: ResultsFolder) -> list[Request]:
    """Return what was asked for in a folder of results.

    Raises
    ------
    ResultsError
        If nothing was, or it cannot be read.
    """
    return [_request(plan, folder.path) for plan in folder.plans()]


def _request(plan: dict[str, Any], path: Path) -> Request:
    try:
        for key in ("configurations", "nodes"):
            plan[key] = None if plan[key] is None else tuple(plan[key])
        return Request(**plan)
    except (KeyError, TypeError) as error:
        raise ResultsError(f"{path}: a plan cannot be read ({error!r})") from error


def pending(request: Request, folder: ResultsFolder, only: Sequence[str] = ()) -> list[PlannedRun]:
    """Return the runs that are not done.

    Parameters
    ----------
    request : Request
        What is asked for.
    folder : ResultsFolder
        Knows what is done.
    only : sequence of str
        Only runs of these names; without it, all.

    Raises
    ------
    PlanError
        If there is no run of such a name.
    """
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
    bench: Bench | None = None,
) -> int:
    """Do what is not done yet, and return how many runs that were.

    Parameters
    ----------
    request : Request
        What is asked for.
    folder : ResultsFolder
        Where records go.
    only : sequence of str
        Only runs of these names.
    address : str, optional
        Where the user's cluster is; without it, one is started for every stand.
    listen : Listener, optional
        Told how far it is.
    command : str
        The command line, to be kept.
    bench : callable, optional
        In place of the one that the scenario needs.

    Raises
    ------
    ExperimentError
        If something cannot be used, found or written. What has run until then is kept.
    """
    listen = listen or Listener()
    scenario, here = request.parsed, facts()
    digest = plan_digest(scenario, request.size)
    todo = pending(request, folder, only)
    _check_folder(folder, scenario, request, digest, here)
    # A job that does some of the runs of a plan leaves the plan as it is.
    if not only or not folder.has_plan(request.name):
        folder.keep_plan(request.name, asdict(request))
    folder.clear_partial()
    bench = bench or (in_process if scenario.kind == "kernel" else on_cluster)
    listen.begin(len(todo))
    for runs in visits_of(todo, scenario.sizes[request.size].visits, scenario.seed):
        for found in bench(scenario, runs, address, listen):
            folder.append(_record(found, scenario, digest, here, command))
            listen.step(f"{found.run.stand}: {found.run.configuration}", 1)
    return len(todo)


def _check_folder(
    folder: ResultsFolder, scenario: Scenario, request: Request, digest: str, here: Facts
) -> None:
    """Refuse a folder with results that those to come must not be mixed with.

    Raises
    ------
    IncompatibleResultsError
        If they are of another scenario, other versions, or another processor.
    """
    if not folder.done():
        return
    there = folder.records()
    for record in there:
        if (record.figure, record.size) == (scenario.figure, request.size):
            if record.plan_digest != digest:
                raise IncompatibleResultsError(
                    f"{folder.path} holds runs of another scenario of figure {scenario.figure} "
                    f"({record.run_id}); they must not be mixed: take another --results folder"
                )
            break
    newest = there[-1]
    check_together([newest, _as_of(newest, here)])


def _as_of(record: Record, here: Facts) -> Record:
    return replace(
        record, run_id="a run here", versions=dict(here.versions), processor=here.processor
    )


def _record(found: Measured, scenario: Scenario, digest: str, here: Facts, command: str) -> Record:
    run = found.run
    apart = (found.split_seconds or 0.0) + (found.rechunk_seconds or 0.0)
    return Record(
        run_id=run.id,
        figure=scenario.figure,
        app=run.app,
        size=run.size,
        plan_digest=digest,
        engine=run.engine,
        configuration=run.configuration,
        way=run.way,
        nodes=run.nodes,
        workers=run.workers,
        threads=run.threads,
        blocks=run.blocks,
        blocks_per_core=run.blocks_per_core,
        rows=run.rows,
        queries=run.queries,
        repetition=run.repetition,
        seed=run.seed,
        position=found.position,
        x=run.x,
        started_at=(datetime.now(UTC) - timedelta(seconds=found.seconds)).isoformat(),
        seconds=found.seconds,
        init_seconds=found.init_seconds,
        split_seconds=found.split_seconds,
        rechunk_seconds=found.rechunk_seconds,
        iterate_seconds=max(found.seconds - apart, 0.0),
        tasks=found.tasks,
        bytes_moved=found.nbytes,
        peak_memory_bytes=found.peak,
        host=platform.node(),
        system=here.system,
        processor=here.processor,
        host_cores=here.cores,
        host_memory=here.memory,
        versions=dict(here.versions),
        command=command,
    )
