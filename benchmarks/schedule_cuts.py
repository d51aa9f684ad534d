"""Draw how schedules cut blocks, and when the cores that run the cuts are done.

    python benchmarks/schedule_cuts.py docs/images/schedules.png

The lower half is computed, not measured: each core takes the next partition when it is idle, and
the blocks cost what the drawing says.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Literal

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from spliter import Schedule

BLOCKS, CORES = 96, 4
KINDS = ("STATIC", "GSS", "FAC2", "SS")
ORDERS: tuple[Literal["contiguous", "strided"], ...] = ("contiguous", "strided")
COSTS = np.where(np.arange(BLOCKS) < BLOCKS // 4, 8.0, 1.0)
"""Seconds of each block: the first quarter is expensive."""

TASK_SECONDS = 0.3
"""What each partition costs in addition."""


def draw_cut(axes: Axes, row: int, kind: str) -> None:
    """Draw the partitions of a schedule as one bar, in the order in which they start."""
    start = 0
    for number, size in enumerate(Schedule(kind).sizes(BLOCKS, CORES)):
        axes.barh(
            row, size, left=start, color=f"C{number % CORES}", edgecolor="white", linewidth=0.5
        )
        start += size


def run(schedule: Schedule) -> Iterator[tuple[int, float, float]]:
    """Yield the core, start and duration of each partition."""
    free = [0.0] * CORES
    for chunk in schedule.cut(np.ones(BLOCKS), CORES):
        core = free.index(min(free))
        seconds = float(COSTS[chunk].sum()) + TASK_SECONDS
        yield core, free[core], seconds
        free[core] += seconds


def main(file: str) -> None:
    """Draw both halves into a file."""
    cases = [(kind, order) for order in ORDERS for kind in KINDS]
    figure, (cuts, *tails) = plt.subplots(1 + len(cases), figsize=(8, 7))
    for row, kind in enumerate(KINDS):
        draw_cut(cuts, row, kind)
    cuts.set_yticks(range(len(KINDS)), KINDS)
    cuts.invert_yaxis()
    cuts.set_title(
        f"Sizes of the partitions of {BLOCKS} blocks on {CORES} cores, in blocks", loc="left"
    )
    runs = [list(run(Schedule(kind, order=order))) for kind, order in cases]
    longest = max(start + seconds for one in runs for _, start, seconds in one)
    for axes, (kind, order), one in zip(tails, cases, runs, strict=True):
        for core, start, seconds in one:
            axes.barh(core, seconds, left=start, color=f"C{core}", edgecolor="white", linewidth=0.4)
        axes.axvline(COSTS.sum() / CORES, color="black", linestyle="--", linewidth=0.8)
        axes.set_xlim(0, longest * 1.01)
        axes.set_yticks([])
        axes.set_xticks([])
        axes.set_ylabel(f"{kind}\n{order}", rotation=0, ha="right", va="center", fontsize=8)
    tails[0].set_title(
        "When the cores are done if the first quarter of the blocks costs 8 times as much "
        "(dashed: ideal)",
        loc="left",
        fontsize=10,
    )
    cuts.set_position([0.12, 0.68, 0.86, 0.28])
    for number, axes in enumerate(tails):
        axes.set_position([0.12, 0.525 - 0.073 * number, 0.86, 0.068])
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main(sys.argv[1])
