"""Searches in a tree, and the functions that run them as tasks at the trees and queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from spliter import Partition
from spliter_apps._requirements import Requirements
from spliter_apps.neighbors.inspection import TargetKind, gather_points, gather_targets, stack
from spliter_apps.neighbors.kernel import Candidates, Tree, build_tree, merge_nearest, nearest
from spliter_apps.neighbors.metric import Search
from spliter_apps.neighbors.radius import Neighbourhoods, merge_within, within
from spliter_apps.neighbors.tree import Ints, nbytes

BatchResult: TypeAlias = tuple[Any, ...]
"""Result for a batch of queries: one array per output, with one entry per query."""

FinishFunction: TypeAlias = Callable[[Any], BatchResult]
"""Computes the result from the merged neighbours."""


@dataclass(frozen=True)
class NearestQuery:
    """Search for the k nearest neighbours."""

    k: int
    with_targets: bool = False

    def run(self, tree: Tree, points: Any) -> Candidates:
        """Return the nearest neighbours in one tree."""
        return nearest(tree, points, self.k, with_targets=self.with_targets)

    def merged(self, *found: Candidates) -> Candidates:
        """Return the nearest of those found in several trees."""
        return merge_nearest(found, self.k)


@dataclass(frozen=True)
class RadiusQuery:
    """Search for all neighbours within an inclusive radius."""

    radius: float
    with_targets: bool = False

    def run(self, tree: Tree, points: Any) -> Neighbourhoods:
        """Return the neighbours in one tree."""
        return within(tree, points, self.radius, with_targets=self.with_targets)

    def merged(self, *found: Neighbourhoods) -> Neighbourhoods:
        """Merge the neighbours found in several trees."""
        return merge_within(found)


Query: TypeAlias = NearestQuery | RadiusQuery


@dataclass(frozen=True, eq=False)
class QueryBatch:
    """A batch of queries.

    points (ndarray or CSR matrix of shape (n, n_features))
    items (ndarray of int64, shape (n,), or None): Global row numbers if the queries are training
        points, which are not their own neighbours.
    """

    points: Any
    items: Ints | None = None

    def __sizeof__(self) -> int:
        """Return the bytes of the arrays."""
        return 500 + nbytes(self.points) + nbytes(self.items)


def build_partition_tree(
    partition: Partition, search: Search, kind: TargetKind | None, is_sparse: bool
) -> Tree:
    """Build the search tree of a partition's points; the body of a task."""
    points = gather_points(partition, search.dtype, is_sparse=is_sparse)
    targets = None if kind is None else gather_targets(partition)[0]
    if targets is not None and kind == "classes" and targets.shape[1:] == (1,):
        targets = targets.ravel()
    return build_tree(points, partition.get_item_indexes(), search, targets)


def identity(value: Any) -> Any:
    """Return the value, to hold it as a task result at a location."""
    return value


def queries_of(partition: Partition, requirements: Requirements) -> QueryBatch:
    """Return the queries of a partition as one batch; the body of a task."""
    blocks = (block[0] if isinstance(block, tuple) else block for block in partition)
    return QueryBatch(stack(map(requirements.points, blocks), partition.shape[0]))


def own_queries(tree: Tree, number: int, of: int) -> QueryBatch:
    """Return the `number`-th of `of` batches of a tree's own points; the body of a task."""
    start, stop = (len(tree) * at // of for at in (number, number + 1))
    return QueryBatch(tree.points[start:stop], tree.items[start:stop])


def query_tree(tree: Tree, batch: QueryBatch, query: Query) -> Any:
    """Run a search in a tree; a task at the tree's location."""
    return query.run(tree, batch.points)


def finish_batch(
    own: QueryBatch | None, found: Sequence[Any], query: Query, finish: FinishFunction
) -> BatchResult:
    """Merge the trees' results and compute the final one; a task at the queries' location."""
    merged: Any = query.merged(*found)
    return finish(merged if own is None or own.items is None else merged.without(own.items))


def cut_results(partition: Partition, results: Sequence[BatchResult]) -> tuple[list[Any], ...]:
    """Cut each output by the partition's blocks; the body of a task."""
    return tuple(map(partition.cut, concatenate_results(results)))


def concatenate_results(results: Iterable[BatchResult]) -> BatchResult:
    """Concatenate the results of several batches, in their order, output by output."""
    return tuple(stack(output, None) for output in zip(*results, strict=True))
