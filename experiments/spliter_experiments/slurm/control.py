"""Implement the ``spliter slurm`` commands: draft, submit, status, collect, resume."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spliter_experiments.evaluation import PlannedRun
from spliter_experiments.harness.errors import SlurmError, SubmissionError
from spliter_experiments.harness.records import Record, ResultsFolder
from spliter_experiments.slurm.folder import Folder, JobEntry, Submission, last_state
from spliter_experiments.slurm.render import Script, clock
from spliter_experiments.slurm.request import Measured, Request
from spliter_experiments.slurm.scheduler import JobState, Slurm

LOG_LINES = 15

UNSEEN = "NOT SUBMITTED"
FORGOTTEN = "GONE"
"""State of a job that SLURM no longer knows and that recorded no state itself."""


@dataclass(frozen=True)
class Draft:
    """A submission with new jobs that is not written yet, and the scripts of these jobs."""

    folder: Folder
    submission: Submission
    scripts: tuple[Script, ...]

    def write(self) -> None:
        """Write scripts and submission."""
        self.folder.add_scripts(self.scripts)
        self.folder.write(self.submission)


@dataclass(frozen=True)
class PieceStatus:
    """State of a piece of a job, as SLURM names it, `UNSEEN` or `FORGOTTEN`.

    The detail says why it waits, or how it ended; `done` counts its recorded runs.
    """

    job: JobEntry
    number: int
    state: str
    elapsed: str
    detail: str
    done: int

    @property
    def runs(self) -> tuple[str, ...]:
        """Ids of its runs."""
        return self.job.pieces[self.number]

    @property
    def may_go_on(self) -> bool:
        """Whether it is waiting or running."""
        return self.state == UNSEEN or (
            self.state != FORGOTTEN and not JobState("", self.state, "", "").is_over
        )


def draft(request: Request, path: Path, earlier: Sequence[Path] = ()) -> Draft:
    """Plan and render a new submission, without writing anything.

    Running times are estimated from the results in the `earlier` folders.
    """
    folder = Folder(path)
    if folder.exists():
        raise SubmissionError(
            f"{folder.path} holds a submission already; take another folder, or go on with it: "
            "spliter slurm submit"
        )
    runs = request.plan(seconds_of(earlier))
    tag = f"spliter-{secrets.token_hex(3)}"
    scripts = request.scripts(runs, folder.path, f"{tag}-")
    submission = Submission(
        tag=tag, request=request, runs=tuple(run.id for run in runs), jobs=_entries(scripts)
    )
    return Draft(folder, submission, tuple(scripts))


def _entries(scripts: Sequence[Script], attempt: int = 0) -> tuple[JobEntry, ...]:
    before = [None, *(script.job.name for script in scripts[:-1])]
    return tuple(
        JobEntry(
            name=script.job.name,
            script=script.name,
            pieces=tuple(tuple(run.id for run in piece.runs) for piece in script.job.pieces),
            nodes=script.job.shape.nodes,
            seconds=script.job.seconds,
            engine=script.job.shape.engine,
            attempt=attempt,
            after=after,
        )
        for after, script in zip(before, scripts, strict=True)
    )


def resume(folder: Folder, slurm: Slurm) -> Draft:
    """Plan and render jobs for missing runs without a live job, without writing anything."""
    submission = folder.read()
    going_on = {run for entry in status(folder, slurm) if entry.may_go_on for run in entry.runs}
    settled = going_on | ResultsFolder(folder.results).done()
    planned = submission.request.plan(seconds_of([folder.path]))
    runs = [run for run in planned if run.id not in settled]
    if not runs:
        raise SubmissionError(f"no run of {folder.path} is missing: there is nothing to do again")
    attempt = 1 + max(job.attempt for job in submission.jobs)
    prefix = f"{submission.tag}-again{attempt}-"
    scripts = submission.request.scripts(runs, folder.path, prefix)
    return Draft(folder, submission.with_jobs(_entries(scripts, attempt)), tuple(scripts))


def submit(folder: Folder, slurm: Slurm) -> list[JobEntry]:
    """Submit the jobs without a number, each after the job it depends on, and return them.

    Each job's number is written before the next job is submitted. A job submitted before an
    interruption is found by its name. If the cluster rejects one, those before it stay submitted.
    """
    with folder.locked():
        submission = folder.read()
        waiting = [job for job in submission.jobs if job.job_id is None]
        _check_partition(waiting, submission.request, slurm)
        taken: list[JobEntry] = []
        for job in waiting:
            numbers = {other.name: other.job_id for other in submission.jobs}
            after = numbers[job.after] if job.after is not None else None
            try:
                number = _submit_job(folder, job, after, slurm)
            except SlurmError as error:
                raise SlurmError(
                    f"{len(taken)} of {len(waiting)} jobs were handed in, then: {error} The same "
                    "command hands in the others"
                ) from error
            submission = submission.with_number(job.name, number)
            folder.write(submission)
            taken.append(job.model_copy(update={"job_id": number}))
        return taken


def _submit_job(folder: Folder, job: JobEntry, after: str | None, slurm: Slurm) -> str:
    there = slurm.live(job.name)
    if there:
        return there[0]
    script = str(folder.script(job))
    if job.engine == "compss":
        return slurm.enqueue_compss(script, after)
    return slurm.submit(script, after)


def _check_partition(jobs: Sequence[JobEntry], request: Request, slurm: Slurm) -> None:
    """Reject jobs that would wait forever, which not every cluster does itself."""
    if not jobs:
        return
    wanted = request.load_site().partition
    nodes = max(jobs, key=lambda job: job.nodes)
    longest = max(jobs, key=lambda job: job.seconds)
    for there in slurm.partitions():
        if there.name != wanted and (wanted or not there.is_default):
            continue
        if nodes.nodes > there.nodes:
            raise SlurmError(
                f"{nodes.name} asks too much: {nodes.nodes} nodes, and the partition {there.name} "
                f"has {there.nodes}. Render fewer --nodes, or for another --partition"
            )
        if longest.seconds > there.seconds:
            raise SlurmError(
                f"{longest.name} asks too much: {clock(longest.seconds)} hours, and the partition "
                f"{there.name} allows {clock(there.seconds)}. Render with --hours, or for another "
                "--partition"
            )


def status(folder: Folder, slurm: Slurm) -> list[PieceStatus]:
    """Return the state of each piece of each job."""
    submission = folder.read()
    done = ResultsFolder(folder.results).done()
    numbers = [job.job_id for job in submission.jobs if job.job_id is not None]
    known = {state.job_id: state for state in slurm.states(numbers)}
    return [
        _piece_status(folder, job, number, known, done)
        for job in submission.jobs
        for number in range(len(job.pieces))
    ]


def _piece_status(
    folder: Folder, job: JobEntry, number: int, known: dict[str, JobState], done: set[str]
) -> PieceStatus:
    recorded = sum(run in done for run in job.pieces[number])
    task = job.number_of(number)
    if task is None:
        return PieceStatus(job, number, UNSEEN, "", "", recorded)
    if task in known:
        _, state, elapsed, detail = known[task]
        return PieceStatus(job, number, state, elapsed, detail, recorded)
    noted = last_state(folder.piece(job, number))
    state = {"ended 0": "COMPLETED", "": FORGOTTEN}.get(noted, "FAILED")
    return PieceStatus(job, number, state, "", noted, recorded)


@dataclass(frozen=True)
class Collected:
    """Table of all records, if any, and ids of the recorded and the missing runs.

    The logs are file names and last lines of pieces with missing runs.
    """

    table: Path | None
    done: tuple[str, ...]
    missing: tuple[str, ...]
    logs: dict[str, str]


def collect(folder: Folder, *, write: bool = True) -> Collected:
    """Write all records to one table, and return what is missing, with logs.

    Needs no SLURM: each run was recorded when it finished, whatever happened to its job.
    """
    submission = folder.read()
    results = ResultsFolder(folder.results)
    there = results.done()
    table = results.write_table(results.records()) if there and write else None
    logs: dict[str, str] = {}
    for job in submission.jobs:
        for number, runs in enumerate(job.pieces):
            if not there.issuperset(runs):
                logs |= _log(folder, job, number)
    return Collected(
        table,
        tuple(run for run in submission.runs if run in there),
        tuple(run for run in submission.runs if run not in there),
        logs,
    )


def _log(folder: Folder, job: JobEntry, number: int) -> dict[str, str]:
    task = job.number_of(number)
    name = f"{job.name}-{task}.out"
    try:
        text = (folder.path / "logs" / name).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return {name: "\n".join(text.splitlines()[-LOG_LINES:])}


def seconds_of(folders: Sequence[Path]) -> Measured:
    """Return a function that estimates a run's time from folders of results or submissions.

    It is the longest time of the run's other repetitions plus a share of the time to load the data;
    None if there are none.
    """
    alike: dict[tuple[object, ...], list[Record]] = {}
    for folder in folders:
        for record in _records(folder):
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


def _records(folder: Path) -> list[Record]:
    results = Folder(folder).results if Folder(folder).exists() else folder
    there = ResultsFolder(results)
    if Folder(folder).exists() and not there.done():
        return []
    return there.records()
