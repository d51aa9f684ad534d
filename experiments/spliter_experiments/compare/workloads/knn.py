"""``spliter compare knn``: find the nearest neighbours of points held out.

The clock runs while the points are made searchable and all queries are answered; the queries come
from the client. All ways but ``sklearn`` run the kernel of :class:`spliter_apps.NearestNeighbors`:
every query meets every tree, and the best of all trees are merged. A tree holds the points of a
location (``spliter``), of a block or chunk, or of a plain process (``floor``).
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
"""Of all ways: the fastest of scikit-learn's for few columns."""

TOLERANCE = 1e-9
"""Relative difference of distances that are the same."""


@dataclass(frozen=True)
class Quest:
    """What all ways are asked."""

    points: Floats
    neighbors: int


def by_spliter(site: Site[Engine], quest: Quest) -> Answer:
    """Use the estimator."""
    model = NearestNeighbors(n_neighbors=quest.neighbors, algorithm=ALGORITHM)
    distances, _ = model.fit(site.array).kneighbors(quest.points)
    return Answer(distances)


def by_sklearn(machine: Floor, quest: Quest, threads: int) -> Answer:
    """Leave it to scikit-learn, in one process."""
    (distances,) = machine.call(ask_sklearn, quest, threads)
    return Answer(distances)


def on_floor(floor: Floor, quest: Quest) -> Answer:
    """Build a tree in every plain process and ask it; merge here."""
    floor.keep("tree", build_from_blocks)
    found = floor.call(nearest, quest.points, quest.neighbors, on="tree")
    return Answer(merge_nearest(found, quest.neighbors).distances)


def build_from_block(block: Floats, start: int) -> Tree:
    """Make the points of a block searchable; `start` is the number of its first row."""
    return build_tree(block, np.arange(start, start + len(block)), Search(ALGORITHM))


def ask_block(block: Floats, start: int, points: Floats, k: int) -> Candidates:
    """Find the nearest points of one block; `start` is the number of its first row."""
    return nearest(build_from_block(block, start), points, k)


def build_from_blocks(blocks: Sequence[tuple[Floats, Codes]]) -> Tree:
    """Make the points of blocks searchable, which come with the numbers of their rows."""
    points, numbers = zip(*blocks, strict=True)
    return build_tree(np.concatenate(points), np.concatenate(numbers), Search(ALGORITHM))


def ask_sklearn(blocks: Sequence[Floats], quest: Quest, threads: int) -> Floats:
    """Run scikit-learn on one block."""
    from joblib import parallel_config
    from sklearn import neighbors

    (points,) = blocks
    model = neighbors.NearestNeighbors(
        n_neighbors=quest.neighbors, algorithm=ALGORITHM, n_jobs=threads
    )
    # Told to, as it would take one thread only in a process that may not have children.
    with parallel_config("threading"):
        distances: Floats
        distances, _ = model.fit(points).kneighbors(quest.points)
    return distances


@dataclass(frozen=True)
class Neighbors(App[Quest]):
    """The app: how many neighbours of each query, and how many queries."""

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
        """Refuse to look for more neighbours than there are points."""
        if self.neighbors > dataset.points.rows:
            raise InputError(
                f"there are {dataset.points.rows} points to look among, fewer than --neighbors "
                f"{self.neighbors}"
            )

    def pose(self, site: Site[Engine]) -> Quest:
        """Return the queries."""
        check_finite(site.engine, site.dataset.points, site.array)
        return Quest(read_held_out(site.dataset), self.neighbors)

    @staticmethod
    def by_parts(parts: Parts, quest: Quest) -> Answer:
        """Run one task per part, which builds a tree and asks it, and a tree of merges."""
        points, k = parts.engine.share(quest.points), quest.neighbors
        found = parts.call(ask_block, numbered=True, points=points, k=k)
        return Answer(parts.merge(functools.partial(merge_nearest, k=k), found).distances)

    def in_processes(self, way: str, site: Site[Engine], quest: Quest) -> Contender:
        """Return scikit-learn or the floor."""
        if way == SKLEARN:
            cores = site.engine.cores
            return site.contender_in_processes(
                way, lambda machine: by_sklearn(machine, quest, cores)
            )
        numbers = RowNumbers(site.array.shape[0])
        return site.contender_in_processes(way, lambda floor: on_floor(floor, quest), numbers)

    def same(self, left: Floats, right: Floats) -> bool:
        """Tell whether distances are equal; of points equally far any may be the neighbour."""
        return left.shape == right.shape and bool(np.allclose(left, right, rtol=TOLERANCE))

    def detail(self) -> str:
        """Return neighbours and queries."""
        return f"{self.neighbors} neighbors of {self.queries:,} queries"
