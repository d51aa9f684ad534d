"""Format measurements as a table for terminals and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import NamedTuple

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from spliter_experiments.harness.records import Record
from spliter_experiments.harness.summary import Summary

NONE = "-"

TO = "\N{EN DASH}"
"""Between the ends of a range."""

UNITS = ("B", "kB", "MB", "GB", "TB")

REFERENCES = ("floor", "plain", "pipeline", "spliter", "dask-partitioned")
"""Ways that the others are divided by, in the columns "over ..."."""

BELOW_FLOOR = "over floor < 1: runs differ by more than the engine adds; --rounds narrows this"
"""Line of the caption where a way has taken less than the floor."""


class Run(NamedTuple):
    """Seconds of a way in a round, at a place of a table."""

    place: tuple[str, ...]
    way: str
    round: int
    seconds: float


@dataclass(frozen=True)
class Grid:
    """Headings, rows and caption of a table, as text."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""

    def filled(self) -> Grid:
        """Drop the columns without a value.

        >>> Grid(("x", "split"), (("1", "-"), ("2", "-"))).filled().headings
        ('x',)
        """
        keep = [any(row[at] != NONE for row in self.rows) for at in range(len(self.headings))]
        rows = tuple(tuple(compress(row, keep)) for row in self.rows)
        return Grid(tuple(compress(self.headings, keep)), rows, self.caption)

    def without(self, *headings: str) -> Grid:
        keep = [heading not in headings for heading in self.headings]
        rows = tuple(tuple(compress(row, keep)) for row in self.rows)
        return Grid(tuple(compress(self.headings, keep)), rows, self.caption)

    def markdown(self) -> list[str]:
        lines = [self.headings, ("---",) * len(self.headings), *self.rows]
        return [f"| {' | '.join(line)} |" for line in lines]

    def terminal(self, title: str = "") -> Table:
        """Return a narrow table for a terminal, with a rule between groups.

        Consecutive rows with the same first cell form a group, which shows that cell once.
        """
        table = Table(
            title=title,
            title_justify="left",
            caption=self.caption,
            caption_justify="left",
            box=SIMPLE_HEAD,
            show_edge=False,
            padding=0,
        )
        for at, heading in enumerate(self.headings):
            numeric = all(row[at][:1].isdecimal() or row[at] == NONE for row in self.rows)
            narrow = heading if "\n" in heading else heading.replace(" ", "\n")
            table.add_column(narrow, justify="right" if numeric else "left", no_wrap=numeric)
        grouped = len({row[0] for row in self.rows}) < len(self.rows)
        for at, row in enumerate(self.rows):
            repeated = grouped and at > 0 and self.rows[at - 1][0] == row[0]
            last = grouped and (at + 1 == len(self.rows) or self.rows[at + 1][0] != row[0])
            table.add_row("" if repeated else row[0], *row[1:], end_section=last)
        return table


def summary_grid(summaries: Sequence[Summary], x: str, caption: str = "") -> Grid:
    """Return a row for each configuration and x value; times in seconds."""
    found = {(one.engine, one.x, one.configuration): one.median for one in summaries}
    engines = {one.engine for one in summaries}

    def row(one: Summary) -> tuple[str, ...]:
        over = [found.get((one.engine, one.x, name)) for name in REFERENCES]
        return (
            plain(one.x),
            one.engine if len(engines) > 1 else NONE,
            short(one.configuration),
            str(one.runs),
            *map(seconds, (one.median, one.lower, one.upper)),
            *(times(one.median / base if base else None) for base in over),
            *(seconds(one.phases.get(name)) for name in ("init", "split", "rechunk", "iterate")),
            NONE if one.tasks is None else f"{one.tasks:,}",
            size(one.nbytes),
            size(one.peak),
        )

    headings = (
        *(x, "backend", "way", "runs", "median", "lower quart.", "upper quart."),
        *(f"over {name}" for name in REFERENCES),
        *("init", "split", "rechunk", "iterate", "tasks", "bytes moved", "peak memory"),
    )
    floors = [found.get((one.engine, one.x, "floor"), 0) for one in summaries]
    if any(one.median < floor for one, floor in zip(summaries, floors, strict=True)):
        caption = f"{caption}\n{BELOW_FLOOR}".strip()
    return Grid(headings, tuple(map(row, summaries)), caption).filled()


def ratio_grid(runs: Sequence[Run], headings: Sequence[str], bases: Sequence[str] = ()) -> Grid:
    """Return a row for each place: times of ways over the base's in the same round.

    Runs are in the order of rows and columns, the headings are those of the columns that name a
    place, which are left out if they say the same in all of several rows. The base is the first of
    `bases` that was measured; without any, it is the first way.
    """
    ways = list(dict.fromkeys(one.way for one in runs))
    base = next((way for way in bases if way in ways), ways[0])
    ways.remove(base)
    found = {(one.place, one.way, one.round): one.seconds for one in runs}
    rows = []
    for place in dict.fromkeys(one.place for one in runs):
        own = {
            at: took for (where, way, at), took in found.items() if (where, way) == (place, base)
        }
        ratios = (
            [found[place, way, at] / own[at] for at in own if (place, way, at) in found]
            for way in ways
        )
        rows.append((*place, quartiles([*own.values()]), *(_cell(each) for each in ratios)))
    grid = Grid((*headings, f"{base}, s", *ways), tuple(rows))
    once = [name for at, name in enumerate(headings) if len({row[at] for row in rows}) == 1]
    return grid.without(*once) if len(rows) > 1 else grid


def pivot_grid(runs: Sequence[Run], base: str) -> Grid:
    """Return a row for each workload: at each place, median times of the ways over the base's.

    The spread is the largest of the row: half of the distance of the quartiles over the median.
    """
    ways = [way for way in dict.fromkeys(one.way for one in runs) if way != base]
    found = {(one.place, one.way, one.round): one.seconds for one in runs}
    places = list(dict.fromkeys(one.place[1] for one in runs))
    rows = []
    for name in dict.fromkeys(one.place[0] for one in runs):
        cells, spread = [], 0.0
        for x in places:
            medians = []
            for way in ways:
                ratios = [
                    seconds / found[place, base, at]
                    for (place, other, at), seconds in found.items()
                    if (place, other) == ((name, x), way) and (place, base, at) in found
                ]
                if ratios:
                    low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
                    spread = max(spread, float((high - low) / middle / 2))
                medians.append(f"{middle:.3g}" if ratios else NONE)
            cells.append("/".join(medians))
        rows.append((name, *cells, f"{100 * spread:.0f}%"))
    return Grid((f"{'/'.join(ways)} over {base}", *places, "spread"), tuple(rows))


def _cell(ratios: Sequence[float]) -> str:
    return quartiles(ratios) if ratios else NONE


def runs_of(records: Sequence[Record]) -> list[Run]:
    """Return the runs of records; a place is the name of the workload, and `Record.x`."""
    return [
        Run((one.size or one.app, plain(one.x)), one.way, one.repetition, one.seconds)
        for one in records
    ]


def short(way: str, most: int = 14) -> str:
    r"""Break the name of a way into two lines if it is longer than `most` characters.

    >>> short("rechunk-tasks"), short("spliter-materialized")
    ('rechunk-tasks', 'spliter-\nmaterialized')
    """
    return way if len(way) <= most else way.replace("-", "-\n", 1)


def plain(value: float) -> str:
    """Write a number without an exponent.

    >>> plain(4_800_000.0), plain(0.5)
    ('4,800,000', '0.5')
    """
    return f"{value:,.0f}" if value == int(value) else f"{value:,.6g}"


def seconds(value: float | None) -> str:
    """Format seconds with three significant digits.

    >>> [seconds(value) for value in (0.0000123, 0.01234, 1.234, 1234.5, None)]
    ['0.0000123', '0.0123', '1.23', '1234', '-']
    """
    if value is None:
        return NONE
    if value >= 100:
        return f"{value:.0f}"
    return np.format_float_positional(value, precision=3, fractional=False, min_digits=3)


def times(value: float | None) -> str:
    """Format a ratio.

    >>> times(1.234), times(None)
    ('1.23', '-')
    """
    return NONE if value is None else f"{value:.2f}"


def size(nbytes: int | None) -> str:
    """Format a number of bytes with a unit.

    >>> [size(nbytes) for nbytes in (None, 0, 999, 1500, 2_000_000)]
    ['-', '0', '999 B', '1.50 kB', '2.00 MB']
    """
    if not nbytes:
        return NONE if nbytes is None else "0"
    value, power = float(nbytes), 0
    while value >= 1000 and power < len(UNITS) - 1:
        value, power = value / 1000, power + 1
    return f"{value:.0f} B" if power == 0 else f"{value:#.3g} {UNITS[power]}".replace(". ", " ")


def quartiles(values: Sequence[float]) -> str:
    """Format the median and half of the distance of the quartiles.

    >>> quartiles([1.0]), quartiles([1.0, 2.0, 3.0, 4.0, 6.0])
    ('1', '3±1')
    """
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return f"{middle:.3g}" + (f"±{(high - low) / 2:.1g}" if len(values) > 1 else "")
