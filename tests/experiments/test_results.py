"""Results survive the way through their files, and are shown in full."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.container import ErrorbarContainer
from matplotlib.patches import Rectangle
from rich.console import Console

from spliter_experiments.compare.results import (
    Comparison,
    Stand,
    long_table,
    make_folder,
    read_results,
    write_results,
)
from spliter_experiments.harness.errors import ResultsError
from spliter_experiments.harness.facts import Facts, facts
from spliter_experiments.harness.plot import draw, write_plot
from spliter_experiments.harness.runner import Measurement
from spliter_experiments.harness.table import comparison_table

SECONDS = {"spliter": 1.0, "rechunk-p2p": 2.0, "floor": 0.5}


def measured(way: str, number: int, scale: float) -> Measurement:
    seconds = SECONDS[way] * scale * (1 + number / 100)
    if way == "floor":
        return Measurement(number, way, seconds, None, None)
    phases = {"rechunk": seconds / 2} if way == "rechunk-p2p" else {}
    return Measurement(number, way, seconds, 7, 1_500_000 * number, phases)


def stand(per_core: int, scale: float = 1.0) -> Stand:
    # Rounds are shuffled: the order of the ways in them is not that of the comparison.
    ways = ["floor", "rechunk-p2p", "spliter"]
    runs = [measured(way, number, scale) for number in (1, 2, 3) for way in ways]
    return Stand(per_core, per_core * 2, tuple(runs))


COMPARISON = Comparison(
    app="histogram",
    settings={
        "input": "a file",
        "rows": 10,
        "columns": ["x", "y"],
        "seed": 0,
        "command": "spliter",
    },
    ways=("spliter", "rechunk-p2p", "floor"),
    stands=(stand(1), stand(48, 2.0)),
    facts=Facts({"python": "3"}, "Linux", "some processor", 2, 10**9),
)


def test_files_read_back_as_what_was_written(tmp_path: Path) -> None:
    files = write_results(COMPARISON, tmp_path)
    assert [file.name for file in files] == ["results.parquet", "summary.json"]
    assert read_results(tmp_path) == COMPARISON


def test_one_stand_and_no_phases_read_back_too(tmp_path: Path) -> None:
    runs = tuple(Measurement(number, "spliter", 1.0, 3, 0) for number in (1, 2))
    small = replace(COMPARISON, ways=("spliter",), stands=(Stand(4, 8, runs),))
    write_results(small, tmp_path)
    assert read_results(tmp_path) == small


def test_long_table_has_one_row_per_run(tmp_path: Path) -> None:
    write_results(COMPARISON, tmp_path)
    table = pd.read_parquet(tmp_path / "results.parquet")
    assert len(table) == 2 * 3 * 3
    assert list(table) == [
        "app",
        "blocks_per_core",
        "blocks",
        "round",
        "way",
        "seconds",
        "tasks",
        "bytes_moved",
        "rechunk_seconds",
    ]
    floor = table[table["way"] == "floor"]
    assert floor["tasks"].isna().all()
    assert floor["rechunk_seconds"].isna().all()
    p2p = table[(table["way"] == "rechunk-p2p") & (table["round"] == 2)]
    assert list(p2p["bytes_moved"]) == [3_000_000, 3_000_000]
    pd.testing.assert_frame_equal(table, long_table(COMPARISON), check_dtype=False)


def test_summary_says_what_ran_on_what(tmp_path: Path) -> None:
    write_results(COMPARISON, tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert summary["facts"] == {
        "versions": {"python": "3"},
        "system": "Linux",
        "processor": "some processor",
        "cores": 2,
        "memory": 10**9,
    }
    assert summary["settings"]["columns"] == ["x", "y"]
    first, second = summary["stands"]
    assert (first["blocks_per_core"], second["blocks"]) == (1, 96)
    assert list(first["ways"]) == ["spliter", "rechunk-p2p", "floor"]
    p2p = second["ways"]["rechunk-p2p"]
    assert p2p["median_seconds"] == pytest.approx(4.08)
    assert p2p["over_floor"] == pytest.approx(4.0)
    assert p2p["over_spliter"] == pytest.approx(2.0)
    assert p2p["phases_seconds"]["rechunk"] == pytest.approx(2.04)


def test_facts_of_this_machine() -> None:
    found = facts()
    assert {"python", "spliter", "numpy", "dask", "distributed"} <= set(found.versions)
    assert all(found.versions.values())
    assert found.cores >= 1
    assert found.memory > 2**20
    assert found.processor


def test_folder_that_holds_no_results(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="holds no results"):
        read_results(tmp_path)
    write_results(COMPARISON, tmp_path)
    (tmp_path / "summary.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ResultsError, match="holds no results"):
        read_results(tmp_path)


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for make in (make_folder, lambda folder: write_results(COMPARISON, folder)):
        with pytest.raises(ResultsError, match="cannot write results"):
            make(tmp_path / "file" / "results")


def shown(comparison: Comparison, width: int = 80) -> str:
    console = Console(width=width, record=True)
    with console.capture() as capture:
        console.print(comparison_table(comparison, "the title"))
    return capture.get()


def test_table_of_a_sweep_fits_80_columns() -> None:
    text = shown(COMPARISON)
    assert "…" not in text
    lines = [line.split() for line in text.splitlines()]
    assert lines[0] == ["the", "title"]
    assert ["1", "spliter", "1.02", "1.02", "1.02", "2.00", "1.00", "7", "3.00", "MB", "-"] in lines
    assert ["floor", "0.510", "0.508", "0.512", "1.00", "0.50", "-", "-", "-"] in lines
    assert [line[0] for line in lines if line and line[0] in ("1", "48")] == ["1", "48"]


def test_table_without_floor_and_spliter_has_no_ratios() -> None:
    runs = tuple(measured("rechunk-p2p", number, 1.0) for number in (1, 2, 3))
    alone = replace(COMPARISON, ways=("rechunk-p2p",), stands=(Stand(4, 8, runs),))
    lines = [line.split() for line in shown(alone).splitlines()]
    assert "blocks" not in shown(alone)
    way = ["rechunk-p2p", "2.04", "2.03", "2.05", "-", "-", "7", "3.00", "MB", "1.02"]
    assert way in lines


def test_plot_of_a_sweep_has_a_line_with_whiskers_for_each_way(tmp_path: Path) -> None:
    (axes,) = draw(COMPARISON, "the title").axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    _, labels = axes.get_legend_handles_labels()
    assert labels == list(COMPARISON.ways)
    first = axes.containers[0]
    assert isinstance(first, ErrorbarContainer)
    line = first.lines[0]
    assert np.asarray(line.get_xdata()).tolist() == [1, 48]
    assert np.asarray(line.get_ydata()) == pytest.approx([1.02, 2.04])
    files = write_plot(COMPARISON, tmp_path, "the title")
    assert [file.name for file in files] == ["histogram.png", "histogram.svg"]
    assert (tmp_path / "histogram.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "histogram.svg").read_text(encoding="utf-8")


def test_plot_of_one_blocking_has_a_bar_for_each_way_and_a_dot_for_each_run() -> None:
    single = replace(COMPARISON, stands=COMPARISON.stands[:1])
    (axes,) = draw(single, "the title").axes
    assert [label.get_text() for label in axes.get_yticklabels()] == list(single.ways)
    bars = [bar.get_width() for bar in axes.patches if isinstance(bar, Rectangle)]
    assert bars == pytest.approx([1.02, 2.04, 0.51])
    assert np.size(axes.lines[-1].get_xdata()) == 9


def test_plot_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="cannot write the plot"):
        write_plot(COMPARISON, tmp_path / "missing", "the title")
