"""The README's programs run as they are printed, and print their results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT, RunPython

PROGRAM = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
HISTOGRAM = """
    assert histogram.shape == (100,)
    assert histogram.sum() == 10_000_000
    print("right")
"""
DEVIATION = """
    assert deviation.shape == (4,)
    assert abs(deviation - 12**-0.5).max() < 0.01
    print("right")
"""
PROGRAMS = PROGRAM.findall((ROOT / "README.md").read_text(encoding="utf-8"))


def test_there_are_three_programs() -> None:
    assert ["@task" in program for program in PROGRAMS] == [False, True, False]
    assert ["partitioned(" in program for program in PROGRAMS] == [False, False, True]


@pytest.mark.backend("dask")
@pytest.mark.parametrize(
    ("program", "check"),
    [
        pytest.param(PROGRAMS[0], HISTOGRAM, marks=pytest.mark.thorough),
        (PROGRAMS[1], HISTOGRAM),
        (PROGRAMS[2], DEVIATION),
    ],
    ids=["per-block", "split", "partitioned"],
)
def test_program_runs_as_printed(
    program: str, check: str, tmp_path: Path, run_python: RunPython, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The port of Dask's dashboard, if another cluster runs on this machine.
    monkeypatch.setenv("PYTHONWARNINGS", "ignore:Port 8787 is already in use:UserWarning")
    script = tmp_path / "example.py"
    script.write_text(program + check, encoding="utf-8")
    done = run_python(str(script))
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\[ *\d+", done.stdout), "the program prints its result"
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
