"""Records are summed up, shown in one table, and drawn in one plot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer
from rich.console import Console

from spliter_experiments.harness.errors import ResultsError
from spliter_experiments.harness.facts import Facts, facts
from spliter_experiments.harness.plot import Style, draw, write_plot
from spliter_experiments.harness.records import COMPARE, Record, ResultsFolder, record_of
from spliter_experiments.harness.runner import Measurement
from spliter_experiments.harness.summary import Summary, summarise
from spliter_experiments.harness.table import BELOW_FLOOR, summary_grid

WAYS = ("spliter", "rechunk-p2p", "floor")
SECONDS = {"spliter": 1.0, "rechunk-p2p": 2.0, "floor": 0.5}
FACTS = Facts({"python": "3"}, "Linux", "some processor", 2, 10**9)
SWEEP = Style("the title", "blocks per core", "lines", scale="log", caption="a\nb")


def record(run: Measurement, per_core: float = 1.0) -> Record:
    plan: dict[str, Any] = dict.fromkeys(("workers", "threads", "nodes", "rows", "queries"), 1)
    plan |= {"run_id": f"{run.way}-{per_core:g}-{run.round}", "figure": COMPARE, "size": ""}
    plan |= {"app": "histogram", "plan_digest": "d", "engine": "dask", "way": run.way, "seed": 0}
    plan |= {"configuration": run.way, "blocks": 2, "blocks_per_core": per_core, "x": per_core}
    return record_of(run, FACTS, "spliter", **plan)


def measured(way: str, number: int, scale: float) -> Measurement:
    seconds = SECONDS[way] * scale * (1 + number / 100)
    if way == "floor":
        return Measurement(number, way, seconds)
    phases = {"rechunk": seconds / 2} if way == "rechunk-p2p" else {}
    return Measurement(number, way, seconds, 7, 1_500_000 * number, phases)


# Rounds are shuffled: the order of the ways in them is not that of the table.
RECORDS = [
    record(measured(way, number, scale), per_core)
    for per_core, scale in ((1.0, 1.0), (48.0, 2.0))
    for number in (1, 2, 3)
    for way in ("floor", "rechunk-p2p", "spliter")
]


def of_one_way(*seconds: float, **counted: Any) -> Summary:
    runs = [Measurement(number, "a", value, **counted) for number, value in enumerate(seconds)]
    (found,) = summarise([record(run) for run in runs], ["a"])
    return found


def test_summary_is_median_and_quartiles() -> None:
    found = of_one_way(5.0, 1.0, 2.0, 4.0, 3.0, tasks=4, nbytes=30)
    assert (found.lower, found.median, found.upper, found.runs) == (2.0, 3.0, 4.0, 5)
    assert (found.tasks, found.nbytes, found.peak) == (4, 30, None)
    assert of_one_way(6.0).tasks is None


def test_quartiles_of_an_even_number_are_interpolated() -> None:
    found = of_one_way(1.0, 2.0, 3.0, 4.0)
    assert (found.lower, found.median, found.upper) == (1.75, 2.5, 3.25)


def test_phase_that_only_some_runs_report() -> None:
    some = [Measurement(1, "a", 1.0, phases={"rechunk": 3.0}), Measurement(2, "a", 1.0)]
    (found,) = summarise([record(run) for run in some], ["a"])
    assert found.phases["rechunk"] == 3.0
    assert "split" not in found.phases


def test_a_way_below_the_floor_is_said_to_be_noise() -> None:
    runs = [measured(way, 1, 1.0) for way in WAYS]
    assert summary_grid(summarise(list(map(record, runs)), WAYS), "rows", "s").caption == "s"
    runs[0] = Measurement(1, "spliter", 0.46)
    grid = summary_grid(summarise(list(map(record, runs)), WAYS), "rows", "s")
    assert grid.rows[0][grid.headings.index("over floor")] == "0.91"
    assert grid.caption == f"s\n{BELOW_FLOOR}"


def test_ways_come_in_the_order_asked_for() -> None:
    found = summarise(RECORDS, WAYS)
    assert [(one.x, one.configuration) for one in found] == [
        (x, way) for x in (1.0, 48.0) for way in WAYS
    ]


def test_facts_of_this_machine() -> None:
    found = facts()
    assert {"python", "spliter", "numpy", "dask", "distributed"} <= set(found.versions)
    assert all(found.versions.values())
    assert found.cores >= 1
    assert found.memory > 2**20
    assert found.processor


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = ResultsFolder(tmp_path / "file" / "results")
    with pytest.raises(ResultsError, match="cannot write results"):
        folder.make()
    with pytest.raises(ResultsError, match="cannot write"):
        folder.append(RECORDS[0])


def shown(summaries: list[Summary]) -> str:
    console = Console(width=80, record=True)
    grid = summary_grid(summaries, "blocks / core", "times in seconds")
    with console.capture() as capture:
        console.print(grid.without("runs", "init", "iterate", "split").terminal("the title"))
    return capture.get()


def test_table_of_a_sweep_fits_80_columns() -> None:
    text = shown(summarise(RECORDS, WAYS))
    assert "…" not in text
    lines = [line.split() for line in text.splitlines()]
    assert lines[0] == ["the", "title"]
    assert ["1", "spliter", "1.02", "1.02", "1.02", "2.00", "1.00", "-", "7", "3.00", "MB"] in lines
    assert ["floor", "0.510", "0.508", "0.512", "1.00", "0.50", "-", "-", "-"] in lines
    assert [line[0] for line in lines if line and line[0] in ("1", "48")] == ["1", "48"]


def test_table_without_floor_and_spliter_has_no_ratios() -> None:
    alone = [one for one in RECORDS if one.way == "rechunk-p2p" and one.x == 1]
    text = shown(summarise(alone, WAYS))
    assert "over" not in text
    assert "rechunk-p2p 2.04" in " ".join(text.split())


def test_plot_of_a_sweep_has_a_line_with_whiskers_for_each_way(tmp_path: Path) -> None:
    summaries = summarise(RECORDS, WAYS)
    (axes,) = draw(summaries, SWEEP).axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    _, labels = axes.get_legend_handles_labels()
    assert labels == list(WAYS)
    first = axes.containers[0]
    assert isinstance(first, ErrorbarContainer)
    line = first.lines[0]
    assert np.asarray(line.get_xdata()).tolist() == [1, 48]
    assert np.asarray(line.get_ydata()) == pytest.approx([1.02, 2.04])
    files = write_plot(summaries, SWEEP, tmp_path, "histogram")
    assert [file.name for file in files] == ["histogram.png", "histogram.svg"]
    assert (tmp_path / "histogram.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "histogram.svg").read_text(encoding="utf-8")


def test_plot_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ResultsError, match="cannot write the plot"):
        write_plot(summarise(RECORDS, WAYS), SWEEP, tmp_path / "file", "histogram")


def test_runs_of_what_was_not_to_be_run_are_named() -> None:
    with pytest.raises(ResultsError, match=r"runs of .*, but only a were to be run"):
        summarise(RECORDS, ["a"])
