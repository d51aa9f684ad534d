"""The README's two programs run as they are printed, and print a histogram of all points."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT, RunPython

PROGRAM = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
CHECK = """
    assert histogram.shape == (100,)
    assert histogram.sum() == 10_000_000
    print("right")
"""
PROGRAMS = PROGRAM.findall((ROOT / "README.md").read_text(encoding="utf-8"))


def test_there_are_two_programs() -> None:
    assert ["@task" in program for program in PROGRAMS] == [False, True]


@pytest.mark.backend("dask")
@pytest.mark.parametrize(
    "program",
    [pytest.param(PROGRAMS[0], marks=pytest.mark.thorough), PROGRAMS[1]],
    ids=["per-block", "split"],
)
def test_program_runs_as_printed(
    program: str, tmp_path: Path, run_python: RunPython, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The port of Dask's dashboard, if another cluster runs on this machine.
    monkeypatch.setenv("PYTHONWARNINGS", "ignore:Port 8787 is already in use:UserWarning")
    script = tmp_path / "example.py"
    script.write_text(program + CHECK, encoding="utf-8")
    done = run_python(str(script))
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\[ *\d+", done.stdout), "the program prints its histogram"
    assert done.stdout.endswith("right\n")
    # On a busy machine Dask's own processes may log errors while the cluster ends.
    assert not re.search(r"/spliter(_backends)?/", done.stderr)


MADE_WITH_THE_SITE = ROOT / "docs" / "api" / "command.md"


def test_links_to_files_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if "://" not in target
        and not (page.parent / target).exists()
        and page.parent / target != MADE_WITH_THE_SITE
    ]
    assert broken == []
