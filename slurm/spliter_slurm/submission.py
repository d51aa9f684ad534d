"""Plan the runs of a submission and write its folder.

::

    submit.sh            submits the jobs
    jobs.tsv             names and numbers of the submitted jobs
    scripts/             batch scripts
    logs/                output of the batch scripts
    jobs/NAME/           ends.tsv (exit status of each command), state.tsv, nodes.txt, service logs
    results/             records of all jobs, in the format of `spliter experiment`
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from spliter_experiments.evaluation import PlannedRun
from spliter_experiments.evaluation.runner import Request, keep_request
from spliter_experiments.harness.errors import PlanError, ResultsError, SubmissionError
from spliter_experiments.harness.records import Record, ResultsFolder
from spliter_slurm.render import RESULTS, Script, render_submit


def missing_runs(
    requests: Sequence[Request], results: ResultsFolder, earlier: Sequence[Path] = ()
) -> list[PlannedRun]:
    """Return the requested runs that a folder lacks.

    Their times are estimated from the runs in it and in `earlier` folders.
    """
    done = results.done()
    measured = seconds_of([*([results.path] if done else []), *earlier])
    runs = [run for request in requests for run in request.runs(measured)]
    missing = [run for run in runs if run.id not in done]
    if not missing:
        raise PlanError(f"{results.path} has all {len(runs)} runs: none is left")
    return missing


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


def write_submission(
    folder: Path, requests: Sequence[Request], scripts: Sequence[Script], command: str
) -> Path:
    """Write scripts and requests, create the folders of the jobs, and return ``submit.sh``."""
    submit = folder / "submit.sh"
    try:
        for name in ("scripts", "logs", "jobs"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for script in scripts:
            for name, text in script.files.items():
                (folder / "scripts" / name).write_text(text, encoding="utf-8")
        for request in requests:
            keep_request(request, ResultsFolder(folder / RESULTS))
        submit.write_text(render_submit(scripts, folder, command), encoding="utf-8")
    except OSError as error:
        raise ResultsError(f"cannot write to {folder}: {error}") from error
    return submit


def submit(script: Path) -> str:
    """Run ``submit.sh``, and return what it prints: number and name of each job."""
    try:
        done = subprocess.run(["bash", str(script)], capture_output=True, text=True, check=False)
    except OSError as error:
        raise SubmissionError(f"cannot run bash {script}: {error}") from error
    if done.returncode:
        raise SubmissionError(
            f"{done.stdout}{done.stderr}not all jobs are submitted; to continue: bash {script}"
        )
    return done.stdout
