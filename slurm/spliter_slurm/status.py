"""What became of a submission: its jobs, as SLURM and their own files say, and its runs."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from spliter_experiments.evaluation.runner import requests_in
from spliter_experiments.harness.records import ResultsFolder
from spliter_experiments.harness.table import NONE

ANSWER_SECONDS = 60
"""Maximum wait for ``squeue``, as in ``submit.sh``."""


@dataclass(frozen=True)
class JobStatus:
    """A job: its number, if it has one, its state, and the number of its commands that failed."""

    name: str
    number: str
    state: str
    failed: int


@dataclass(frozen=True)
class Progress:
    """Runs of one plan on one number of nodes."""

    plan: str
    nodes: int
    done: int
    missing: int


def jobs_of(folder: Path) -> tuple[list[JobStatus], str]:
    """Return the jobs of a folder, submitted ones first, and why ``squeue`` could not be asked.

    The state of a job that SLURM does not list is the last one that the job wrote itself.
    """
    numbers = dict(_rows(folder / "jobs.tsv", 2))
    for written in sorted(folder.glob("jobs/*/state.tsv")):
        rows = _rows(written, 3)
        if rows:  # jobs of the ready-made scripts are in no list
            numbers.setdefault(written.parent.name, rows[-1][0])
    queue, silent = _queue() if numbers else ({}, "")
    jobs = [
        JobStatus(
            name,
            number,
            queue.get(number) or _own_state(folder / "jobs" / name, number),
            _failed(folder / "jobs" / name, number),
        )
        for name, number in numbers.items()
    ]
    waiting = [name for name in _written(folder) if name not in numbers]
    return [*jobs, *(JobStatus(name, NONE, "not submitted", 0) for name in waiting)], silent


def progress_of(results: ResultsFolder) -> list[Progress]:
    """Count the runs of all plans that are done, and those that are missing."""
    done = results.done()
    found = []
    for request in requests_in(results):
        runs = request.runs()
        for nodes in dict.fromkeys(run.nodes for run in runs):
            here = [run.id in done for run in runs if run.nodes == nodes]
            found.append(Progress(request.name, nodes, sum(here), len(here) - sum(here)))
    return found


def _queue() -> tuple[dict[str, str], str]:
    """Return the states of this user's jobs by number, and why there is no answer."""
    command = ["squeue", "--noheader", "--me", "--format=%F|%T|%r"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=True
        )
    except subprocess.TimeoutExpired:
        return {}, f"squeue did not answer within {ANSWER_SECONDS} s"
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines() or [f"status {error.returncode}"]
        return {}, f"squeue failed: {said[-1]}"
    except OSError as error:
        return {}, f"squeue cannot be run: {error.strerror}"
    rows = (line.split("|") for line in done.stdout.splitlines())
    return {
        number: state.lower() if reason == "None" else f"{state.lower()} ({reason})"
        for number, state, reason in rows
    }, ""


def _own_state(work: Path, number: str) -> str:
    """Return the last state that a job wrote into its folder."""
    states = [row[1] for row in _rows(work / "state.tsv", 3) if row[0] == number]
    if not states:
        return "unknown"
    return "killed" if states[-1] == "started" else states[-1]


def _failed(work: Path, number: str) -> int:
    """Return how many commands of a job failed."""
    ends = [row for row in _rows(work / "ends.tsv", 4) if row[3] == number]
    return sum(status != "0" for _, status, _, _ in ends)


def _written(folder: Path) -> list[str]:
    """Return the names of the jobs that ``submit.sh`` submits."""
    try:
        text = (folder / "submit.sh").read_text(encoding="utf-8")
    except OSError:
        return []
    scripts = sorted((folder / "scripts").glob("*.s*"))
    return [script.stem for script in scripts if f"scripts/{script.name}" in text]


def _rows(file: Path, columns: int) -> list[list[str]]:
    """Return the whole rows of a file that scripts append to; none if it does not exist."""
    if not file.exists():
        return []
    rows = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if len(row) == columns]
