"""``spliter compare knn``: find the nearest neighbours of points held out.

Each run builds the search trees and answers all queries, which come from the client. All ways but
``sklearn`` run the kernel of :class:`spliter_apps.NearestNeighbors`: each tree answers all queries,
and the best results are merged. A tree holds the points of a location (``spliter``), of a block or
chunk, or of a plain process (``floor``).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from spliter_apps.neighbors import NearestNeighbors
from spliter_apps.neighbors.kernel import (
    Candidates,
    Tree,
    build_tree,
    merge_nearest,
    nearest,
)
from spliter_apps.neighbors.metric import Search
from spliter_experiments.compare.data.arranged import hold_out
from spliter_experiments.compare.data.datasets import InputChoice, open_points, read_held_out
from spliter_experiments.compare.data.sources import Codes, Dataset, Floats, RowNumbers
from spliter_experiments.compare.engines.engine import Engine
from spliter_experiments.compare.floor import Floor
from spliter_experiments.compare.ways import SKLEARN, WAYS
from spliter_experiments.compare.workloads.checks import check_finite
from spliter_experiments.compare.workloads.workload import App, Parts, Site
from spliter_experiments.harness.errors import InputError, OptionError
from spliter_experiments.harness.runner import Answer, Contender

ALGORITHM = "kd_tree"
"""Search algorithm of all ways: scikit-learn's fastest for few columns."""

TOLERANCE = 1e-9
"""Relative tolerance of equal distances."""


@dataclass(frozen=True)
class Quest:
    """Query points and the number of neighbours, the same for all ways."""

    points: Floats
    neighbors: int


def by_spliter(site: Site[Engine], quest: Quest) -> Answer:
    """Fit SplIter's estimator and query it."""
    model = NearestNeighbors(n_neighbors=quest.neighbors, algorithm=ALGORITHM)
    distances, _ = model.fit(site.array).kneighbors(quest.points)
    return Answer(distances)


def by_sklearn(machine: Floor, quest: Quest, threads: int) -> Answer:
    """Fit and query scikit-learn's estimator in one process."""
    (distances,) = machine.call(ask_sklearn, quest, threads)
    return Answer(distances)


def on_floor(floor: Floor, quest: Quest) -> Answer:
    """Build and query a tree in every plain process; merge in this one."""
    floor.keep("tree", build_from_blocks)
    found = floor.call(nearest, quest.points, quest.neighbors, on="tree")
    return Answer(merge_nearest(found, quest.neighbors).distances)


def build_from_block(block: Floats, start: int) -> Tree:
    """Build a search tree of a block; `start` is the index of its first row."""
    return build_tree(block, np.arange(start, start + len(block)), Search(ALGORITHM))


def ask_block(block: Floats, start: int, points: Floats, k: int) -> Candidates:
    """Build and query the tree of a block; `start` is the index of its first row."""
    return nearest(build_from_block(block, start), points, k)


def build_from_blocks(blocks: Sequence[tuple[Floats, Codes]]) -> Tree:
    """Build a search tree of several blocks of points and row indexes."""
    points, numbers = zip(*blocks, strict=True)
    return build_tree(np.concatenate(points), np.concatenate(numbers), Search(ALGORITHM))


def ask_sklearn(blocks: Sequence[Floats], quest: Quest, threads: int) -> Floats:
    """Fit and query scikit-learn's estimator on one block."""
    from joblib import parallel_config
    from sklearn import neighbors

    (points,) = blocks
    model = neighbors.NearestNeighbors(
        n_neighbors=quest.neighbors, algorithm=ALGORITHM, n_jobs=threads
    )
    # A process that may not have children would use one thread otherwise.
    with parallel_config("threading"):
        distances: Floats
        distances, _ = model.fit(points).kneighbors(quest.points)
    return distances


@dataclass(frozen=True)
class Neighbors(App[Quest]):
    """Comparison of nearest neighbours, with their number per query and the number of queries."""

    neighbors: int
    queries: int

    name: ClassVar = "knn"
    ways: ClassVar = WAYS["knn"]
    split_ways: ClassVar = {"spliter": by_spliter}

    def __post_init__(self) -> None:
        if self.neighbors < 1 or self.queries < 1:
            raise OptionError(
                f"--neighbors and --queries must be at least 1, got {self.neighbors} and "
                f"{self.queries}"
            )

    @contextmanager
    def open(self, choice: InputChoice) -> Iterator[Dataset]:
        """Open points, and hold the queries out."""
        with open_points(choice, extra=self.queries) as points:
            rest, queries = hold_out(points, self.queries)
            yield Dataset(rest, held_out=queries)

    def check(self, dataset: Dataset) -> None:
        """Reject more neighbours than points."""
        if self.neighbors > dataset.points.rows:
            raise InputError(
                f"there are {dataset.points.rows} points to look among, fewer than --neighbors "
                f"{self.neighbors}"
            )

    def pose(self, site: Site[Engine]) -> Quest:
        """Return the queries and the number of neighbours."""
        check_finite(site.engine, site.dataset.points, site.array)
        return Quest(read_held_out(site.dataset), self.neighbors)

    @staticmethod
    def by_parts(parts: Parts, quest: Quest) -> Answer:
        """Run one task per part, which builds and queries a tree; then a tree of merges."""
        points, k = parts.engine.share(quest.points), quest.neighbors
        found = parts.call(ask_block, numbered=True, points=points, k=k)
        return Answer(parts.merge(functools.partial(merge_nearest, k=k), found).distances)

    def in_processes(self, way: str, site: Site[Engine], quest: Quest) -> Contender:
        """Return the contender for scikit-learn or the floor."""
        if way == SKLEARN:
            cores = site.engine.cores
            return site.contender_in_processes(
                way, lambda machine: by_sklearn(machine, quest, cores)
            )
        numbers = RowNumbers(site.array.shape[0])
        return site.contender_in_processes(way, lambda floor: on_floor(floor, quest), numbers)

    def same(self, left: Floats, right: Floats) -> bool:
        """Return whether distances are equal; among equidistant points any may be returned."""
        return left.shape == right.shape and bool(np.allclose(left, right, rtol=TOLERANCE))

    def detail(self) -> str:
        """Return the numbers of neighbours and queries."""
        return f"{self.neighbors} neighbors of {self.queries:,} queries"
