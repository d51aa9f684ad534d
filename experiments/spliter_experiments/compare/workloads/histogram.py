"""``spliter compare histogram``: count points in a grid of bins.

All ways but ``dask`` run the kernel of :func:`spliter_apps.histogramdd`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import typer

from spliter import Partition, reduce, task
from spliter_apps.histogram.kernel import count_points
from spliter_experiments.compare.baseline import Baseline
from spliter_experiments.compare.data.datasets import InputChoice, open_points
from spliter_experiments.compare.data.sources import Dataset, Floats
from spliter_experiments.compare.engines.engine import Engine, result_of
from spliter_experiments.compare.ways import FLOOR, WAYS
from spliter_experiments.compare.workloads.app import App
from spliter_experiments.compare.workloads.site import Parts, Site, bounds_of, check_finite
from spliter_experiments.harness.errors import OptionError
from spliter_experiments.harness.runner import Answer

Counts: TypeAlias = npt.NDArray[Any]
Edges: TypeAlias = tuple[Floats, ...]

MOST_COLUMNS = 5
"""Default number of columns; the number of bins is exponential in it."""

MOST_CELLS = 10**7
"""Maximum number of bins in total, as every task returns an array of this size."""


def count_block(block: Floats, edges: Edges) -> Counts:
    return count_points((block,), edges)


def add_counts(partials: Sequence[Counts]) -> Counts:
    total = partials[0].copy()
    for partial in partials[1:]:
        total += partial
    return total


@task
def count_partition(partition: Partition, edges: Edges) -> Counts:
    return count_points(partition, edges)


def by_spliter(site: Site[Engine], edges: Edges) -> Answer:
    with site.split(site.array) as partitions:
        partials = [count_partition(partition, edges) for partition in partitions]
        return Answer(result_of(reduce(operator.add, partials)))


def on_floor(floor: Baseline, edges: Edges) -> Answer:
    return Answer(add_counts(floor.call(count_points, edges)))


@dataclass(frozen=True)
class Histogram(App[Edges]):
    """Comparison of histograms; the problem is the bin edges of each column."""

    bins: Annotated[int, typer.Option(min=1, help="Bins in each column.")] = 10

    name: ClassVar = "histogram"
    ways: ClassVar = WAYS["histogram"]
    defaults: ClassVar = {"rows": 20_000_000, "dims": 5}
    split_ways: ClassVar = {"spliter": by_spliter}
    off_cluster: ClassVar = {FLOOR: on_floor}
    about: ClassVar = "{bins} bins per column"

    def open(self, choice: InputChoice) -> Dataset:
        return Dataset(open_points(choice, most=MOST_COLUMNS))

    def check(self, dataset: Dataset) -> None:
        width = len(dataset.points.columns)
        if self.bins**width > MOST_CELLS:
            raise OptionError(
                f"{self.bins} bins in each of {width} columns are {self.bins}^{width} bins; at "
                f"most {MOST_CELLS} can be counted: take fewer --bins or fewer columns"
            )

    def pose(self, site: Site[Engine]) -> Edges:
        check_finite(site.engine, site.dataset.points, site.array)
        return equal_bins(bounds_of(site.engine, site.array), self.bins)

    @staticmethod
    def by_parts(parts: Parts, edges: Edges) -> Answer:
        counts = parts.call(count_block, edges=edges)
        return Answer(parts.merge(add_counts, counts))

    def same(self, left: Counts, right: Counts) -> bool:
        return bool(np.array_equal(left, right))


def equal_bins(bounds: Floats, bins: int) -> Edges:
    """Divide the range of each column into equal bins, as ``numpy.histogramdd`` does."""
    return tuple(np.histogram_bin_edges(column, bins) for column in bounds.T)
