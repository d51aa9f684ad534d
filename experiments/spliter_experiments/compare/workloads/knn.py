"""``spliter compare knn``: find the nearest neighbours of points held out.

Each run builds the search trees and answers all queries. All ways but ``sklearn`` run the kernel of
:class:`spliter_apps.NearestNeighbors`: each tree answers all queries, and the best results are
merged. A tree holds the points of a location (``spliter``), of a block or chunk, or of a plain
process (``floor``).

Queries come from the client, in one array, or are a collection in blocks, as in the paper. Then
each tree is a task's result that stays in the engine, and one task asks one tree the queries of a
block (``spliter``: of a partition).
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import typer

from spliter import Partition, gather
from spliter_apps.neighbors import NearestNeighbors
from spliter_apps.neighbors.kernel import Candidates, Tree, build_tree, merge_nearest, nearest
from spliter_apps.neighbors.metric import Search
from spliter_experiments.compare.baseline import Baseline
from spliter_experiments.compare.data.datasets import InputChoice, open_points, read_held_out
from spliter_experiments.compare.data.sources import (
    Codes,
    Dataset,
    Floats,
    RowNumbers,
    cut_rows,
    hold_out,
)
from spliter_experiments.compare.data.sources import Rows as RowSource
from spliter_experiments.compare.engines.engine import Engine, Pairing
from spliter_experiments.compare.ways import FLOOR, SKLEARN, WAYS
from spliter_experiments.compare.workloads.app import App
from spliter_experiments.compare.workloads.site import Parts, Site, check_finite
from spliter_experiments.harness.errors import InputError
from spliter_experiments.harness.runner import Answer, Way

ALGORITHM = "kd_tree"
"""Search algorithm of all ways: scikit-learn's fastest for few columns."""

TOLERANCE = 1e-9
"""Relative tolerance of equal distances."""


@dataclass(frozen=True)
class Query:
    """Query points, number of neighbours, and threads of scikit-learn, the same for all ways.

    If the queries are a collection, `points` is None, `chunks` has the rows of its blocks, and
    answers have a :func:`summary` of each block, shape (blocks, neighbors).
    """

    points: Floats | None
    neighbors: int
    threads: int
    chunks: tuple[int, ...] = ()

    def answer(self, distances: Floats) -> Answer:
        """Return the answer that follows from the distances of all queries, in memory."""
        if not self.chunks:
            return Answer(distances)
        ends = np.cumsum(self.chunks)[:-1]
        return Answer(np.stack([summary(block) for block in np.split(distances, ends)]))


def by_spliter(site: Site[Engine], query: Query) -> Answer:
    model = NearestNeighbors(n_neighbors=query.neighbors, algorithm=ALGORITHM)
    with site.split(site.array, partitions_per_location=1) as points:
        model.fit(points)
        if not query.chunks:
            return Answer(model.kneighbors(query.points)[0])
        with site.split(site.queries) as queries:
            found = model.kneighbors(queries)
        with site.split(found[0], persist=True) as distances:
            sums = itertools.chain.from_iterable(gather(distances.map(summaries)))
    for collection in found:
        if hasattr(collection, "delete"):  # dataClay keeps collections
            collection.delete()
    return Answer(np.stack([one for _, one in sorted(sums, key=operator.itemgetter(0))]))


def summaries(distances: Partition) -> list[tuple[Any, Floats]]:
    return [(index, summary(block)) for index, block in distances.items()]


def summary(distances: Floats) -> Floats:
    """Return the sum of the distances of the first, second, ... neighbours of a block.

    It stands for the results, which stay in the engine, when ways are compared.
    """
    return np.asarray(distances.sum(axis=0))


def by_sklearn(machine: Baseline, query: Query) -> Answer:
    (distances,) = machine.call(ask_sklearn, query)
    return query.answer(distances)


def on_floor(floor: Baseline, query: Query) -> Answer:
    floor.keep("tree", build_from_blocks)
    found = floor.call(nearest, query.points, query.neighbors, on="tree")
    return query.answer(merge_nearest(found, query.neighbors).distances)


def build_from_block(block: Floats, start: int) -> Tree:
    """Build a search tree of a block; `start` is the index of its first row."""
    return build_tree(block, np.arange(start, start + len(block)), Search(ALGORITHM))


def ask_block(block: Floats, start: int, points: Floats, k: int) -> Candidates:
    """Build and query the tree of a block; `start` is the index of its first row."""
    return nearest(build_from_block(block, start), points, k)


def merged_summary(found: Sequence[Candidates], k: int) -> Floats:
    return summary(merge_nearest(found, k).distances)


def build_from_blocks(blocks: Sequence[tuple[Floats, Codes]]) -> Tree:
    points, numbers = zip(*blocks, strict=True)
    return build_tree(np.concatenate(points), np.concatenate(numbers), Search(ALGORITHM))


def ask_sklearn(blocks: Sequence[Floats], query: Query) -> Floats:
    from joblib import parallel_config
    from sklearn import neighbors

    (points,) = blocks
    model = neighbors.NearestNeighbors(
        n_neighbors=query.neighbors, algorithm=ALGORITHM, n_jobs=query.threads
    )
    # A process that may not have children would use one thread otherwise.
    with parallel_config("threading"):
        distances: Floats
        distances, _ = model.fit(points).kneighbors(query.points)
    return distances


TREES = Pairing(build_from_block, nearest, merged_summary)
"""A tree of each block of points, asked each block of queries."""


@dataclass(frozen=True)
class Neighbors(App[Query]):
    """Comparison of nearest neighbours, with their number per query and the number of queries.

    The queries are loaded in `query_blocks` blocks, or come from the client if that is 0.
    """

    neighbors: Annotated[int, typer.Option(min=1, help="Neighbours to find of each query.")] = 5
    queries: Annotated[
        int, typer.Option(min=1, help="Queries: generated on top of the points, or rows held out.")
    ] = 20_000
    query_blocks: Annotated[
        int,
        typer.Option(min=0, help="Blocks of queries at workers; 0: the program sends them."),
    ] = 0

    name: ClassVar = "knn"
    ways: ClassVar = WAYS["knn"]
    defaults: ClassVar = {"rows": 200_000, "dims": 8}
    split_ways: ClassVar = {"spliter": by_spliter}
    off_cluster: ClassVar = {SKLEARN: by_sklearn, FLOOR: on_floor}
    about: ClassVar = "{neighbors} neighbors of {queries:,} queries"

    def open(self, choice: InputChoice) -> Dataset:
        rest, queries = hold_out(open_points(choice, extra=self.queries), self.queries)
        chunks = cut_rows(self.queries, self.query_blocks) if self.query_blocks else ()
        return Dataset(rest, held_out=queries, query_chunks=chunks)

    def check(self, dataset: Dataset) -> None:
        if self.neighbors > dataset.points.rows:
            raise InputError(
                f"there are {dataset.points.rows} points to look among, fewer than --neighbors "
                f"{self.neighbors}"
            )

    def pose(self, site: Site[Engine]) -> Query:
        check_finite(site.engine, site.dataset.points, site.array)
        chunks = site.dataset.query_chunks
        if not chunks:
            return Query(read_held_out(site.dataset), self.neighbors, site.engine.cores)
        check_finite(site.engine, site.dataset.points, site.queries)
        return Query(None, self.neighbors, site.engine.cores, chunks)

    @staticmethod
    def by_parts(parts: Parts, query: Query) -> Answer:
        """Run one task per part, which builds and queries a tree; then a tree of merges.

        With queries in blocks, a task per part builds a tree, and one per tree and block asks it.
        """
        k = query.neighbors
        if query.points is None:
            sums = parts.call_pairs(TREES, k=k)
            return Answer(np.stack(parts.engine.results(sums)))
        points = parts.engine.share(query.points)
        found = parts.call(ask_block, numbered=True, points=points, k=k)
        return Answer(parts.merge(functools.partial(merge_nearest, k=k), found).distances)

    def aligned(self, way: str, dataset: Dataset) -> Sequence[RowSource]:
        return () if way == SKLEARN else (RowNumbers(dataset.points.rows),)

    def in_processes(self, way: str, site: Site[Engine], query: Query) -> Way:
        # In plain processes, queries are in memory.
        return super().in_processes(way, site, replace(query, points=read_held_out(site.dataset)))

    def same(self, left: Floats, right: Floats) -> bool:
        """Return whether distances are equal; among equidistant points any may be returned."""
        return left.shape == right.shape and bool(np.allclose(left, right, rtol=TOLERANCE))

    def detail(self) -> str:
        blocks = f" in {self.query_blocks} blocks" if self.query_blocks else ""
        return super().detail() + blocks
