"""Build one search tree per location, and query all of them with tasks.

::

    queries, a batch per thread      trees, one per location
    batch 0 (at A) ──────────┬────── query tree A (at A) ──┐
             └───────────────│────── query tree B (at B) ──┴── merge, conclude (at A)
    batch 1 (at B) ──────────┴────── query tree A (at A) ──┐
             └────────────────────── query tree B (at B) ──┴── merge, conclude (at B)

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
from spliter_apps._blocks import Expected
from spliter_apps._row_values import MESSAGE_NBYTES
from spliter_apps.neighbors.metric import Search, resolve_search
from spliter_apps.neighbors.sample import Sample, TargetKind, survey_sample
from spliter_apps.neighbors.tasks import (
    Answer,
    Conclude,
    Piece,
    Question,
    ask_tree,
    conclude_answer,
    grow_tree,
    hold,
    own_points,
    points_to_ask,
    stacked,
)
from spliter_apps.neighbors.tree import Ints, nbytes

PIECE_ROWS = 256
"""Queries per task: among 25,000 points of 8 columns they take 6 ms, a task on Dask about 1 ms."""


@dataclass(frozen=True, eq=False)
class Forest:
    """The search trees of a fitted estimator.

    Parameters
    ----------
    search : Search
        Algorithm and metric of all trees.
    trees : tuple of Tree or of future
        One per partition; there is one partition per location.
    partitions : tuple of Partition
        Partition of each tree; empty if the trees are in this process' memory.
    parts : Split or None
        The Split of these partitions.
    """

    search: Search
    trees: tuple[Any, ...]
    partitions: tuple[Partition, ...] = ()
    parts: Split | None = None

    @classmethod
    def plant(
        cls, parts: Split, params: Mapping[str, Any], kind: TargetKind | None
    ) -> tuple[Forest, Sample]:
        """Check the points, and start building a tree of each partition, at its location.

        Parameters
        ----------
        parts : Split
            Points, or points and targets, with known item indexes. Kept by the forest.
        params : mapping
            Parameters of the estimator; see :func:`resolve_search`.
        kind : {'classes', 'values'} or None
            Kind of the targets.

        Returns
        -------
        Forest
            Its trees are futures.
        Sample
            Description of the points and targets (already computed).

        Raises
        ------
        InvalidArgumentError
            If the points, targets or parameters are invalid.
        """
        partitions = tuple(parts)
        samples = gather([each.submit(survey_sample, kind) for each in partitions])
        sample = functools.reduce(Sample.merged, samples)
        schema = sample.schema
        if not schema.n_items:
            raise InvalidArgumentError(
                "Found array with 0 sample(s) in all blocks while a minimum of 1 is required."
            )
        search = resolve_search(
            params,
            n_items=schema.n_items,
            n_features=schema.n_features,
            is_sparse=schema.is_sparse,
        )
        trees = [each.submit(grow_tree, search, kind, schema.is_sparse) for each in partitions]
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
                "asking the trees waits for the engine, which its event loop must not do; call "
                "this in a thread: await asyncio.to_thread(estimator.kneighbors, X)"
            )
        return engine, tuple(each.location for each in self.partitions)

    def about_array(self, points: Any, question: Question, conclude: Conclude) -> Answer:
        """Query the forest with points in memory, and wait for the result.

        Parameters
        ----------
        points : ndarray or CSR matrix of shape (n, n_features)
            Queries.
        question : Question
            Kind of search in each tree.
        conclude : callable
            Computes the result from the merged neighbours.

        Returns
        -------
        tuple of ndarray or CSR matrix of n rows
        """
        engine, locations = self._engine()
        places = sorted(set(locations))
        n_queries = points.shape[0]
        # One batch per thread; fewer if batches get small, more if they exceed a message.
        count = max(
            min(self._threads(engine, places), -(-n_queries // PIECE_ROWS)),
            -(-nbytes(points) // MESSAGE_NBYTES),
            1,
        )
        # Small queries are sent as task arguments, which saves the tasks that would hold them.
        go_along = nbytes(points) * len(self.trees) <= MESSAGE_NBYTES
        answers = []
        for number in range(count):
            start, stop = (n_queries * at // count for at in (number, number + 1))
            at = places[number % len(places)]
            piece: Any = Piece(points[start:stop])
            if not go_along:
                piece = engine.submit(hold, (piece,), {}, location=at)
            answers.append(self._ask(engine, locations, piece, at, question, conclude))
        return stacked(gather(answers))

    def about_blocks(
        self, parts: Split, expected: Expected, question: Question, conclude: Conclude
    ) -> list[tuple[Partition, list[Any]]]:
        """Query the forest with points in blocks, without waiting.

        Parameters
        ----------
        parts : Split
            Queries, or tuples whose first element is queries.
        expected : Expected
            Requirements for the queries.
        question, conclude
            As for :meth:`about_array`.

        Returns
        -------
        list of (Partition, list of future)
            Futures of the results for each partition, in order.
        """
        partitions = list(parts)
        engine = _executor(partitions[0])
        forest = self._reachable(engine, partitions[0].location)
        answers: list[tuple[Partition, list[Any]]] = []
        for partition in partitions:
            piece = partition.submit(points_to_ask, expected)
            at = partition.location
            places = tuple(each.location for each in self.partitions) or (at,) * len(self.trees)
            answers.append(
                (partition, [forest._ask(engine, places, piece, at, question, conclude)])
            )
        return answers

    def about_itself(
        self, question: Question, conclude: Conclude
    ) -> list[tuple[Partition | None, list[Any]]]:
        """Query the forest with its own points, without waiting.

        Parameters
        ----------
        question, conclude
            As for :meth:`about_array`; points are not their own neighbours.

        Returns
        -------
        list of (Partition or None, list of future)
            Futures of the results for each tree, in the order of its points.
        """
        engine, locations = self._engine()
        places = sorted(set(locations))
        threads = self._threads(engine, places)
        of = max(-(-threads * len(places) // len(self.trees)), 1)
        forest = self._reachable(engine, places[0])
        answers: list[tuple[Partition | None, list[Any]]] = []
        for tree, at, partition in zip(
            forest.trees, locations, self.partitions or [None] * len(self.trees), strict=True
        ):
            pieces = [
                engine.submit(own_points, (tree, number, of), {}, location=at)
                for number in range(of)
            ]
            answers.append(
                (
                    partition,
                    [
                        forest._ask(engine, locations, piece, at, question, conclude, fitted=True)
                        for piece in pieces
                    ],
                )
            )
        return answers

    def _ask(
        self,
        engine: Executor,
        locations: Sequence[Location],
        piece: Any,
        at: Location,
        question: Question,
        conclude: Conclude,
        *,
        fitted: bool = False,
    ) -> Any:
        """Query every tree with one batch; return the future of the result."""
        found = [
            engine.submit(ask_tree, (tree, piece, question), {}, location=location)
            for tree, location in zip(self.trees, locations, strict=True)
        ]
        own = piece if fitted else None
        return engine.submit(conclude_answer, (own, found, question, conclude), {}, location=at)

    def _reachable(self, engine: Executor, location: Location) -> Forest:
        """Return a forest whose trees are futures of the given engine."""
        if not self.partitions:
            held = (engine.submit(hold, (tree,), {}, location=location) for tree in self.trees)
            return Forest(self.search, tuple(held))
        own = _executor(self.partitions[0])
        if type(own) is not type(engine):
            raise InvalidArgumentError(
                "the fitted points and the queries are collections of different engines "
                f"({type(own).__name__}, {type(engine).__name__}); pass queries of the engine "
                "that the estimator was fitted on, or one array"
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
    assert partition.executor is not None, "a partition is asked on the side that split it"
    return partition.executor


def in_item_order(answers: Sequence[Answer], items: Sequence[Ints]) -> Answer:
    """Return the results for the training points in the order of the training data.

    Parameters
    ----------
    answers : sequence of answer
        One for each tree, in the order of its points.
    items : sequence of ndarray of int64
        Row numbers of the points of each tree.

    Returns
    -------
    tuple of ndarray or CSR matrix
        One row per training point.
    """
    order = np.argsort(np.concatenate(items), kind="stable")
    in_order = (order == np.arange(len(order))).all()
    outputs = stacked(answers)
    return outputs if in_order else tuple(output[order] for output in outputs)
