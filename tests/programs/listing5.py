"""Listing 5 of the paper, a histogram by partitions, for any collection of points.

It uses ``split``, ``task`` and ``reduce`` and nothing else of ours, and names no engine: the
collection decides where it runs.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spliter import Partition, reduce, split, task

Counts = npt.NDArray[np.float64]
Limits = Sequence[tuple[float, float]]


def partial_histogram(block: npt.NDArray[Any], bins: int, limits: Limits) -> Counts:
    """Count the points of one block."""
    counts: Counts = np.histogramdd(block, bins=bins, range=limits)[0]
    return counts


@task
def compute_partition(partition: Partition, bins: int, limits: Limits) -> Counts:
    """Count the points of one partition, where it is."""
    counts = np.zeros((bins,) * len(limits))
    for block in partition:
        counts += partial_histogram(block, bins, limits)
    return counts


def histogram(experiment: Any, bins: int, limits: Limits) -> Counts:
    """Count the points of a collection."""
    partials = [compute_partition(partition, bins, limits) for partition in split(experiment)]
    counts: Counts = reduce(operator.add, partials).result()
    return counts
