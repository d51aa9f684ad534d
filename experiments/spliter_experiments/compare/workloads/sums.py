"""``spliter compare sum``: the ways to add up all values, the least that a task can do.

What is left over the floor is what tasks cost by themselves. There may be several passes, as in a
program that comes back to its data: blocks are split, or rechunked, once for all of them.

=================  ===========================================================================
``spliter``        one per partition of blocks that are in one place already; `split` counts
``per-block``      one per block
``rechunk-p2p``    one per chunk, after the array was rechunked to one chunk per core by P2P
``rechunk-tasks``  the same, rechunked by ordinary tasks
``dask``           ``array.sum()``
``floor``          none: plain processes (:mod:`.floor`)
=================  ===========================================================================

Rechunking and ``dask`` are Dask's alone (:mod:`.sums_dask`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from spliter import Partition, Split, reduce, split, task
from spliter_experiments.compare.data.blocks import check_finite
from spliter_experiments.compare.data.datasets import InputChoice, open_points
from spliter_experiments.compare.data.sources import Dataset, Floats
from spliter_experiments.compare.engines.engine import Engine, result_of
from spliter_experiments.compare.floor import Floor
from spliter_experiments.compare.ways import WAYS
from spliter_experiments.compare.workloads.workload import Site, Value
from spliter_experiments.harness.errors import OptionError
from spliter_experiments.harness.runner import Answer, Contender

TOLERANCE = 1e-9
"""Relative difference of sums that are the same but for the order of adding up."""


def add_up(block: Floats) -> float:
    """Return the sum of all values."""
    return float(block.sum())


def add_blocks(blocks: Iterable[Floats]) -> float:
    """Return the sum of all values of several blocks."""
    return sum(add_up(block) for block in blocks)


@task
def add_partition(partition: Partition) -> float:
    """Add up the blocks of a partition, where they are."""
    return add_blocks(partition)


def by_spliter(site: Site[Engine], passes: int) -> Answer:
    """Run one task per partition."""

    def add_all(partitions: Split) -> float:
        partials = [add_partition(partition) for partition in partitions]
        return float(result_of(reduce(operator.add, partials)))

    with split(site.array) as partitions:
        return repeat(passes, lambda: add_all(partitions))


def on_floor(floor: Floor, passes: int) -> Answer:
    """Add up in every plain process, and then here."""
    return repeat(passes, lambda: sum(floor.call(add_blocks)))


def repeat(passes: int, add_all: Callable[[], float]) -> Answer:
    """Make passes one after the other, and return what the last one comes to."""
    for _ in range(passes - 1):
        add_all()
    return Answer(add_all())


@dataclass(frozen=True)
class Sum:
    """The app.

    Parameters
    ----------
    passes : int
        How often all values are added up.
    """

    passes: int

    name: ClassVar[str] = "sum"
    ways: ClassVar[tuple[str, ...]] = WAYS["sum"]

    def __post_init__(self) -> None:
        if self.passes < 1:
            raise OptionError(f"--passes must be at least 1, got {self.passes}")

    @contextmanager
    def open(self, choice: InputChoice) -> Iterator[Dataset]:
        """Open points."""
        with open_points(choice) as points:
            yield Dataset(points)

    def check(self, dataset: Dataset) -> None:
        """Accept all data: what has to be known of them takes a look at all rows."""

    def pose(self, site: Site[Engine]) -> int:
        """Return the number of passes, after making sure that there is a sum."""
        check_finite(site.engine, site.dataset.points, site.array)
        return self.passes

    def in_processes(self, way: str, site: Site[Engine], passes: int) -> Contender:
        """Return the floor."""
        return site.contender_in_processes(way, lambda floor: on_floor(floor, passes))

    def same(self, left: float, right: float) -> bool:
        """Tell whether sums are equal up to rounding."""
        return math.isclose(left, right, rel_tol=TOLERANCE)

    def kept(self) -> Mapping[str, Value]:
        """Return the passes."""
        return {"passes": self.passes}

    def detail(self) -> str:
        """Return the passes."""
        return f"{self.passes} passes" if self.passes > 1 else "1 pass"
