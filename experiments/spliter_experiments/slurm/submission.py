"""Plan the runs of a submission and write its folder.

::

    submit.sh            submits the jobs
    jobs.tsv             names and numbers of the submitted jobs
    scripts/             batch scripts
    logs/                output of the batch scripts
    jobs/NAME/PIECE/     ends.tsv (exit status of each command), state.tsv, nodes.txt, service logs
    results/             records of all jobs, in the format of `spliter experiment`
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from spliter_experiments.evaluation import PlannedRun, load_scenario, plan_runs
from spliter_experiments.evaluation.schema import SizeName
from spliter_experiments.harness.errors import PlanError, ResultsError
from spliter_experiments.harness.records import Record, ResultsFolder
from spliter_experiments.slurm.render import RESULTS, Script, render_submit


@dataclass(frozen=True)
class Request:
    """Requested runs: all of some figures, or those with these configurations and nodes."""

    figures: Sequence[str]
    size: SizeName = "full"
    backend: str = "dask"
    configurations: Sequence[str] | None = None
    nodes: Sequence[int] | None = None
    repetitions: int | None = None

    def missing(self, results: Path, earlier: Sequence[Path] = ()) -> list[PlannedRun]:
        """Return the runs that a folder of results lacks.

        Their times are estimated from the runs in it and in `earlier` folders.
        """
        there = ResultsFolder(results)
        measured = seconds_of([*([results] if there.done() else []), *earlier])
        runs: list[PlannedRun] = []
        for figure in self.figures:
            runs += plan_runs(
                load_scenario(figure),
                self.size,
                engine=self.backend,
                configurations=self.configurations,
                repetitions=self.repetitions,
                nodes=self.nodes,
                called=figure,
                measured=measured,
            )
        done = there.done()
        if not (missing := [run for run in runs if run.id not in done]):
            raise PlanError(f"{results} has all {len(runs)} runs: none is left")
        return missing

    def plan_options(self) -> tuple[str, ...]:
        """Return the options of ``spliter experiment run`` that restrict the plan."""
        given = {"--configurations": self.configurations, "--nodes": self.nodes}
        return tuple(
            word
            for option, values in given.items()
            if values is not None
            for word in (option, ",".join(map(str, values)))
        )


def seconds_of(folders: Sequence[Path]) -> Callable[[PlannedRun], float | None]:
    """Return a function that estimates a run's time from folders of results.

    It is the longest time of the run's other repetitions plus a share of the time to load the data;
    None if there are none.
    """
    alike: dict[tuple[object, ...], list[Record]] = {}
    for folder in folders:
        for record in ResultsFolder(folder).records():
            alike.setdefault(_kind(record), []).append(record)
    took = {
        kind: max(found.seconds for found in those)
        + max(found.init_seconds for found in those) / len(those)
        for kind, those in alike.items()
    }
    return lambda run: took.get(_kind(run))


def _kind(run: Record | PlannedRun) -> tuple[object, ...]:
    return (
        *(run.figure, run.size, run.engine, run.configuration),
        *(run.nodes, run.workers, run.threads, run.blocks, run.rows),
    )


def write_submission(folder: Path, scripts: Sequence[Script], command: str) -> Path:
    """Write scripts and create the folders that their jobs write to; return ``submit.sh``."""
    submit = folder / "submit.sh"
    try:
        for name in ("scripts", "logs", "jobs", RESULTS):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for script in scripts:
            for name, text in script.files.items():
                (folder / "scripts" / name).write_text(text, encoding="utf-8")
        submit.write_text(render_submit(scripts, folder, command), encoding="utf-8")
    except OSError as error:
        raise ResultsError(f"cannot write to {folder}: {error}") from error
    return submit
