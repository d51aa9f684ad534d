"""The folder of a submission: scripts, logs, what jobs left, and how far they are.

::

    submission.json      jobs, their runs and numbers; written anew after each step
    scripts/             what is handed in
    logs/                what the batch scripts printed
    jobs/NAME/PIECE/     ends.tsv (how each command ended), state.tsv, nodes.txt, logs of services
    results/             records of all jobs, as `spliter experiment` keeps them
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from spliter_experiments.slurm.errors import SubmissionError
from spliter_experiments.slurm.render import RESULTS, Script
from spliter_experiments.slurm.request import Request

FILE = "submission.json"


class JobEntry(BaseModel):
    """One job of a submission.

    Parameters
    ----------
    name : str
        Of the job.
    script : str
        File under ``scripts``.
    pieces : tuple of tuple of str
        Ids of the runs of each task of the job array; a job that is none has one.
    nodes, seconds : int
        What it asks for.
    engine : str
        What its runs are on.
    attempt : int
        0, and more of jobs that do again what was missing.
    after : str or None
        Name of the job that has to end first.
    job_id : str or None
        Its number, once it was handed in.
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
        """Return what SLURM calls a piece, None before it was handed in."""
        if self.job_id is None or len(self.pieces) == 1:
            return self.job_id
        return f"{self.job_id}_{piece}"


class Submission(BaseModel):
    """What was rendered into a folder, and how far it is.

    Parameters
    ----------
    schema_version : int
        Of the file.
    tag : str
        Unique; begins the names of its jobs.
    request : Request
        What was asked for.
    runs : tuple of str
        Ids of all runs.
    jobs : tuple of JobEntry
        In the order to hand in; those that do again what is missing come last.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    tag: str
    request: Request
    runs: tuple[str, ...]
    jobs: tuple[JobEntry, ...]

    def with_number(self, name: str, job_id: str) -> Submission:
        """Return it with the number of one job."""
        jobs = tuple(
            job.model_copy(update={"job_id": job_id}) if job.name == name else job
            for job in self.jobs
        )
        return self.model_copy(update={"jobs": jobs})

    def with_jobs(self, jobs: Sequence[JobEntry]) -> Submission:
        """Return it with more jobs."""
        return self.model_copy(update={"jobs": (*self.jobs, *jobs)})


class End(NamedTuple):
    """How the command of a stand ended: a line of ``ends.tsv``."""

    stand: str
    status: int
    seconds: float
    job_id: str


class Folder:
    """The folder of a submission.

    Parameters
    ----------
    path : Path
        Of the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @property
    def results(self) -> Path:
        """Where the records of all jobs are."""
        return self.path / RESULTS

    def script(self, job: JobEntry) -> Path:
        """Return the script of a job."""
        return self.path / "scripts" / job.script

    def piece(self, job: JobEntry, number: int) -> Path:
        """Return where a piece of a job leaves what it has."""
        return self.path / "jobs" / job.name / str(number)

    def pieces(self, submission: Submission) -> list[Path]:
        """Return the folders of all pieces that have begun."""
        found = (
            self.piece(job, number) for job in submission.jobs for number in range(len(job.pieces))
        )
        return [piece for piece in found if piece.is_dir()]

    def exists(self) -> bool:
        """Whether there is a submission."""
        return (self.path / FILE).exists()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other commands from changing the submission meanwhile.

        Raises
        ------
        SubmissionError
            If another one is at it.
        """
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
        """Read the submission.

        Raises
        ------
        SubmissionError
            If there is none, or it cannot be read.
        """
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
        """Write the submission, all of it or nothing.

        Raises
        ------
        SubmissionError
            If it cannot be written.
        """
        text = submission.model_dump_json(indent=1)
        draft = self.path / f"{FILE}.{os.getpid()}"
        try:
            with draft.open("w", encoding="utf-8") as stream:
                stream.write(text + "\n")
                stream.flush()
                os.fsync(stream.fileno())
            draft.replace(self.path / FILE)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise SubmissionError(f"cannot write {self.path / FILE}: {error}") from error

    def add_scripts(self, scripts: Sequence[Script]) -> None:
        """Write scripts, and make the folders that their jobs write to.

        Raises
        ------
        SubmissionError
            If they cannot be written.
        """
        try:
            for folder in ("scripts", "logs", "jobs"):
                (self.path / folder).mkdir(parents=True, exist_ok=True)
            for script in scripts:
                for name, text in script.files.items():
                    (self.path / "scripts" / name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise SubmissionError(f"cannot write to {self.path}: {error}") from error


def ends(piece: Path) -> list[End]:
    """Read how commands of a piece ended; a line that a killed job left half-written is ignored.

    Parameters
    ----------
    piece : Path
        Folder of the piece.
    """
    found = []
    for line in _lines(piece / "ends.tsv"):
        match line.split("\t"):
            case [stand, status, seconds, job_id] if status.isdecimal() and seconds.isdecimal():
                found.append(End(stand, int(status), float(seconds), job_id))
    return found


def last_state(piece: Path) -> str:
    """Return what the job itself noted last: ``started``, ``ended 0``; empty if nothing."""
    states = [line.split("\t")[1] for line in _lines(piece / "state.tsv") if "\t" in line]
    return states[-1] if states else ""


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
