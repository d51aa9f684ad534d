"""``spliter compare kmeans``: run Lloyd's algorithm from the same initial centres.

All ways but ``dask-ml`` and ``sklearn`` run the kernel of :class:`spliter_apps.KMeans`: once per
iteration, and once more to label the points.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import typer

from spliter_apps.kmeans import KMeans as SplitKMeans
from spliter_apps.kmeans.kernel import Assignment, PartialSums, assign, partial_sums
from spliter_apps.kmeans.lloyd import averages
from spliter_experiments.compare.baseline import Baseline
from spliter_experiments.compare.data.sources import Floats, Points
from spliter_experiments.compare.engines.engine import Engine
from spliter_experiments.compare.ways import FLOOR, SKLEARN, WAYS
from spliter_experiments.compare.workloads.app import App
from spliter_experiments.compare.workloads.site import Parts, Site, check_finite
from spliter_experiments.harness.errors import InputError
from spliter_experiments.harness.runner import Answer

TOLERANCE = 1e-6
"""Relative tolerance of equal centres and inertia: each way rounds sums in another order."""

CANDIDATES = 16
"""Candidate rows per initial centre, so that a few repeated rows do no harm."""


@dataclass(frozen=True)
class Start:
    """Initial centres, shape (clusters, columns), and iteration limit, the same for all ways.

    There are fewer iterations only if the centres stop moving.
    """

    centers: Floats
    iterations: int


@dataclass(frozen=True)
class Clustering:
    """Result of a way: centres in the order of the initial ones, and the inertia.

    The inertia is None if a way defines it differently.
    """

    centers: Floats
    inertia: float | None


def by_spliter(site: Site[Engine], start: Start, materialize: Any) -> Answer:
    model = SplitKMeans(
        len(start.centers), init=start.centers, n_init=1, max_iter=start.iterations, tol=0
    )
    with site.split(site.array, materialize=materialize) as partitions:
        model.fit(partitions)
    return Answer(Clustering(model.cluster_centers_, model.inertia_))


def by_sklearn(machine: Baseline, start: Start) -> Answer:
    (found,) = machine.call(fit_sklearn, start)
    return Answer(found)


def on_floor(floor: Baseline, start: Start) -> Answer:
    def label(centers: Floats) -> float:
        floor.keep("labels", assign_blocks, centers)
        return float(sum(floor.call(operator.attrgetter("inertia"), on="labels")))

    return Answer(
        iterate(start, lambda centers: add_partials(floor.call(sum_blocks, centers)), label)
    )


def iterate(
    start: Start, add_up: Callable[[Floats], PartialSums], label: Callable[[Floats], float]
) -> Clustering:
    """Run Lloyd's algorithm with the given implementations of its two steps.

    `add_up` returns the sums of all points by their nearest centre, `label` labels all points in
    place and returns the inertia. The ways handle empty clusters differently, so these are an
    `InputError`.
    """
    centers = start.centers
    for _ in range(start.iterations):
        total = add_up(centers)
        if not total.weights.all():
            raise InputError(
                "a cluster has lost all its points, which the ways do not all mend alike; take "
                "fewer --clusters or another --seed"
            )
        before, centers = centers, averages(total)
        if np.array_equal(before, centers):
            break
    return Clustering(centers, label(centers))


def sum_blocks(blocks: Sequence[Floats], centers: Floats) -> PartialSums:
    return partial_sums(blocks, centers)


def sum_block(block: Floats, centers: Floats) -> PartialSums:
    return sum_blocks((block,), centers)


def add_partials(partials: Sequence[PartialSums]) -> PartialSums:
    return functools.reduce(operator.add, partials)


def assign_blocks(blocks: Sequence[Floats], centers: Floats) -> Assignment:
    return assign(blocks, centers)


def inertia_of_block(block: Floats, centers: Floats) -> float:
    return float(assign_blocks((block,), centers).inertia)


def fit_sklearn(blocks: Sequence[Floats], start: Start) -> Clustering:
    from sklearn.cluster import KMeans

    (points,) = blocks
    # No copy is needed: the points are loaded again for every run.
    model = KMeans(
        len(start.centers),
        init=start.centers,
        n_init=1,
        max_iter=start.iterations,
        tol=0,
        algorithm="lloyd",
        copy_x=False,
    ).fit(points)
    return Clustering(model.cluster_centers_, float(model.inertia_))


@dataclass(frozen=True)
class KMeans(App[Start]):
    """Comparison of k-means; `seed` selects the initial centres."""

    clusters: Annotated[int, typer.Option(min=1, help="Clusters to form.")] = 8
    iterations: Annotated[int, typer.Option(min=1, help="Iterations of Lloyd's algorithm.")] = 10
    seed: int = 0

    name: ClassVar = "kmeans"
    ways: ClassVar = WAYS["kmeans"]
    defaults: ClassVar = {"rows": 2_000_000, "dims": 20}
    split_ways: ClassVar = {
        "spliter": functools.partial(by_spliter, materialize=False),
        "spliter-materialized": functools.partial(by_spliter, materialize=True),
        "spliter-auto": functools.partial(by_spliter, materialize="auto"),
    }
    off_cluster: ClassVar = {SKLEARN: by_sklearn, FLOOR: on_floor}
    about: ClassVar = "{clusters} clusters, {iterations} iterations"

    def pose(self, site: Site[Engine]) -> Start:
        check_finite(site.engine, site.dataset.points, site.array)
        centers = initial_centers(site.dataset.points, self.clusters, self.seed)
        return Start(centers, self.iterations)

    @staticmethod
    def by_parts(parts: Parts, start: Start) -> Answer:
        def add_up(centers: Floats) -> PartialSums:
            total: PartialSums = parts.merge(add_partials, parts.call(sum_block, centers=centers))
            return total

        def label(centers: Floats) -> float:
            return float(parts.merge(sum, parts.call(inertia_of_block, centers=centers)))

        return Answer(iterate(start, add_up, label))

    def same(self, left: Clustering, right: Clustering) -> bool:
        scale = TOLERANCE * np.abs(left.centers).max()
        if not np.allclose(left.centers, right.centers, rtol=TOLERANCE, atol=scale):
            return False
        if left.inertia is None or right.inertia is None:
            return True
        return bool(np.isclose(left.inertia, right.inertia, rtol=TOLERANCE))


def initial_centers(points: Points, clusters: int, seed: int) -> Floats:
    """Select distinct points at random."""
    generator = np.random.default_rng(seed)
    starts = generator.integers(0, max(points.rows - CANDIDATES, 0) + 1, size=clusters)
    rows = np.concatenate(
        [points.read(int(at), min(int(at) + CANDIDATES, points.rows)) for at in starts]
    )
    different = generator.permutation(np.unique(rows, axis=0))
    if len(different) < clusters:
        raise InputError(
            f"{points.origin}: only {len(different)} different points among {len(rows)} looked at "
            f"for initial centres; take fewer --clusters than {clusters}"
        )
    return different[:clusters]
