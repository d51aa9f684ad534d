from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from spliter_experiments.evaluation.catalog import parse_scenario
from spliter_experiments.evaluation.report import style_of, write_report
from spliter_experiments.harness.errors import ResultsError
from spliter_experiments.harness.plot import draw
from spliter_experiments.harness.summary import Summary
from tests.evaluation.scenes import SMALL, pretended
from tests.evaluation.test_verdicts import bar


class Page(HTMLParser):
    """Notes what a page loads, and whether its elements are closed in order."""

    VOID = frozenset({"meta", "img", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.loaded += [value for name in ("src",) if (value := given.get(name))]
        self.links += [value for name in ("href",) if (value := given.get(name))]
        self.ids += [value for name in ("id",) if (value := given.get(name))]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def axes_of(text: str, bars: list[Summary]) -> Axes:
    (axes,) = draw(bars, style_of(parse_scenario(text, "small"), "note")).axes
    return axes


def test_files_of_a_report(tmp_path: Path) -> None:
    results = pretended(tmp_path)
    files = [str(file.relative_to(results.path)) for file in write_report(results)]
    assert files == [
        "results.parquet",
        "figures/laptop/fig09.png",
        "figures/laptop/fig09.svg",
        "report.html",
    ]
    assert (results.path / files[1]).read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (results.path / files[2]).read_text()


def test_the_page_needs_no_other_file(tmp_path: Path) -> None:
    results = pretended(tmp_path)
    write_report(results)
    text = (results.path / "report.html").read_text()
    page = Page(text)
    assert not page.open
    assert page.loaded
    assert all(source.startswith("data:image/svg+xml;base64,") for source in page.loaded)
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    assert not re.search(r"https?://(?!github)", text)


def test_what_is_wide_scrolls_by_itself(tmp_path: Path) -> None:
    results = pretended(tmp_path)
    write_report(results)
    text = (results.path / "report.html").read_text()
    wide = re.findall(r"<(?:img|table)\b", text)
    assert len(wide) > 3
    assert len(re.findall(r'<div class="scroll"[^>]*><(?:img|table)\b', text)) == len(wide)


def test_the_page_has_table_reading_and_verdict(tmp_path: Path) -> None:
    results = pretended(tmp_path)
    write_report(results)
    text = (results.path / "report.html").read_text()
    assert "One task per block gets slower." in text
    assert "Holds on dask: one task per block gets slower (2.00 times" in text
    assert "2 of 3 findings of the paper hold here." in text
    assert "planned runs are missing" not in text


def test_missing_runs_are_said(tmp_path: Path) -> None:
    results = pretended(tmp_path)
    for file in sorted((results.path / "runs").iterdir())[:3]:
        file.unlink()
    write_report(results)
    assert "3 planned runs are missing" in (results.path / "report.html").read_text()


def test_names_from_scenarios_are_text(tmp_path: Path) -> None:
    results = pretended(tmp_path, SMALL.replace('title = "Small"', 'title = "<b>&"'))
    write_report(results)
    assert "<b>&" not in (results.path / "report.html").read_text()


def test_the_same_runs_make_the_same_picture(tmp_path: Path) -> None:
    results = pretended(tmp_path)
    picture = results.path / "figures/laptop/fig09.png"
    write_report(results)
    before = picture.read_bytes()
    write_report(results)
    assert picture.read_bytes() == before


def test_no_room_for_the_figure(tmp_path: Path) -> None:
    results = pretended(tmp_path)
    (results.path / "figures").write_text("in the way")
    with pytest.raises(ResultsError, match="cannot write the plot"):
        write_report(results)


def test_bars_are_medians_and_whiskers_are_quartiles() -> None:
    axes = axes_of(SMALL, [bar("baseline", 1, 2.0), bar("spliter", 1, 1.0)])
    assert [patch.get_height() for patch in axes.patches] == [2.0, 1.0]  # type: ignore[attr-defined]
    whiskers = [child for child in axes.collections if isinstance(child, LineCollection)]
    (segment,) = whiskers[0].get_segments()
    assert segment[:, 1].tolist() == pytest.approx([1.8, 2.4])


def test_a_log_axis_where_the_scenario_has_it() -> None:
    bars = [bar("baseline", 1, 1.0), bar("spliter", 1, 2.0)]
    assert axes_of(SMALL.replace("seed = 7", 'axis = "log"'), bars).get_yscale() == "log"


def test_blocks_per_second_are_lines() -> None:
    bars = [bar("baseline", 2, 4.0), bar("baseline", 4, 4.0), bar("spliter", 2, 1.0)]
    axes = axes_of(SMALL.replace("seed = 7", 'y = "blocks-per-second"'), bars)
    assert np.asarray(axes.lines[0].get_ydata()).tolist() == [0.5, 1.0]


def test_engines_are_told_apart() -> None:
    bars = [bar("spliter", 1, 1.0), bar("spliter", 1, 2.0, engine="dataclay")]
    axes = axes_of(SMALL, bars)
    assert {patch.get_hatch() for patch in axes.patches} == {"", "//"}
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "dask: spliter",
        "dataclay: spliter",
    ]
