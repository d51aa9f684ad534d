"""Do runs on an engine whose programs its own launcher has to start: a launch for each stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from spliter_experiments.compare.comparison import Listener
from spliter_experiments.compare.engines.engine import ClusterChoice, EngineKind
from spliter_experiments.compare.engines.loading import load_engine
from spliter_experiments.evaluation.plan import PROCESS, PlannedRun, command_of, visits_of
from spliter_experiments.evaluation.runner import Request, pending
from spliter_experiments.harness.errors import ClusterError
from spliter_experiments.harness.records import ResultsFolder


def run_launched(
    request: Request,
    folder: ResultsFolder,
    *,
    only: Sequence[str] = (),
    address: str | None = None,
    listen: Listener | None = None,
) -> int | None:
    """Do what is not done yet, each stand by a command of its own inside the engine's launcher.

    Parameters
    ----------
    request : Request
        What is asked for.
    folder : ResultsFolder
        Where the commands put their records.
    only : sequence of str
        Only runs of these names.
    address : str, optional
        Where the user's cluster is.
    listen : Listener, optional
        Told how far it is.

    Returns
    -------
    int or None
        How many runs were done; None if nothing has to be launched, so that they can be done here.

    Raises
    ------
    ClusterError
        If a command has failed. What has run until then is kept.
    """
    if request.engine == PROCESS:
        return None
    engine, listen = load_engine(request.engine), listen or Listener()
    launch = engine.launcher()
    if launch is None:
        return None
    todo = pending(request, folder, only)
    # The commands are for some of the runs, and would keep a plan of all there are.
    folder.keep_plan(request.name, asdict(request))
    listen.begin(len(todo))
    scenario = request.parsed
    for runs in visits_of(todo, scenario.sizes[request.size].visits, scenario.seed):
        listen.step(f"{runs[0].stand}: launching", 0)
        status = launch(_choice(engine, runs[0], address), _arguments(runs, folder, address))
        if status:
            raise ClusterError(
                f"{runs[0].stand} has failed in {request.engine}: it ended with status {status}"
            )
        listen.step(f"{runs[0].stand}: {len(runs)} runs", len(runs))
    return len(todo)


def _choice(engine: EngineKind, run: PlannedRun, address: str | None) -> ClusterChoice:
    workers = run.nodes if engine.node_is_worker else run.workers
    return ClusterChoice(address, workers=workers, threads=run.cores // workers)


def _arguments(
    runs: Sequence[PlannedRun], folder: ResultsFolder, address: str | None
) -> Sequence[str]:
    command = command_of(runs, folder.path)[1:]
    return command if address is None else [*command, "--address", address]
