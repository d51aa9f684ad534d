"""What the pages print as files is run: a newcomer's first programs, and a backend from outside."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.conftest import ROOT, SOURCE_ROOTS, RunPython

pytestmark = pytest.mark.thorough

FILE = re.compile(r"<!-- file: (\S+) -->\n```python\n(.*?)```", re.DOTALL)
SHELL = re.compile(r"```console\n(.*?)```", re.DOTALL)
EXAMPLE = ROOT / "docs" / "examples" / "folders"


@pytest.mark.backend("dask")
def test_first_programs_print_what_the_page_says(tmp_path: Path, run_python: RunPython) -> None:
    page = (ROOT / "docs" / "getting-started.md").read_text(encoding="utf-8")
    files = FILE.findall(page)
    assert [name for name, _ in files] == ["means.py", "means_on_dask.py"]
    for name, text in files:
        (tmp_path / name).write_text(text, encoding="utf-8")
    # As on the page: `$ python ...`, and below it what that prints.
    shown = [block for block in SHELL.findall(page) if block.startswith("$ python ")]
    assert len(shown) == 3
    for block in shown:
        command, *lines = block.removeprefix("$ python ").splitlines()
        done = run_python(*shlex.split(command))
        assert done.returncode == 0, done.stderr
        # How many cores there are decides the numbers of the first line.
        assert done.stdout.splitlines()[1:] == lines[1:]
        assert done.stdout.startswith("<Split: ") == bool(lines)


@pytest.mark.backend("dask")
def test_program_of_dask_is_run(tmp_path: Path, run_python: RunPython) -> None:
    page = (ROOT / "docs" / "dask-programs.md").read_text(encoding="utf-8")
    ((name, text),) = FILE.findall(page)
    (tmp_path / name).write_text(text, encoding="utf-8")
    done = run_python(str(tmp_path / name))
    assert done.returncode == 0, done.stderr
    assert "tasks" in done.stdout


def test_a_backend_from_outside_is_installed_found_and_passes_the_suite(tmp_path: Path) -> None:
    if not _builds_wheels():
        pytest.skip("needs setuptools 77 to build without a download; pip install '.[test]'")
    source = shutil.copytree(EXAMPLE, tmp_path / "folders")  # a build leaves folders behind
    target = tmp_path / "installed"
    offline = ["--no-build-isolation", "--no-deps", "--no-index", "--quiet"]
    _run("-m", "pip", "install", *offline, "--target", str(target), str(source))
    path = [target, *SOURCE_ROOTS]
    names = "from spliter import backends; print([info.name for info in backends() if info.usable])"
    assert "'folders'" in _run("-c", names, path=path)
    # Its own settings, not those of this checkout.
    settings = ["-c", os.devnull, "--rootdir", str(source), "-W", "error", "-p", "no:cacheprovider"]
    suite = _run("-m", "pytest", "-q", *settings, str(source), path=path)
    passed = re.search(r"(\d+) passed", suite)
    assert passed and int(passed[1]) > 60, suite


def _builds_wheels() -> bool:
    try:
        return int(metadata.version("setuptools").partition(".")[0]) >= 77
    except metadata.PackageNotFoundError:
        return False


def _run(*arguments: str, path: list[Path] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path or []))},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
