"""The README's example runs as it is printed, and its result is a histogram."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT, RunPython

EXAMPLE = re.compile(r"<!-- example: [^\n]*-->\n```python\n(.*?)```", re.DOTALL)
CHECK = """
    assert histogram.shape == (100,)
    assert histogram.sum() == 10_000_000
    print("right")
"""


@pytest.mark.backend("dask")
def test_example_runs_as_printed(tmp_path: Path, run_python: RunPython) -> None:
    found = EXAMPLE.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(found) == 1, "the README has one example marked to be run"
    script = tmp_path / "example.py"
    script.write_text(found[0] + CHECK, encoding="utf-8")
    done = run_python(str(script))
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\[ *\d+", done.stdout), "the program prints its histogram"
    assert done.stdout.endswith("right\n")
    assert done.stderr == ""


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
