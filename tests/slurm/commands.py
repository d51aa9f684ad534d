"""Call ``spliter slurm`` as a user does."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner, Result

from spliter_experiments.cli import app
from spliter_experiments.slurm.folder import Folder, Submission


def spliter(*arguments: str | Path) -> Result:
    """Run a command; its output is as wide as it wants to be."""
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "400"})


def slurm(*arguments: str | Path) -> Result:
    return spliter("slurm", *arguments)


def ran(*arguments: str | Path) -> str:
    """Run a command that has to end well, and return what it prints."""
    result = slurm(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def refused(*arguments: str | Path) -> str:
    """Run a command that has to end with a message of ours, and return the message."""
    result = slurm(*arguments)
    assert result.exit_code in (1, 2), result.output
    # Not an exception that was let through.
    assert isinstance(result.exception, SystemExit), result.exception
    return result.output


def hours_for_two(folder: Path, *arguments: str | Path) -> str:
    """Return a time limit that is a minute short of what all runs together want."""
    ran("render", *arguments, "--output", folder)
    (job,) = submission(folder).jobs
    return str((job.seconds - 60) / 3600)


def statuses(piece: Path) -> list[tuple[str, int]]:
    """Return name and exit status of each command of a piece."""
    lines = (line.split("\t") for line in (piece / "ends.tsv").read_text().splitlines())
    return [(stand, int(status)) for stand, status, _, _ in lines]


def submission(folder: Path) -> Submission:
    return Folder(folder).read()
