"""Format plans of runs, measurements and the paper's numbers as tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.table import Table

from spliter_experiments.evaluation.plan import PlannedRun, stands_of
from spliter_experiments.evaluation.schema import Scenario
from spliter_experiments.evaluation.verdict import PAPER_NAMES, published
from spliter_experiments.harness.summary import Summary
from spliter_experiments.harness.table import Grid, plain, seconds, size, summary_grid, times

LABELS = {
    "nodes": "nodes",
    "blocks_per_core": "blocks per core",
    "blocks_per_node": "blocks per node to learn from",
    "rows": "points in the tree",
}
"""Axis labels."""

REFERENCE = "spliter"

QUERY_BLOCKS = 24
"""Blocks of queries per node in the paper's Table 1."""

TREES = ((1, 1), (2, 2), (2, 1), (4, 4), (4, 2), (4, 1), (6, 6), (6, 3), (6, 2), (6, 1))
"""Rows of Table 1: number of data blocks, and how many of them go into one tree."""


def measured_table(scenario: Scenario, bars: Sequence[Summary]) -> Grid:
    return summary_grid(bars, LABELS[scenario.x], "Measured here; times in seconds.")


def paper_table(scenario: Scenario) -> Grid | None:
    """Return the paper's seconds, also as multiples of SplIter's; None without numbers."""
    places = scenario.paper.x
    if not places:
        return None
    rows = []
    for key, name in PAPER_NAMES.items():
        series = published(scenario.paper, key)
        base = series.get(REFERENCE, {})
        for configuration, found in series.items():
            cells = [seconds(found[x]) + _multiple_of(found[x], base.get(x)) for x in places]
            rows.append((name, configuration, *cells))
    headings = ("", "configuration", *map(plain, places))
    caption = f"The paper's seconds by {LABELS[scenario.x]}, and how many times SplIter's they are."
    return Grid(headings, tuple(rows), caption)


def kernel_table(bars: Sequence[Summary]) -> Grid | None:
    """Recompute the paper's Table 1 from kernels measured here; None if one is missing.

    If blocks are merged before trees are built, a node has fewer and larger trees, and each query
    goes to fewer of them.
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


def _multiple_of(value: float, base: float | None) -> str:
    return "" if base is None or base == value else f" ({times(value / base)}x)"


def plan_table(runs: Sequence[PlannedRun], title: str) -> Table:
    rows = []
    for stand in stands_of(runs).values():
        first = stand[0]
        rows.append(
            (
                str(first.nodes),
                f"{first.workers} x {first.threads}",
                *(f"{first.blocks:,}", f"{first.rows:,}", str(len(stand))),
                size(max(run.memory_bytes for run in stand)),
                clock(sum(run.estimated_seconds for run in stand)),
            )
        )
    headings = ("nodes", "workers", "blocks", "rows", "runs", "memory/node", "time")
    return Grid(headings, tuple(rows), total(runs)).terminal(title)


def total(runs: Sequence[PlannedRun]) -> str:
    taken = sum(run.estimated_seconds for run in runs)
    hours = sum(run.estimated_seconds * run.cores for run in runs) / 3600
    return f"{len(runs)} runs, about {clock(taken)}, {hours:,.3g} core hours"


def runs_table(runs: Sequence[PlannedRun]) -> Table:
    rows = tuple((run.id, clock(run.estimated_seconds)) for run in runs)
    return Grid(("run", "estimate"), rows).terminal()


def clock(seconds: float) -> str:
    """Format hours, minutes and seconds, as SLURM takes them.

    >>> clock(90), clock(100_000)
    ('0:01:30', '27:46:40')
    """
    whole = math.ceil(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
