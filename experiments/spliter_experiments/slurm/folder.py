"""Folder of a submission: scripts, logs, job output, and the state of the jobs.

::

    submission.json      jobs, their runs and numbers; rewritten after each step
    scripts/             batch scripts
    logs/                output of the batch scripts
    jobs/NAME/PIECE/     ends.tsv (exit status of each command), state.tsv, nodes.txt, service logs
    results/             records of all jobs, in the format of `spliter experiment`
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from spliter_experiments.harness.errors import SubmissionError
from spliter_experiments.harness.files import write_whole
from spliter_experiments.slurm.render import RESULTS, Script
from spliter_experiments.slurm.request import Request

FILE = "submission.json"


class JobEntry(BaseModel):
    """One job of a submission: its requested nodes and seconds, and the run ids of its pieces.

    A job array has several pieces. The number is None before the job is submitted. Attempts count
    resumes; `after` is the name of the job that must end first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    script: str
    pieces: tuple[tuple[str, ...], ...]
    nodes: int
    seconds: int
    engine: str
    attempt: int = 0
    after: str | None = None
    job_id: str | None = None

    @property
    def runs(self) -> tuple[str, ...]:
        """Ids of all runs."""
        return tuple(run for piece in self.pieces for run in piece)

    def number_of(self, piece: int) -> str | None:
        """Return SLURM's number of a piece, None before the job is submitted."""
        if self.job_id is None or len(self.pieces) == 1:
            return self.job_id
        return f"{self.job_id}_{piece}"


class Submission(BaseModel):
    """Jobs of a submission folder in submission order; their names begin with the tag."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    tag: str
    request: Request
    runs: tuple[str, ...]
    jobs: tuple[JobEntry, ...]

    def with_number(self, name: str, job_id: str) -> Submission:
        """Return a copy with the number of one job set."""
        jobs = tuple(
            job.model_copy(update={"job_id": job_id}) if job.name == name else job
            for job in self.jobs
        )
        return self.model_copy(update={"jobs": jobs})

    def with_jobs(self, jobs: Sequence[JobEntry]) -> Submission:
        """Return a copy with more jobs."""
        return self.model_copy(update={"jobs": (*self.jobs, *jobs)})


class Folder:
    """Reads and writes the folder of a submission."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @property
    def results(self) -> Path:
        """Folder of the records of all jobs."""
        return self.path / RESULTS

    def script(self, job: JobEntry) -> Path:
        """Return the path of a job's script."""
        return self.path / "scripts" / job.script

    def piece(self, job: JobEntry, number: int) -> Path:
        """Return the output folder of a piece of a job."""
        return self.path / "jobs" / job.name / str(number)

    def exists(self) -> bool:
        """Return whether the folder contains a submission."""
        return (self.path / FILE).exists()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the submission against other commands while the context is open."""
        self.read()
        with (self.path / f"{FILE}.lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise SubmissionError(
                    f"another command is changing {self.path}; try again when it has ended"
                ) from error
            yield

    def read(self) -> Submission:
        """Read the submission."""
        path = self.path / FILE
        try:
            return Submission.model_validate_json(path.read_bytes())
        except FileNotFoundError as error:
            raise SubmissionError(
                f"{self.path} is not a submission; `spliter slurm render` makes one"
            ) from error
        except OSError as error:
            raise SubmissionError(f"{path} cannot be read: {error}") from error
        except ValidationError as error:
            found = error.errors()[0]
            at = ".".join(map(str, found["loc"]))
            raise SubmissionError(
                f"{path} is damaged, or of another version of spliter: {at}: {found['msg']}"
            ) from error

    def write(self, submission: Submission) -> None:
        """Write the submission atomically."""
        try:
            write_whole(self.path / FILE, submission.model_dump_json(indent=1) + "\n")
        except OSError as error:
            raise SubmissionError(f"cannot write {self.path / FILE}: {error}") from error

    def add_scripts(self, scripts: Sequence[Script]) -> None:
        """Write scripts, and create the folders that their jobs write to."""
        try:
            for folder in ("scripts", "logs", "jobs"):
                (self.path / folder).mkdir(parents=True, exist_ok=True)
            for script in scripts:
                for name, text in script.files.items():
                    (self.path / "scripts" / name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise SubmissionError(f"cannot write to {self.path}: {error}") from error


def last_state(piece: Path) -> str:
    """Return the last state that a job recorded, such as ``started`` or ``ended 0``, or ``""``."""
    try:
        lines = (piece / "state.tsv").read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    states = [line.split("\t")[1] for line in lines if "\t" in line]
    return states[-1] if states else ""
