"""The page of figures: pages that quote a figure link to its record, and its command can be run."""

from __future__ import annotations

import datetime as dt
import itertools
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.conftest import ROOT, RunPython

pytest.importorskip("distributed")

from benchmarks import performance
from benchmarks.performance import MOST_PATTERNS, Figure, Page
from spliter_experiments.harness.records import Record
from spliter_experiments.harness.runner import Measurement
from spliter_experiments.harness.table import TO
from tests.experiments.test_results import record

pytestmark = pytest.mark.thorough

FIGURES = performance.read_figures()
TEXT = performance.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_the_page_links_to_the_record(figure: Figure) -> None:
    text = (ROOT / figure.page).read_text(encoding="utf-8")
    assert f"](performance.md#{figure.name})" in text
    assert Page.parse(TEXT).day_of(figure.name) > dt.date.min


def test_which_one_quotes_the_record() -> None:
    record = Page.parse(TEXT).sections["histogram-six-ways"]
    rows = [line.strip("| ").split(" | ") for line in record[1:] if line[2:3].isdigit()]
    ratios = [[float(cell.partition("±")[0]) for cell in row[2:5]] for row in rows]
    expected = [[f"{ratio:#.2g}".rstrip(".") for ratio in row] for row in ratios]
    page = (ROOT / "docs" / "which-one.md").read_text(encoding="utf-8")
    quoted = [
        line.strip("| ").split(" | ")[1:] for line in page.splitlines() if line[2:3].isdigit()
    ]
    assert len(expected) == 6
    assert [row for row in quoted if len(row) == 3] == expected


def test_names_are_unique() -> None:
    assert len({figure.name for figure in FIGURES}) == len(FIGURES)


def test_the_page_has_the_claims() -> None:
    expected = Page.parse(TEXT).write_into(TEXT, FIGURES)
    assert expected == TEXT, "python benchmarks/performance.py --list --update"


def test_options_of_the_short_form_come_last() -> None:
    figure = Figure("n", "p", "c", "spliter compare sum --rounds 5", "--rounds 2")
    variables, words = performance.words_of(figure, quick=True, folder="")
    assert variables == {}
    assert words[:4] == [sys.executable, "-m", "spliter_experiments", "compare"]
    assert words[-4:] == ["--rounds", "5", "--rounds", "2"]


def test_variables_and_who_runs_it_are_no_words() -> None:
    command = "A_B=1 sudo .venv/bin/python -m timeit -s 'x=1' x"
    figure = Figure("n", "p", "c", command, "--out {folder}/y")
    variables, words = performance.words_of(figure, quick=True, folder="/f")
    assert variables == {"A_B": "1"}
    assert words == [sys.executable, "-m", "timeit", "-s", "x=1", "x", "--out", "/f/y"]


def test_a_figure_is_measured(run_python: RunPython) -> None:
    script = ROOT / "benchmarks" / "performance.py"
    done = run_python(str(script), "--quick", "--only", "schedules-counters")
    assert done.returncode == 0, done.stderr
    assert "measured less plain" in done.stdout


def test_a_run_goes_on_after_a_failure_and_ends_with_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = {"bad": "python -c 1/0", "good": "python -c 'print(77)'"}
    figures = [Figure(name, "p", "c", what) for name, what in commands.items()]
    monkeypatch.setattr(performance, "read_figures", lambda: figures)
    with pytest.raises(SystemExit, match=r"not measured: bad$"):
        performance.main([])
    assert capsys.readouterr().out.rstrip().endswith("77\n```")
    with pytest.raises(subprocess.CalledProcessError):
        performance.measure(figures[0], quick=False)


def test_what_is_not_measured_again_stays() -> None:
    figures = [Figure(name, "p", "claim", "x") for name in ("a", "b", "c")]
    text = f"before\n{performance.BEGIN}{performance.END}\nafter"
    for name, machine, table in (
        ("c", "one", "| 1 |"),
        ("a", "two", "| 2 |"),
        ("c", "two", "| 3 |"),
    ):
        page = Page.parse(text)
        page.add(name, "2026-11-21", machine, [table], quick=False)
        text = page.write_into(text, figures)
    page = Page.parse(text)
    assert page.machines == ["one", "two"]
    assert page.sections == {
        "a": ["2026-11-21, B", "", "| 2 |"],
        "c": ["2026-11-21, B", "", "| 3 |"],
    }
    assert text.index("### a") < text.index("### c")
    assert (page.day_of("a"), page.day_of("b")) == (dt.date(2026, 11, 21), dt.date.min)
    assert text.startswith("before") and text.endswith("after")


def records_of(
    engine: str, seconds: dict[tuple[str, str, float], dict[str, float]]
) -> list[Record]:
    """Return a record for each way at each place: (app, size, x)."""
    return [
        replace(record(Measurement(1, way, taken)), engine=engine, app=app, size=size, x=x)
        for (app, size, x), ways in seconds.items()
        for way, taken in ways.items()
    ]


def test_programs_have_a_row_each() -> None:
    ways = {"dask": 3.0, "dask-rechunk": 2.0, "dask-partitioned": 1.0}
    cases = itertools.product(["programs"], ["sum", "std"], [4.0, 48.0])
    table = performance.table_of(records_of("dask", dict.fromkeys(cases, ways)))
    assert table.headings == ("dask/dask-rechunk over dask-partitioned", "4", "48", "spread")
    assert table.rows == (("std", "3/2", "3/2", "0%"), ("sum", "3/2", "3/2", "0%"))


def test_patterns_have_a_row_each() -> None:
    places = {
        ("structs pack", "", 1.0): {"llvm": 1.0, "bound": 0.5, "mpich": 2.0, "openmpi": 3.0},
        ("structs unpack", "", 2.0): {"llvm": 1.0, "bound": 1.0, "mpich": 4.0, "openmpi": 3.0},
    }
    few = performance.table_of(records_of("layout", places))
    assert few.headings == ("over llvm", "bound", "mpich", "openmpi")
    assert few.rows == (("structs", f"0.50{TO}1.00", f"2.00{TO}4.00", f"3.00{TO}3.00"),)
    numbers = range(MOST_PATTERNS + 1)
    many = {(f"{at} pack", "", x): ways for at in numbers for (_, _, x), ways in places.items()}
    table = performance.table_of(records_of("layout", many))
    assert table.headings == ("pattern", "MPI over bound", "MPI over llvm")
    assert table.rows[0] == ("0", f"3.00{TO}4.00", f"2.00{TO}3.00")
    assert "bound: at least as fast as MPI in 14 of 14 cases" in table.caption
