"""The page of figures: pages that quote a figure link to its record, and its command can be run."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys

import pytest

from tests.conftest import ROOT, RunPython

pytest.importorskip("distributed")

from benchmarks import performance

pytestmark = pytest.mark.thorough

FIGURES = performance.read_figures()


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_the_page_links_to_the_record(figure: performance.Figure) -> None:
    text = (ROOT / figure.page).read_text(encoding="utf-8")
    assert f"](performance.md#{figure.name})" in text
    assert figure.name in performance.sections_of(performance.PAGE.read_text(encoding="utf-8"))


def test_which_one_quotes_the_record() -> None:
    record = performance.sections_of(performance.PAGE.read_text(encoding="utf-8"))
    rows = [line.strip("| ").split(" | ") for line in record["histogram-six-ways"] if "(" in line]
    ratios = [[float(cell.split()[0]) for cell in row[2:5]] for row in rows if row[0].isdigit()]
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
    text = performance.PAGE.read_text(encoding="utf-8")
    assert "\n".join(performance.claims_table(FIGURES)) in text, (
        "python benchmarks/performance.py --list --update"
    )


def test_options_of_the_short_form_come_last() -> None:
    figure = performance.Figure("n", "p", "c", "spliter compare sum --rounds 5", "--rounds 2")
    variables, words = performance.words_of(figure, quick=True, folder="")
    assert variables == {}
    assert words[:4] == [sys.executable, "-m", "spliter_experiments", "compare"]
    assert words[-4:] == ["--rounds", "5", "--rounds", "2"]


def test_variables_and_who_runs_it_are_no_words() -> None:
    command = "A_B=1 sudo .venv/bin/python -m timeit -s 'x=1' x"
    figure = performance.Figure("n", "p", "c", command, "--out {folder}/y")
    variables, words = performance.words_of(figure, quick=True, folder="/f")
    assert variables == {"A_B": "1"}
    assert words == [sys.executable, "-m", "timeit", "-s", "x=1", "x", "--out", "/f/y"]


def test_between_the_marks() -> None:
    page = "a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n"
    once = performance.replace_between(page, "x", ["new"])
    assert once == "a\n<!-- x: begin -->\n\nnew\n\n<!-- x: end -->\nb\n"
    assert performance.replace_between(once, "x", ["new"]) == once


def test_a_figure_is_measured(run_python: RunPython) -> None:
    script = ROOT / "benchmarks" / "performance.py"
    done = run_python(str(script), "--quick", "--only", "schedules-counters")
    assert done.returncode == 0, done.stderr
    assert "counters, per block" in done.stdout


def test_a_figure_that_cannot_be_measured_is_said() -> None:
    figure = performance.Figure("n", "p", "c", "python -c 1/0", "")
    with pytest.raises(subprocess.CalledProcessError):
        performance.measure(figure, quick=False)
    assert "not measured: CalledProcessError" in list(performance.section(figure, quick=False))


def test_a_run_goes_on_after_that_and_ends_with_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = {"bad": "python -c 1/0", "good": "python -c 'print(77)'"}
    figures = [performance.Figure(name, "p", "c", what, "") for name, what in commands.items()]
    monkeypatch.setattr(performance, "read_figures", lambda: figures)
    with pytest.raises(SystemExit, match=r"not measured: bad$"):
        performance.main([])
    assert capsys.readouterr().out.rstrip().endswith("77\n```")


def test_what_is_not_measured_again_stays() -> None:
    figures = [performance.Figure(name, "p", "c", "x", "") for name in ("a", "b", "c")]
    page = "<!-- figures: begin -->\n<!-- figures: end -->\n"
    for measured in ({"c": ["3", "", "4"]}, {"a": ["1"]}, {"gone": ["9"], "c": ["5"]}):
        sections = {**performance.sections_of(page), **measured}
        page = performance.replace_between(page, "figures", performance.page_of(figures, sections))
    assert performance.sections_of(page) == {"a": ["1"], "c": ["5"]}
    assert page.index("### a") < page.index("### c")


def test_going_on_with_a_run_that_ended_early() -> None:
    figures = [performance.Figure(name, "p", "c", "x", "") for name in ("a", "b", "c", "d")]
    sections = {
        "a": ["`x`", "", "2026-11-21: the full form, on a machine; python 3.11", "", "| 4 | 1 |"],
        "b": ["`x`", "", "2026-11-22: the full form, on a machine; python 3.11", "", "| 4 | 1 |"],
        "c": ["`x`", "", "2026-11-22: the full form, on a machine", "", "not measured: Error"],
    }
    left = performance.older_than(dt.date(2026, 11, 22), figures, sections)
    assert [figure.name for figure in left] == ["a", "c", "d"]


def test_when_the_figures_of_the_page_were_measured() -> None:
    sections = performance.sections_of(performance.PAGE.read_text(encoding="utf-8"))
    assert None not in map(performance.day_of, sections.values())
