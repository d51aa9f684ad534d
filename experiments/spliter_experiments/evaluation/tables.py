"""The tables beside the figures: what was measured, what the paper has, and its Table 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

from spliter_experiments.evaluation.figures import LABELS
from spliter_experiments.evaluation.schema import Scenario
from spliter_experiments.evaluation.statistics import Bar
from spliter_experiments.evaluation.verdict import PAPER_NAMES, published
from spliter_experiments.harness.table import NONE, seconds, size, times

REFERENCE = "spliter"

QUERY_BLOCKS = 24
"""Blocks of queries that the trees of a node are asked, in the paper's Table 1."""

TREES = ((1, 1), (2, 2), (2, 1), (4, 4), (4, 2), (4, 1), (6, 6), (6, 3), (6, 2), (6, 1))
"""Lines of Table 1: blocks to learn from, and how many of them go into one tree."""


@dataclass(frozen=True)
class Grid:
    """A table to be shown.

    Parameters
    ----------
    headings : tuple of str
        Of the columns.
    rows : tuple of tuple of str
        What is in them.
    caption : str
        What it is.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str


def measured_table(scenario: Scenario, bars: Sequence[Bar]) -> Grid:
    """Return all that was measured: a line per configuration and place on the axis."""
    reference = {(bar.engine, bar.x): bar.median for bar in bars if bar.configuration == REFERENCE}
    rows = [
        (
            plain(bar.x),
            bar.engine,
            bar.configuration,
            str(bar.runs),
            seconds(bar.median),
            f"{seconds(bar.lower)}-{seconds(bar.upper)}",
            _over(bar.median, reference.get((bar.engine, bar.x))),
            *(_seconds(part) for part in (bar.init, bar.split, bar.rechunk, bar.iterate)),
            NONE if bar.tasks is None else f"{bar.tasks:,.0f}",
            size(_whole(bar.nbytes)),
            size(_whole(bar.peak)),
        )
        for bar in bars
    ]
    headings = (
        *(LABELS[scenario.x], "backend", "configuration", "runs", "median", "quartiles"),
        *("over spliter", "init", "split", "rechunk", "iterate", "tasks", "moved", "peak memory"),
    )
    return filled(Grid(headings, tuple(rows), "Measured here; times in seconds."))


def filled(grid: Grid) -> Grid:
    """Leave out the columns that have no value in any row.

    Examples
    --------
    >>> filled(Grid(("x", "split"), (("1", "-"), ("2", "-")), "")).headings
    ('x',)
    """
    keep = [any(row[at] != NONE for row in grid.rows) for at in range(len(grid.headings))]
    rows = tuple(tuple(compress(row, keep)) for row in grid.rows)
    return Grid(tuple(compress(grid.headings, keep)), rows, grid.caption)


def plain(value: float) -> str:
    """Write a number without an exponent.

    Examples
    --------
    >>> plain(4_800_000.0), plain(0.5)
    ('4,800,000', '0.5')
    """
    return f"{value:,.0f}" if value == int(value) else f"{value:,.6g}"


def paper_table(scenario: Scenario) -> Grid | None:
    """Return the paper's seconds, and how they compare with SplIter's; None without any."""
    points = scenario.paper.points
    if not points:
        return None
    rows = []
    for key, name in PAPER_NAMES.items():
        series = published(points, key)
        for configuration, found in series.items():
            base = series.get(REFERENCE, {})
            cells = [
                seconds(found[point.x]) + _beside(found[point.x], base.get(point.x))
                if point.x in found
                else NONE
                for point in points
            ]
            rows.append((name, configuration, *cells))
    headings = ("", "configuration", *(plain(point.x) for point in points))
    caption = f"The paper's seconds by {LABELS[scenario.x]}, and how many times SplIter's they are."
    return Grid(headings, tuple(rows), caption)


def kernel_table(bars: Sequence[Bar]) -> Grid | None:
    """Return the paper's Table 1 from kernels measured here; None where one is missing.

    With blocks merged before trees are built, a node builds fewer and larger trees, and asks each
    query fewer of them.
    """
    fit = {bar.blocks: bar.median for bar in bars if bar.configuration == "fit"}
    ask = {bar.blocks: bar.median for bar in bars if bar.configuration == "kneighbors"}
    if any(merged not in fit or merged not in ask for _, merged in TREES):
        return None
    rows = []
    for blocks, merged in TREES:
        trees = blocks // merged
        asked = ask[merged] * trees
        total = fit[merged] + asked
        rows.append(
            (
                str(blocks),
                str(merged),
                *map(seconds, (fit[merged] * trees, fit[merged])),
                *map(seconds, (asked * QUERY_BLOCKS, asked, total)),
                f"{100 * fit[merged] / total:.1f} %",
            )
        )
    headings = (
        *("blocks", "blocks per tree", "build, all cores", "build"),
        *("look up, all cores", "look up", "both", "build of both"),
    )
    caption = (
        f"Table 1 from these kernels, {QUERY_BLOCKS} blocks of queries: seconds of all cores "
        "together, and until done with a core for each tree and each block of queries."
    )
    return Grid(headings, tuple(rows), caption)


def _over(value: float, base: float | None) -> str:
    return times(None if base is None else value / base)


def _beside(value: float, base: float | None) -> str:
    return "" if base is None or base == value else f" ({times(value / base)}x)"


def _seconds(value: float | None) -> str:
    return NONE if value is None else seconds(value)


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
