"""Draw a comparison: bars at one blocking, lines over several (the cost of fragmentation)."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from spliter_experiments.compare.results import Comparison
from spliter_experiments.compare.ways import OFF_CLUSTER, legend
from spliter_experiments.harness.errors import ResultsError
from spliter_experiments.harness.runner import Summary

LOOKS = {
    "spliter": ("#0072b2", "o"),
    "spliter-materialized": ("#332288", "p"),
    "spliter-auto": ("#88ccee", "*"),
    "per-block": ("#d55e00", "s"),
    "per-block-paper": ("#882255", "h"),
    "rechunk-p2p": ("#009e73", "^"),
    "rechunk-tasks": ("#56b4e9", "v"),
    "by-hand": ("#117733", "<"),
    "dask": ("#cc79a7", "D"),
    "dask-ml": ("#cc79a7", "d"),
    "sklearn": ("#999933", "+"),
    "floor": ("#444444", "x"),
}
"""Colour (told apart by colour-blind readers too) and marker of each way."""

OTHER_LOOK = ("#e69f00", "P")

SUFFIXES = (".png", ".svg")


def write_plot(comparison: Comparison, folder: Path, title: str) -> list[Path]:
    """Draw into ``<app>.png`` and ``<app>.svg``.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    ResultsError
        If they cannot be written.
    """
    figure = draw(comparison, title)
    files = [folder / f"{comparison.app}{suffix}" for suffix in SUFFIXES]
    try:
        for file in files:
            figure.savefig(file, dpi=150)
    except OSError as error:
        raise ResultsError(f"cannot write the plot to {folder}: {error}") from error
    return files


def draw(comparison: Comparison, title: str) -> Figure:
    """Return the figure."""
    figure = Figure(figsize=(7.5, 5.6), layout="constrained")
    axes = figure.subplots()
    if len(comparison.stands) > 1:
        _draw_lines(axes, comparison)
    else:
        _draw_bars(axes, comparison)
    axes.set_title(title, fontsize=10, loc="left", parse_math=False)
    # Empty lines below the axes' label keep room for what the ways are.
    figure.supxlabel(
        "\n".join(legend(comparison.ways)), fontsize=7, x=0.01, ha="left", color="0.35"
    )
    return figure


def _draw_lines(axes: Axes, comparison: Comparison) -> None:
    """Seconds against blocks per core, both logarithmic; error bars are quartiles."""
    stands = comparison.stands
    for way in comparison.ways:
        colour, marker = LOOKS.get(way, OTHER_LOOK)
        runs = [_of(comparison.ordered(stand), way) for stand in stands]
        medians = [run.median for run in runs]
        axes.errorbar(
            [stand.blocks_per_core for stand in stands],
            medians,
            yerr=_whiskers(runs),
            label=way,
            color=colour,
            marker=marker,
            markersize=6,
            capsize=3,
            linewidth=2.4 if way == "spliter" else 1.4,
            linestyle="--" if way in OFF_CLUSTER else "-",
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks([stand.blocks_per_core for stand in stands])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    _plain_seconds(axes, comparison)
    axes.minorticks_off()
    axes.set_xlabel("blocks per core")
    axes.set_ylabel("seconds (median, quartiles)")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(fontsize=9, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _plain_seconds(axes: Axes, comparison: Comparison) -> None:
    """Put ticks at 1, 2 and 5 of each power of ten, written as plain numbers."""
    medians = [run.median for stand in comparison.stands for run in stand.summaries()]
    low, high = min(medians) / 1.5, max(medians) * 1.5
    ticks = [
        digit * 10.0**power
        for power in range(-6, 7)
        for digit in (1, 2, 5)
        if low <= digit * 10.0**power <= high
    ]
    axes.set_ylim(low, high)
    axes.set_yticks(ticks)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _draw_bars(axes: Axes, comparison: Comparison) -> None:
    """Seconds of each way, with every run as a dot."""
    (stand,) = comparison.stands
    runs = comparison.ordered(stand)
    names = [run.way for run in runs]
    axes.barh(
        names,
        [run.median for run in runs],
        xerr=_whiskers(runs),
        color=[LOOKS.get(name, OTHER_LOOK)[0] for name in names],
        capsize=3,
        alpha=0.75,
    )
    measured = stand.measurements
    axes.plot(
        [run.seconds for run in measured],
        [names.index(run.way) for run in measured],
        linestyle="none",
        marker="o",
        markersize=3,
        color="black",
        alpha=0.6,
    )
    axes.invert_yaxis()
    axes.set_xlabel("seconds (bars: median and quartiles; dots: runs)")
    axes.grid(visible=True, axis="x", alpha=0.3)


def _of(summaries: list[Summary], way: str) -> Summary:
    return next(summary for summary in summaries if summary.way == way)


def _whiskers(runs: list[Summary]) -> tuple[list[float], list[float]]:
    return [run.median - run.lower for run in runs], [run.upper - run.median for run in runs]
