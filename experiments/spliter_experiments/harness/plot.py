"""Plot medians and quartiles of measurements as bars or lines, into PNG and SVG files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from spliter_experiments.harness.errors import ResultsError
from spliter_experiments.harness.summary import Summary

LOOKS = {
    "spliter": ("#0072b2", "o"),
    "spliter-materialized": ("#332288", "p"),
    "spliter-auto": ("#88ccee", "*"),
    "materialized": ("#88ccee", "*"),
    "per-block": ("#d55e00", "s"),
    "baseline": ("#d55e00", "s"),
    "per-block-paper": ("#882255", "h"),
    "baseline-paper": ("#882255", "h"),
    "rechunk-p2p": ("#009e73", "^"),
    "rechunk": ("#009e73", "^"),
    "rechunk-tasks": ("#56b4e9", "v"),
    "by-hand": ("#117733", "<"),
    "dask": ("#cc79a7", "D"),
    "dask-fused": ("#aa4499", "X"),
    "dask-rechunk": ("#009e73", "^"),
    "dask-partitioned": ("#0072b2", "H"),
    "dask-ml": ("#cc79a7", "d"),
    "fit": ("#b59a6c", "o"),
    "kneighbors": ("#cc79a7", "s"),
    "sklearn": ("#999933", "+"),
    "floor": ("#444444", "x"),
}
"""Colour (from a palette for colour-blind readers) and marker of each way."""

OTHER_LOOK = ("#e69f00", "P")

OFF_CLUSTER = ("sklearn", "floor")
"""Ways drawn as dashed lines, because they do not run on the cluster."""

HATCHES = ("", "//", "..", "xx")
"""Bar hatches, one per engine in the plot."""

SUFFIXES = (".png", ".svg")


@dataclass(frozen=True)
class Style:
    """Title, axes and scale of a plot, and text below it.

    Lines with ``"log"`` have a logarithmic x-axis too.
    """

    title: str
    x: str
    kind: Literal["bars", "lines"] = "bars"
    y: Literal["seconds", "blocks-per-second"] = "seconds"
    scale: Literal["linear", "log"] = "linear"
    caption: str = ""


def write_plot(summaries: Sequence[Summary], style: Style, folder: Path, stem: str) -> list[Path]:
    """Plot into ``<stem>.png`` and ``<stem>.svg``, and return the files."""
    figure = draw(summaries, style)
    files = [folder / f"{stem}{suffix}" for suffix in SUFFIXES]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            # Omit the date, so that the same runs give the same file.
            metadata = {"Date": None} if file.suffix == ".svg" else None
            figure.savefig(file, dpi=150, metadata=metadata)
    except OSError as error:
        raise ResultsError(f"cannot write the plot to {folder}: {error}") from error
    return files


def draw(summaries: Sequence[Summary], style: Style) -> Figure:
    figure = Figure(figsize=(8, 4.6 + 0.12 * style.caption.count("\n")), layout="constrained")
    axes = figure.subplots()
    (_draw_bars if style.kind == "bars" else _draw_lines)(axes, summaries, style)
    axes.set_title(style.title, fontsize=10, loc="left", parse_math=False)
    axes.set_xlabel(style.x)
    axes.set_ylabel("seconds (median, quartiles)" if style.y == "seconds" else "blocks per second")
    axes.grid(visible=True, axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    for side in "top", "right":
        axes.spines[side].set_visible(False)
    if len(_groups(summaries)) > 1:
        axes.legend(fontsize=9, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    if style.caption:
        figure.supxlabel(style.caption, fontsize=7, x=0.01, ha="left", color="0.35")
    return figure


def _groups(summaries: Sequence[Summary]) -> list[list[Summary]]:
    groups: dict[tuple[str, str], list[Summary]] = {}
    for one in summaries:
        groups.setdefault((one.engine, one.configuration), []).append(one)
    return list(groups.values())


def _label(summaries: Sequence[Summary], one: Summary) -> str:
    several = len({other.engine for other in summaries}) > 1
    return f"{one.engine}: {one.configuration}" if several else one.configuration


def _values(group: Sequence[Summary], style: Style) -> tuple[list[float], list[list[float]]]:
    """Return the heights of a group, and the distances of the quartiles below and above them."""
    rate = style.y == "blocks-per-second"
    middle = [one.blocks / one.median if rate else one.median for one in group]
    low = [one.blocks / one.upper if rate else one.lower for one in group]
    high = [one.blocks / one.lower if rate else one.upper for one in group]
    below = [m - at for m, at in zip(middle, low, strict=True)]
    above = [at - m for m, at in zip(middle, high, strict=True)]
    return middle, [below, above]


def _draw_bars(axes: Axes, summaries: Sequence[Summary], style: Style) -> None:
    places = sorted({one.x for one in summaries})
    groups = _groups(summaries)
    engines = list(dict.fromkeys(one.engine for one in summaries))
    width = 0.8 / len(groups)
    for number, group in enumerate(groups):
        at = [places.index(one.x) + (number - (len(groups) - 1) / 2) * width for one in group]
        heights, whiskers = _values(group, style)
        axes.bar(
            at,
            heights,
            width,
            yerr=whiskers,
            color=LOOKS.get(group[0].configuration, OTHER_LOOK)[0],
            hatch=HATCHES[engines.index(group[0].engine) % len(HATCHES)],
            edgecolor="white",
            linewidth=0.5,
            capsize=2,
            error_kw={"elinewidth": 0.8},
            label=_label(summaries, group[0]),
        )
    axes.set_xticks(range(len(places)), [f"{place:,.6g}" for place in places])
    if style.scale == "log":
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _draw_lines(axes: Axes, summaries: Sequence[Summary], style: Style) -> None:
    for group in _groups(summaries):
        name = group[0].configuration
        colour, marker = LOOKS.get(name, OTHER_LOOK)
        middle, whiskers = _values(group, style)
        axes.errorbar(
            [one.x for one in group],
            middle,
            yerr=whiskers,
            label=_label(summaries, group[0]),
            color=colour,
            marker=marker,
            markersize=6,
            capsize=3,
            linewidth=2.4 if name == "spliter" else 1.4,
            linestyle="--" if name in OFF_CLUSTER else "-",
        )
    if style.scale == "log":
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        _plain_seconds(axes, summaries)
    else:
        axes.set_ylim(bottom=0)
    axes.set_xticks(sorted({one.x for one in summaries}))
    axes.minorticks_off()


def _plain_seconds(axes: Axes, summaries: Sequence[Summary]) -> None:
    """Set ticks at 1, 2 and 5 times each power of ten, as plain numbers."""
    medians = [one.median for one in summaries]
    axes.set_ylim(min(medians) / 1.5, max(medians) * 1.5)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
