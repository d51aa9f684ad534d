"""Measure the kernels on one core for the prediction model."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from spliter_apps.neighbors.kernel import merge_nearest, nearest
from spliter_apps.svm.kernel import Rows, SupportSet, conclude, improve, missing, support
from spliter_experiments.compare.data.datasets import InputChoice
from spliter_experiments.compare.data.sources import Floats, GeneratedPoints
from spliter_experiments.compare.workloads.csvm import CascadeSvm
from spliter_experiments.compare.workloads.csvm_cascade import (
    FEW_PARTS,
    Training,
    merge_sets,
    numbered,
    train_part,
)
from spliter_experiments.compare.workloads.histogram import count_block, equal_bins
from spliter_experiments.compare.workloads.kmeans import sum_block
from spliter_experiments.compare.workloads.knn import build_from_block
from spliter_experiments.evaluation.costs import CascadeCosts, Curve, NeighborCosts
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

TRAINED = (64, 256, 1024, 4096)
"""Rows of the parts to measure training on."""

PARTS = 8
"""Number of parts whose support vectors are merged."""

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
    """Return the kernel's seconds per block and per row.

    Parameters
    ----------
    scenario : Scenario
        A scenario of the histogram or of k-means.
    rows : sequence of int
        Rows of the blocks; the largest is measured, up to `MOST_ROWS`.

    Raises
    ------
    PlanError
        If the kernel's work is not proportional to rows.
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
    raise PlanError(f"the work of {asked.app} is not that of its rows")


def neighbor_costs(scenario: Scenario, rows: Sequence[int]) -> NeighborCosts:
    """Measure building, querying and merging of trees.

    Parameters
    ----------
    scenario : Scenario
        A scenario of nearest neighbours.
    rows : sequence of int
        Rows of the trees; trees of up to `MOST_ROWS` are built.
    """
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


def cascade_costs(scenario: Scenario) -> CascadeCosts:
    """Measure the steps of a cascade on generated points, and the rows that each step passes on."""
    rows = PARTS * TRAINED[-1] // 2
    with CascadeSvm(None, 1, 0.0).open(
        InputChoice(None, None, None, rows, scenario.parameters.dims, scenario.seed)
    ) as dataset:
        assert dataset.labels is not None
        points = dataset.points.read(0, rows)
        data = numbered(points, dataset.labels.read(0, rows), 0)
    svc = SVC(gamma=float(1 / (points.shape[1] * points.var())))
    training = Training(svc, 1, 0.0, rows)
    with threadpool_limits(1):
        trained = [_trained(data, training, size) for size in TRAINED]
        merged = [_merged(data, training, size) for size in TRAINED[:-1]]
        concluded = [conclude([found], svc) for _, found in trained]
        solution = concluded[-1]
        part = _part(data, 0, TRAINED[-1])
        looking = median_of(lambda: timed(lambda: missing(part, solution)))
        iterations = _iterations(data, training)
    sizes = tuple(map(float, TRAINED))
    vectors = [float(len(support(found))) for found in concluded]
    return CascadeCosts(
        train=Curve(sizes, tuple(seconds for seconds, _ in trained)),
        merge=Curve(tuple(size for size, _ in merged), tuple(seconds for _, seconds in merged)),
        kept=Curve(sizes, tuple(float(len(found.rows)) for _, found in trained)),
        support=Curve(sizes, tuple(vectors)),
        look=looking / len(part) / vectors[-1],
        iterations=iterations,
    )


def _part(data: Rows, number: int, size: int) -> Rows:
    return data.taken(slice(number * size, (number + 1) * size))


def _trained(data: Rows, training: Training, size: int) -> tuple[float, SupportSet]:
    part = _part(data, 0, size)
    found = train_part(part, training, FEW_PARTS)
    assert found is not None
    return median_of(lambda: timed(lambda: train_part(part, training, FEW_PARTS))), found


def _merged(data: Rows, training: Training, size: int) -> tuple[float, float]:
    """Return how many rows the parts of a size pass on, and the seconds to merge them."""
    sets = [train_part(_part(data, number, size), training, FEW_PARTS) for number in range(PARTS)]
    rows = sum(len(found.rows) for found in sets if found is not None)
    doubt = FEW_PARTS.doubt(PARTS * size)
    return float(rows), median_of(lambda: timed(lambda: merge_sets(sets, doubt, training.svc)))


def _iterations(data: Rows, training: Training) -> int:
    """Return the iterations of a small cascade until it converges, at most `PARTS`."""
    parts = [_part(data, number, TRAINED[1]) for number in range(PARTS)]
    solution = conclude([train_part(part, training, FEW_PARTS) for part in parts], training.svc)
    while not solution.converged and len(solution.objectives) < PARTS:
        lacking = [missing(part, solution) for part in parts]
        solution = improve(lacking, training.svc, training.tol, solution)
    return len(solution.objectives)
