"""Call ``spliter slurm`` as a user does."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from typer.testing import CliRunner, Result

from spliter_experiments.cli import app
from tests.running import run_command


def spliter(*arguments: str | Path) -> Result:
    """Run a command; its output is as wide as it wants to be."""
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "400"})


def slurm(*arguments: str | Path) -> str:
    """Run a command that has to end well, and return what it prints."""
    result = spliter("slurm", *arguments)
    assert result.exit_code == 0, result.output
    return result.output


def refused(*arguments: str | Path) -> str:
    """Run a command that has to end with a message of ours, and return the message."""
    result = spliter("slurm", *arguments)
    assert result.exit_code == 2, result.output
    # Not an exception that was let through.
    assert isinstance(result.exception, SystemExit), result.exception
    return result.output


def submit(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the script that submits the jobs of a folder."""
    return run_command(["/bin/bash", str(folder / "submit.sh")])


def submitted(folder: Path) -> list[str]:
    """Submit the jobs of a folder, and return the numbers of all that have been submitted."""
    done = submit(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return numbers_in(folder)


def numbers_in(folder: Path) -> list[str]:
    lines = (folder / "jobs.tsv").read_text(encoding="utf-8").splitlines()
    return [line.split("\t")[1] for line in lines]


def scripts_in(folder: Path) -> list[Path]:
    """Return the scripts of jobs in the order in which they were written."""
    scripts = (folder / "scripts").glob("*.sbatch")
    return sorted(scripts, key=lambda script: script.stat().st_mtime_ns)


def seconds_of_job(folder: Path) -> int:
    """Return the time limit of the only job of a folder."""
    (script,) = scripts_in(folder)
    return seconds_in(script.read_text(encoding="utf-8"))


def seconds_in(text: str) -> int:
    """Return the time limit in a script."""
    found = re.search(r"--time=(\d+):(\d+):(\d+)", text)
    assert found is not None
    hours, minutes, seconds = map(int, found.groups())
    return 3600 * hours + 60 * minutes + seconds


def hours_for_two(folder: Path, *arguments: str | Path) -> str:
    """Return a time limit that is a minute short of what all runs together want."""
    slurm(*arguments, "--output", folder)
    return str((seconds_of_job(folder) - 60) / 3600)


def statuses(piece: Path) -> list[tuple[str, int]]:
    """Return name and exit status of each command of a piece."""
    lines = (line.split("\t") for line in (piece / "ends.tsv").read_text().splitlines())
    return [(stand, int(status)) for stand, status, _, _ in lines]


def last_state(piece: Path) -> str:
    """Return the last state that a job recorded."""
    return (piece / "state.tsv").read_text(encoding="utf-8").splitlines()[-1].split("\t")[1]
