"""The first page, to the letter: its commands in a fresh checkout and a fresh environment."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.test_docs_commands import FILE, Shown, commands_of, comparable

pytestmark = [pytest.mark.thorough, pytest.mark.backend("dask"), pytest.mark.timeout(900)]

PAGE = ROOT / "docs" / "getting-started.md"
TEXT = PAGE.read_text(encoding="utf-8")
SETTINGS = ("PYTHON", "DASK_", "SPLITER_", "OMP_", "OPENBLAS_")
"""Variables of the test run that a reader's shell does not have."""

PROGRAM = re.compile(FILE.pattern + r"\n```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_the_readme_installs_as_the_first_page_does() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    first = next(commands_of(ROOT / "README.md", readme)).text.partition("#")[0].strip()
    assert first in [shown.text for shown in commands_of(PAGE, TEXT)]


def test_commands_run_and_print_what_the_page_shows(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    copy_of_tracked_files(checkout)
    for name, program in PROGRAM.findall(TEXT):
        (checkout / name).write_text(program, encoding="utf-8")
    shown = list(commands_of(PAGE, TEXT))
    assert len(shown) > 6
    # One shell, as a reader's: the environment that a command activates holds for the next one.
    separator = "=== next ==="
    script = "set -e\n" + "".join(f"{one.text}\necho '{separator}'\n" for one in shown)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=checkout,
        env={name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    outputs = done.stdout.split(f"{separator}\n")
    for one, output in zip(shown, outputs, strict=False):
        check_output(one, output.splitlines())


def check_output(shown: Shown, lines: list[str]) -> None:
    """Compare with the page, but for numbers of partitions, which follow the cores."""
    if not shown.printed:
        return
    expected, found = (
        [re.sub(r"\d+ (partition|location)s?", r"N \1", line) for line in part]
        for part in (shown.printed, lines)
    )
    assert comparable(found) == comparable(expected), shown.where


def copy_of_tracked_files(folder: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, timeout=60
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():  # it may be deleted, and not committed yet
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
