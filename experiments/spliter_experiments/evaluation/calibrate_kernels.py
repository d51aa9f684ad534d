"""Measure the kernels on one core for the prediction model."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
from threadpoolctl import threadpool_limits

from spliter_apps.neighbors.kernel import merge_nearest, nearest
from spliter_experiments.compare.data.sources import Floats, GeneratedPoints
from spliter_experiments.compare.workloads.histogram import count_block, equal_bins
from spliter_experiments.compare.workloads.kmeans import sum_block
from spliter_experiments.compare.workloads.knn import build_from_block
from spliter_experiments.evaluation.costs import Curve, NeighborCosts
from spliter_experiments.evaluation.schema import (
    HistogramParameters,
    KMeansParameters,
    NeighborsParameters,
    Scenario,
)
from spliter_experiments.harness.errors import PlanError

MOST_ROWS = 1_000_000
"""Maximum rows of a block used for a measurement."""

FEWEST_ROWS = 1000

QUERIES = 2000
"""Number of queries to each measured tree."""

PARTS = 8
"""Number of parts whose answers are merged."""

REPEATS = 5


def median_of(measure: Callable[[], float]) -> float:
    """Return the median of `REPEATS` measurements."""
    return statistics.median(measure() for _ in range(REPEATS))


def timed(call: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def kernel_costs(scenario: Scenario, rows: Sequence[int]) -> tuple[float, float]:
    """Return the kernel's seconds per block and per row, for the histogram or k-means.

    The largest of the blocks is measured, up to `MOST_ROWS`.
    """
    large = min(max(rows), MOST_ROWS)
    points = GeneratedPoints(large, scenario.parameters.dims, scenario.seed).read(0, large)
    kernel = _kernel(scenario, points)
    with threadpool_limits(1):
        per_block = median_of(lambda: timed(lambda: kernel(points[:1])))
        whole = median_of(lambda: timed(lambda: kernel(points)))
    return per_block, max((whole - per_block) / large, 1e-12)


def _kernel(scenario: Scenario, points: Floats) -> Callable[[Floats], object]:
    asked = scenario.parameters
    if isinstance(asked, HistogramParameters):
        edges = equal_bins(np.array([points.min(axis=0), points.max(axis=0)]), asked.bins)
        return lambda block: count_block(block, edges)
    if isinstance(asked, KMeansParameters):
        centers = points[: asked.clusters].copy()
        return lambda block: sum_block(block, centers)
    raise PlanError(f"the kernel of {asked.app} does not go by rows alone")


def neighbor_costs(scenario: Scenario, rows: Sequence[int]) -> NeighborCosts:
    """Measure building, querying and merging of trees of up to `MOST_ROWS` rows."""
    asked = scenario.parameters
    assert isinstance(asked, NeighborsParameters)
    large = max(min(max(rows), MOST_ROWS), 4 * FEWEST_ROWS)
    small = max(min(*rows, large // 4), FEWEST_ROWS)
    sizes = (small, round((small * large) ** 0.5), large)
    generated = GeneratedPoints(large + QUERIES, asked.dims, scenario.seed)
    points, queries = generated.read(0, large), generated.read(large, large + QUERIES)
    built, answered = [], []
    with threadpool_limits(1):
        for size in sizes:
            block = points[:size]
            tree = build_from_block(block, 0)
            built.append(median_of(lambda block=block: timed(lambda: build_from_block(block, 0))))  # type: ignore[misc]
            asking = median_of(
                lambda tree=tree: timed(lambda: nearest(tree, queries, asked.neighbors))  # type: ignore[misc]
            )
            answered.append(asking / QUERIES)
        found = [nearest(tree, queries, asked.neighbors)] * PARTS
        merging = median_of(lambda: timed(lambda: merge_nearest(found, asked.neighbors)))
    measured = tuple(map(float, sizes))
    return NeighborCosts(
        build=Curve(measured, tuple(built)),
        ask=Curve(measured, tuple(answered)),
        merge=merging / QUERIES / PARTS,
    )
