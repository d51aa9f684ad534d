"""``spliter compare sum``: sum all values, so little work that the time shows the cost of tasks.

With several passes, blocks are split or rechunked once for all of them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import typer

from spliter import Partition, Split, reduce, task
from spliter_experiments.compare.baseline import Baseline
from spliter_experiments.compare.data.sources import Floats
from spliter_experiments.compare.engines.engine import Engine, result_of
from spliter_experiments.compare.ways import FLOOR, WAYS
from spliter_experiments.compare.workloads.app import App
from spliter_experiments.compare.workloads.site import Parts, Site, check_finite
from spliter_experiments.harness.runner import Answer

TOLERANCE = 1e-9
"""Relative tolerance of equal sums, which differ by the order of addition only."""


def add_up(block: Floats) -> float:
    return float(block.sum())


def add_blocks(blocks: Iterable[Floats]) -> float:
    return sum(add_up(block) for block in blocks)


@task
def add_partition(partition: Partition) -> float:
    return add_blocks(partition)


def by_spliter(site: Site[Engine], passes: int) -> Answer:
    def add_all(partitions: Split) -> float:
        partials = [add_partition(partition) for partition in partitions]
        return float(result_of(reduce(operator.add, partials)))

    with site.split(site.array) as partitions:
        return repeat(passes, lambda: add_all(partitions))


def on_floor(floor: Baseline, passes: int) -> Answer:
    return repeat(passes, lambda: sum(floor.call(add_blocks)))


def repeat(passes: int, add_all: Callable[[], float]) -> Answer:
    """Run passes one after the other, and return the result of the last one."""
    for _ in range(passes - 1):
        add_all()
    return Answer(add_all())


@dataclass(frozen=True)
class Sum(App[int]):
    """Comparison of sums; the problem is the number of passes over all values."""

    passes: Annotated[int, typer.Option(min=1, help="Passes, for which data is split once.")] = 1

    name: ClassVar = "sum"
    ways: ClassVar = WAYS["sum"]
    defaults: ClassVar = {"rows": 20_000_000, "dims": 5}
    split_ways: ClassVar = {"spliter": by_spliter}
    off_cluster: ClassVar = {FLOOR: on_floor}
    about: ClassVar = "{passes} passes"

    def pose(self, site: Site[Engine]) -> int:
        check_finite(site.engine, site.dataset.points, site.array)
        return self.passes

    @staticmethod
    def by_parts(parts: Parts, passes: int) -> Answer:
        return repeat(passes, lambda: float(parts.merge(sum, parts.call(add_up))))

    def same(self, left: float, right: float) -> bool:
        return math.isclose(left, right, rel_tol=TOLERANCE)
