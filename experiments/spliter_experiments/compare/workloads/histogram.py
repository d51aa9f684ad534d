"""``spliter compare histogram``: the ways to count points in bins.

All but ``dask`` run the same kernel (:mod:`.histogram_kernels`); what differs is what a task is:

=================  ===========================================================================
``spliter``        one per partition of blocks that are in one place already; `split` counts
``per-block``      one per block
``rechunk-p2p``    one per chunk, after the array was rechunked to one chunk per core by P2P
``rechunk-tasks``  the same, rechunked by ordinary tasks
``dask``           ``dask.array.histogramdd``: one per block, with NumPy's kernel
``floor``          none: plain processes (:mod:`.floor`)
=================  ===========================================================================

Rechunking and ``dask`` are Dask's alone (:mod:`.histogram_dask`).
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from spliter import Partition, reduce, split, task
from spliter_experiments.compare.data.blocks import bounds_of, incomplete_rows
from spliter_experiments.compare.data.datasets import InputChoice, open_points
from spliter_experiments.compare.data.sources import Dataset
from spliter_experiments.compare.engines.engine import Engine, result_of
from spliter_experiments.compare.floor import Floor
from spliter_experiments.compare.ways import WAYS
from spliter_experiments.compare.workloads.histogram_kernels import (
    Counts,
    Edges,
    add_counts,
    count_blocks,
    equal_bins,
)
from spliter_experiments.compare.workloads.workload import Site, Value
from spliter_experiments.harness.errors import OptionError
from spliter_experiments.harness.runner import Answer, Contender

MOST_COLUMNS = 5
"""Columns taken where the user chooses none: a grid of bins grows with every column."""

MOST_CELLS = 10**7
"""Bins of all columns together: every task returns that many counts."""


@task
def count_partition(partition: Partition, edges: Edges) -> Counts:
    """Count the points of the blocks of a partition, where they are."""
    return count_blocks(partition, edges)


def by_spliter(site: Site[Engine], edges: Edges) -> Answer:
    """Run one task per partition."""
    with split(site.array) as partitions:
        partials = [count_partition(partition, edges) for partition in partitions]
        return Answer(result_of(reduce(operator.add, partials)))


def on_floor(floor: Floor, edges: Edges) -> Answer:
    """Count in every plain process, and add up here."""
    return Answer(add_counts(floor.call(count_blocks, edges)))


@dataclass(frozen=True)
class Histogram:
    """The app.

    Parameters
    ----------
    bins : int
        Bins per column.
    """

    bins: int

    name: ClassVar[str] = "histogram"
    ways: ClassVar[tuple[str, ...]] = WAYS["histogram"]

    def __post_init__(self) -> None:
        if self.bins < 1:
            raise OptionError(f"--bins must be at least 1, got {self.bins}")

    @contextmanager
    def open(self, choice: InputChoice) -> Iterator[Dataset]:
        """Open points; few columns unless the user chooses."""
        with open_points(choice, most=MOST_COLUMNS) as points:
            yield Dataset(points)

    def check(self, dataset: Dataset) -> None:
        """Refuse more bins than can be counted."""
        width = len(dataset.points.columns)
        if self.bins**width > MOST_CELLS:
            raise OptionError(
                f"{self.bins} bins in each of {width} columns are {self.bins}^{width} bins; at "
                f"most {MOST_CELLS} can be counted: take fewer --bins or fewer columns"
            )

    def pose(self, site: Site[Engine]) -> Edges:
        """Return edges of bins over the range of the points; warn of rows that are in no bin."""
        left_out = incomplete_rows(site.engine, site.array)
        if left_out:
            site.note(
                f"{left_out:,} of {site.dataset.points.rows:,} rows have missing or infinite "
                "values and are counted in no bin"
            )
        return equal_bins(bounds_of(site.engine, site.dataset.points, site.array), self.bins)

    def in_processes(self, way: str, site: Site[Engine], edges: Edges) -> Contender:
        """Return the floor."""
        return site.contender_in_processes(way, lambda floor: on_floor(floor, edges))

    def same(self, left: Counts, right: Counts) -> bool:
        """Tell whether counts are equal."""
        return bool(np.array_equal(left, right))

    def kept(self) -> Mapping[str, Value]:
        """Return the bins."""
        return {"bins": self.bins}

    def detail(self) -> str:
        """Return the bins."""
        return f"{self.bins} bins per column"
