"""Show a comparison as a table in the terminal."""

from __future__ import annotations

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from spliter_experiments.compare.results import Comparison, Stand
from spliter_experiments.harness.runner import Summary, ratio

NONE = "-"

UNITS = ("B", "kB", "MB", "GB", "TB")


def comparison_table(comparison: Comparison, title: str) -> Table:
    """Return a table with a line per blocking and way, for 80 columns; times in seconds."""
    several = len(comparison.stands) > 1
    phases = list(
        dict.fromkeys(
            name for stand in comparison.stands for run in stand.measurements for name in run.phases
        )
    )
    table = Table(
        title=title,
        title_justify="left",
        caption="times in seconds",
        caption_justify="left",
        box=SIMPLE_HEAD,
        show_edge=False,
        padding=0,
    )
    if several:
        table.add_column("blocks\n/ core", justify="right", no_wrap=True)
    table.add_column("way", no_wrap=True)
    headings = ("median", "lower\nquart.", "upper\nquart.", "over\nfloor", "over\nspliter")
    for heading in (*headings, "tasks", "bytes\nmoved", *(f"{name}\nalone" for name in phases)):
        table.add_column(heading, justify="right", no_wrap=True)
    for stand in comparison.stands:
        for number, line in enumerate(_lines(comparison, stand, phases)):
            first = [str(stand.blocks_per_core) if number == 0 else ""] if several else []
            table.add_row(*first, *line, end_section=number == len(comparison.ways) - 1)
    return table


def _lines(comparison: Comparison, stand: Stand, phases: list[str]) -> list[list[str]]:
    summaries = comparison.ordered(stand)
    by_way = {summary.way: summary for summary in summaries}
    return [
        _line(summary, by_way.get("floor"), by_way.get("spliter"), phases) for summary in summaries
    ]


def _line(
    summary: Summary, floor: Summary | None, spliter: Summary | None, phases: list[str]
) -> list[str]:
    return [
        short(summary.way),
        seconds(summary.median),
        seconds(summary.lower),
        seconds(summary.upper),
        times(ratio(summary, floor)),
        times(ratio(summary, spliter)),
        NONE if summary.tasks is None else str(summary.tasks),
        size(summary.nbytes),
        *(seconds(summary.phases[name]) if name in summary.phases else NONE for name in phases),
    ]


def short(way: str, most: int = 14) -> str:
    r"""Write the name of a way on two lines if one would leave too few columns for the numbers.

    >>> short("rechunk-tasks"), short("spliter-materialized")
    ('rechunk-tasks', 'spliter-\nmaterialized')
    """
    return way if len(way) <= most else way.replace("-", "-\n", 1)


def seconds(value: float) -> str:
    """Write seconds with three digits that count, where there are as many.

    >>> [seconds(value) for value in (0.0000123, 0.01234, 1.234, 1234.5)]
    ['0.0000123', '0.0123', '1.23', '1234']
    """
    if value >= 100:
        return f"{value:.0f}"
    return np.format_float_positional(value, precision=3, fractional=False, min_digits=3)


def times(value: float | None) -> str:
    """Write a ratio.

    >>> times(1.234), times(None)
    ('1.23', '-')
    """
    return NONE if value is None else f"{value:.2f}"


def size(nbytes: int | None) -> str:
    """Write a number of bytes in a unit that fits.

    >>> [size(nbytes) for nbytes in (None, 0, 999, 1500, 2_000_000)]
    ['-', '0', '999 B', '1.50 kB', '2.00 MB']
    """
    if not nbytes:
        return NONE if nbytes is None else "0"
    value, power = float(nbytes), 0
    while value >= 1000 and power < len(UNITS) - 1:
        value, power = value / 1000, power + 1
    return f"{value:.0f} B" if power == 0 else f"{value:#.3g} {UNITS[power]}".replace(". ", " ")
