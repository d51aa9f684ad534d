"""Build one search tree per location, and query all of them with tasks.

::

    queries, a batch per thread      trees, one per location
    batch 0 (at A) ──────────┬────── query tree A (at A) ──┐
             └───────────────│────── query tree B (at B) ──┴── merge, finish (at A)
    batch 1 (at B) ──────────┴────── query tree A (at A) ──┐
             └────────────────────── query tree B (at B) ──┴── merge, finish (at B)

A tree never leaves its location. Each batch of queries is sent to every location once (large ones
from one location, small ones as task arguments), and the candidates of each tree are sent back to
the batch's location. No step waits for another: a tree that is still being built is an argument of
the tasks that query it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spliter import InvalidArgumentError, Location, Partition, Split, gather, split
from spliter.backend import Executor
from spliter_apps._row_values import MESSAGE_NBYTES
from spliter_apps.neighbors.inspection import DataSummary, TargetKind, inspect_partition
from spliter_apps.neighbors.metric import Search, resolve_search
from spliter_apps.neighbors.tasks import (
    BatchResult,
    FinishFunction,
    Query,
    QueryBatch,
    build_partition_tree,
    concatenate_results,
    finish_batch,
    identity,
    own_queries,
    queries_of,
    query_tree,
)
from spliter_apps.neighbors.tree import Ints, nbytes

QUERIES_PER_TASK = 256
"""Queries per task: among 25,000 points of 8 columns they take 6 ms, a task on Dask about 1 ms."""


@dataclass(frozen=True, eq=False)
class Forest:
    """The search trees of a fitted estimator.

    search: Algorithm and metric of all trees.
    trees: One per partition; there is one partition per location.
    partitions: Partition of each tree; empty if the trees are in this process' memory.
    parts: The Split of these partitions.
    """

    search: Search
    trees: tuple[Any, ...]
    partitions: tuple[Partition, ...] = ()
    parts: Split | None = None

    @classmethod
    def build(
        cls, parts: Split, params: Mapping[str, Any], kind: TargetKind | None
    ) -> tuple[Forest, DataSummary]:
        """Check the points, and start building a tree of each partition, at its location.

        `parts` are points, or points and targets, with known item indexes; the forest keeps them.
        The trees are futures, the summary of the points and targets is computed.
        """
        partitions = tuple(parts)
        samples = gather([each.submit(inspect_partition, kind) for each in partitions])
        sample = functools.reduce(DataSummary.merged, samples)
        schema = sample.schema
        if not schema.n_items:
            raise InvalidArgumentError(
                "Found array with 0 sample(s) in all blocks while a minimum of 1 is required."
            )
        search = resolve_search(
            params, n_items=schema.n_items, n_features=schema.n_features, is_sparse=schema.is_sparse
        )
        trees = [
            each.submit(build_partition_tree, search, kind, schema.is_sparse) for each in partitions
        ]
        return cls(search, tuple(trees), partitions, parts), sample

    def gathered(self) -> Forest:
        """Return a forest with all trees in this process' memory."""
        return Forest(self.search, tuple(gather(self.trees))) if self.partitions else self

    def _engine(self) -> tuple[Executor, tuple[Location, ...]]:
        """Return the executor for the trees, and the location of each tree."""
        if not self.partitions:
            engine, location = this_process()
            return engine, (location,) * len(self.trees)
        engine = _executor(self.partitions[0])
        if not engine.blocking_call_allowed():
            raise InvalidArgumentError(
                "a query waits for the engine and would block its event loop; run it in a thread: "
                "await asyncio.to_thread(estimator.kneighbors, X)"
            )
        return engine, tuple(each.location for each in self.partitions)

    def query_array(self, points: Any, query: Query, finish: FinishFunction) -> BatchResult:
        """Query the forest with points in memory, and wait for the result."""
        engine, locations = self._engine()
        places = sorted(set(locations))
        n_queries = points.shape[0]
        # One batch per thread; fewer if batches get small, more if they exceed a message.
        count = max(
            min(self._threads(engine, places), -(-n_queries // QUERIES_PER_TASK)),
            -(-nbytes(points) // MESSAGE_NBYTES),
            1,
        )
        # Small queries are sent as task arguments, which saves the tasks that would hold them.
        go_along = nbytes(points) * len(self.trees) <= MESSAGE_NBYTES
        results = []
        for number in range(count):
            start, stop = (n_queries * at // count for at in (number, number + 1))
            at = places[number % len(places)]
            batch: Any = QueryBatch(points[start:stop])
            if not go_along:
                batch = engine.submit(identity, (batch,), {}, location=at)
            results.append(self._query_batch(engine, locations, batch, at, query, finish))
        return concatenate_results(gather(results))

    def query_blocks(
        self, parts: Split, requirements: Any, query: Query, finish: FinishFunction
    ) -> list[tuple[Partition, list[Any]]]:
        """Query the forest with points in blocks, without waiting.

        Returns each partition with the futures of its results.
        """
        partitions = list(parts)
        engine = _executor(partitions[0])
        forest = self._reachable(engine, partitions[0].location)
        results: list[tuple[Partition, list[Any]]] = []
        for partition in partitions:
            batch = partition.submit(queries_of, requirements)
            at = partition.location
            places = tuple(each.location for each in self.partitions) or (at,) * len(self.trees)
            found = forest._query_batch(engine, places, batch, at, query, finish)
            results.append((partition, [found]))
        return results

    def query_own_points(
        self, query: Query, finish: FinishFunction
    ) -> list[tuple[Partition | None, list[Any]]]:
        """Query the forest with its own points, without waiting; none is its own neighbour.

        Returns for each tree its partition, if it has one, and the futures of its results, in the
        order of its points.
        """
        engine, locations = self._engine()
        places = sorted(set(locations))
        threads = self._threads(engine, places)
        of = max(-(-threads * len(places) // len(self.trees)), 1)
        forest = self._reachable(engine, places[0])
        results: list[tuple[Partition | None, list[Any]]] = []
        for tree, at, partition in zip(
            forest.trees, locations, self.partitions or [None] * len(self.trees), strict=True
        ):
            batches = [
                engine.submit(own_queries, (tree, number, of), {}, location=at)
                for number in range(of)
            ]
            found = [
                forest._query_batch(engine, locations, batch, at, query, finish, fitted=True)
                for batch in batches
            ]
            results.append((partition, found))
        return results

    def _query_batch(
        self,
        engine: Executor,
        locations: Sequence[Location],
        batch: Any,
        at: Location,
        query: Query,
        finish: FinishFunction,
        *,
        fitted: bool = False,
    ) -> Any:
        """Query every tree with one batch; return the future of the result."""
        found = [
            engine.submit(query_tree, (tree, batch, query), {}, location=location)
            for tree, location in zip(self.trees, locations, strict=True)
        ]
        own = batch if fitted else None
        return engine.submit(finish_batch, (own, found, query, finish), {}, location=at)

    def _reachable(self, engine: Executor, location: Location) -> Forest:
        """Return a forest whose trees are futures of the given engine."""
        if not self.partitions:
            held = (engine.submit(identity, (tree,), {}, location=location) for tree in self.trees)
            return Forest(self.search, tuple(held))
        own = _executor(self.partitions[0])
        if type(own) is not type(engine):
            raise InvalidArgumentError(
                "the fitted points and the queries belong to different engines "
                f"({type(own).__name__}, {type(engine).__name__}); pass queries of the first one, "
                "or an array"
            )
        return self

    def _threads(self, engine: Executor, locations: Sequence[Location]) -> int:
        """Return how many searches a location can run in parallel."""
        if self.search.algorithm == "brute" and not self.partitions:
            return 1  # it uses all cores of this process itself
        return max(engine.capacities(locations).values())


def this_process() -> tuple[Executor, Location]:
    """Return the executor for tasks in this process, and its location."""
    with split([np.empty((0, 1))], backend="local") as parts:
        return _executor(parts[0]), parts[0].location


def _executor(partition: Partition) -> Executor:
    assert partition.executor is not None, "a client-side partition has an executor"
    return partition.executor


def order_by_item(results: Sequence[BatchResult], items: Sequence[Ints]) -> BatchResult:
    """Return the results for the training points in the order of the training data.

    `results` has one element for each tree, `items` the row numbers of its points.
    """
    order = np.argsort(np.concatenate(items), kind="stable")
    in_order = (order == np.arange(len(order))).all()
    outputs = concatenate_results(results)
    return outputs if in_order else tuple(output[order] for output in outputs)
