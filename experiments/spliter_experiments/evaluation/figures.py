"""Draw the figures of the paper from the medians of runs, as PNG and SVG."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from spliter_experiments.evaluation.catalog import file_stem
from spliter_experiments.evaluation.schema import Scenario
from spliter_experiments.evaluation.statistics import Bar
from spliter_experiments.harness.errors import ResultsError

SUFFIXES = (".png", ".svg")

COLOURS: Mapping[str, str] = {
    "baseline": "#d55e00",
    "baseline-paper": "#882255",
    "rechunk": "#009e73",
    "spliter": "#0072b2",
    "materialized": "#88ccee",
    "fit": "#b59a6c",
    "kneighbors": "#cc79a7",
}
"""Told apart by colour-blind readers too."""

HATCHES = ("", "//", "..", "xx")
"""Of engines: the first one's bars are plain."""

MARKERS = ("o", "s", "^", "D", "v")

LABELS: Mapping[str, str] = {
    "nodes": "nodes",
    "blocks_per_core": "blocks per core",
    "blocks_per_node": "blocks per node to learn from",
    "rows": "points in the tree",
}

STICKS_OUT = 4.0
"""A bar is cut where it is so many times as high as the highest that is not."""


def write_figure(scenario: Scenario, bars: Sequence[Bar], folder: Path, note: str) -> list[Path]:
    """Draw a figure into ``figNN.png`` and ``figNN.svg``.

    Parameters
    ----------
    scenario : Scenario
        Says what it looks like.
    bars : sequence of Bar
        What it shows.
    folder : Path
        Where the files go.
    note : str
        Second line of the title: on what it was measured, or that it was not.

    Raises
    ------
    ResultsError
        If they cannot be written.
    """
    figure = draw(scenario, bars, note)
    files = [folder / f"{file_stem(scenario.figure)}{suffix}" for suffix in SUFFIXES]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            # Without the date, the same runs make the same file.
            metadata = {"Date": None} if file.suffix == ".svg" else None
            figure.savefig(file, dpi=150, metadata=metadata)
    except OSError as error:
        raise ResultsError(f"cannot write the figure to {folder}: {error}") from error
    return files


def draw(scenario: Scenario, bars: Sequence[Bar], note: str) -> Figure:
    """Return the figure."""
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    axes = figure.subplots()
    if scenario.y == "seconds":
        _draw_bars(axes, scenario, bars)
    else:
        _draw_lines(axes, bars)
    name = "Table 1" if scenario.figure == "table1" else f"Figure {scenario.figure}"
    axes.set_title(f"{name}. {scenario.title}\n{note}", fontsize=10, loc="left", parse_math=False)
    axes.set_xlabel(LABELS[scenario.x])
    axes.grid(visible=True, axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    for side in "top", "right":
        axes.spines[side].set_visible(False)
    if len(_groups(bars)) > 1:
        axes.legend(fontsize=9, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _groups(bars: Sequence[Bar]) -> list[tuple[str, str]]:
    """Return engine and configuration of each group, in the order in which they come."""
    return list(dict.fromkeys((bar.engine, bar.configuration) for bar in bars))


def _label(bars: Sequence[Bar], engine: str, configuration: str) -> str:
    several = len({bar.engine for bar in bars}) > 1
    return f"{engine}: {configuration}" if several else configuration


def _draw_bars(axes: Axes, scenario: Scenario, bars: Sequence[Bar]) -> None:
    """Draw bars in groups, with quartiles; what sticks out is cut and bears its value."""
    places = sorted({bar.x for bar in bars})
    groups = _groups(bars)
    engines = list(dict.fromkeys(engine for engine, _ in groups))
    top = _top(bars) if scenario.axis == "cut" else None
    width = 0.8 / len(groups)
    for number, (engine, configuration) in enumerate(groups):
        mine = [bar for bar in bars if (bar.engine, bar.configuration) == (engine, configuration)]
        at = [places.index(bar.x) + (number - (len(groups) - 1) / 2) * width for bar in mine]
        heights = [bar.median for bar in mine]
        below = [bar.median - bar.lower for bar in mine]
        above = [bar.upper - bar.median for bar in mine]
        axes.bar(
            at,
            heights,
            width,
            yerr=(below, above),
            color=COLOURS[configuration],
            hatch=HATCHES[engines.index(engine) % len(HATCHES)],
            edgecolor="white",
            linewidth=0.5,
            capsize=2,
            error_kw={"elinewidth": 0.8},
            label=_label(bars, engine, configuration),
        )
        for x, height in zip(at, heights, strict=True):
            if top is not None and height > top:
                axes.text(
                    x,
                    top * 0.97,
                    f"{height:.3g} s",
                    rotation=90,
                    ha="center",
                    va="top",
                    fontsize=8,
                    color="white",
                    weight="bold",
                    clip_on=True,
                )
    axes.set_xticks(range(len(places)), [f"{place:,.6g}" for place in places])
    axes.set_ylabel("seconds (median, quartiles)")
    if scenario.axis == "log":
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    elif top is not None:
        axes.set_ylim(0, top)


def _top(bars: Sequence[Bar]) -> float | None:
    """Return where to cut the axis, if a few bars would leave the others flat."""
    heights = sorted(bar.upper for bar in bars)
    for lower, higher in itertools.pairwise(heights):
        most_fit = heights.index(higher) >= len(heights) / 2
        if most_fit and higher > STICKS_OUT * lower:
            return lower * 1.3
    return None


def _draw_lines(axes: Axes, bars: Sequence[Bar]) -> None:
    """Draw blocks per second, with quartiles."""
    for number, (engine, configuration) in enumerate(_groups(bars)):
        mine = [bar for bar in bars if (bar.engine, bar.configuration) == (engine, configuration)]
        rates = np.array([bar.blocks / bar.median for bar in mine])
        lowest = np.array([bar.blocks / bar.upper for bar in mine])
        highest = np.array([bar.blocks / bar.lower for bar in mine])
        axes.errorbar(
            [bar.x for bar in mine],
            rates,
            yerr=(rates - lowest, highest - rates),
            color=COLOURS[configuration],
            marker=MARKERS[number % len(MARKERS)],
            capsize=3,
            label=_label(bars, engine, configuration),
        )
    axes.set_xticks(sorted({bar.x for bar in bars}))
    axes.set_ylim(bottom=0)
    axes.set_ylabel("blocks learnt from per second")
