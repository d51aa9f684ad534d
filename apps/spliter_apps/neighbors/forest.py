"""One tree per location, and the tasks that ask all of them.

::

    queries, a piece per thread      trees, one per location
    piece 0 (at A) ──────────┬────── ask tree A (at A) ──┐
             └───────────────│────── ask tree B (at B) ──┴── merge, conclude (at A)
    piece 1 (at B) ──────────┴────── ask tree A (at A) ──┐
             └────────────────────── ask tree B (at B) ──┴── merge, conclude (at B)

A tree never leaves its location. A piece of the queries goes to every location once (many of them
by way of one location, few with the tasks), and the candidates of each tree come back to where the
piece is. Nothing is waited for in between: a tree
that is still being built is an argument of the tasks that ask it.
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
"""Queries that are worth a task of their own: among 25,000 points of 8 columns they take 6 ms, a
task on Dask about 1 ms."""


@dataclass(frozen=True, eq=False)
class Forest:
    """The trees of a fitted estimator.

    Parameters
    ----------
    search : Search
        How all of them search.
    trees : tuple of Tree or of future
        One per location (per partition, strictly).
    partitions : tuple of Partition
        What each tree was made of; none if the trees are in this process' memory.
    parts : Split or None
        What the partitions are of.
    """

    search: Search
    trees: tuple[Any, ...]
    partitions: tuple[Partition, ...] = ()
    parts: Split | None = None

    @classmethod
    def plant(
        cls, parts: Split, params: Mapping[str, Any], kind: TargetKind | None
    ) -> tuple[Forest, Sample]:
        """Check the points, and start building a tree of each partition, where it is.

        Parameters
        ----------
        parts : Split
            Of points, or points and targets, with known item indexes. Kept.
        params : mapping
            Of the estimator; see :func:`resolve_search`.
        kind : {'classes', 'values'} or None
            What the targets are.

        Returns
        -------
        Forest
            Of futures.
        Sample
            What the points and targets are; waited for.

        Raises
        ------
        InvalidArgumentError
            If they, or the parameters, cannot be used.
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
        """Return it with all trees in this process' memory."""
        return Forest(self.search, tuple(gather(self.trees))) if self.partitions else self

    def _engine(self) -> tuple[Executor, tuple[Location, ...]]:
        """Return what runs tasks at the trees' locations, and these."""
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
        """Answer a question about queries in memory.

        Parameters
        ----------
        points : ndarray or CSR matrix of shape (n, n_features)
            Queries.
        question : Question
            What to ask the trees.
        conclude : callable
            What to make of the neighbours.

        Returns
        -------
        tuple of ndarray or CSR matrix of n rows
            Waited for.
        """
        engine, locations = self._engine()
        places = sorted(set(locations))
        n_queries = points.shape[0]
        # A few more where they would be too long for one message, never many short ones.
        count = max(
            min(self._threads(engine, places), -(-n_queries // PIECE_ROWS)),
            -(-nbytes(points) // MESSAGE_NBYTES),
            1,
        )
        # Few queries, or of few trees, go with the tasks, which need not wait for them then.
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
        """Answer a question about queries in blocks, without waiting.

        Parameters
        ----------
        parts : Split
            Of queries, or tuples whose first element is queries.
        expected : Expected
            What they have to be.
        question, conclude
            As for :meth:`about_array`.

        Returns
        -------
        list of (Partition, list of future)
            Futures of the answers for each partition, in order.
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
        """Answer a question about the fitted points, without waiting.

        Parameters
        ----------
        question, conclude
            As for :meth:`about_array`; points are not their own neighbours.

        Returns
        -------
        list of (Partition or None, list of future)
            Futures of the answers for each tree, in the order of its points.
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
        """Ask every tree about one piece; return the future of the answer."""
        found = [
            engine.submit(ask_tree, (tree, piece, question), {}, location=location)
            for tree, location in zip(self.trees, locations, strict=True)
        ]
        own = piece if fitted else None
        return engine.submit(conclude_answer, (own, found, question, conclude), {}, location=at)

    def _reachable(self, engine: Executor, location: Location) -> Forest:
        """Return it with trees that tasks of an engine can name."""
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
        """Return how many searches a location can run at once."""
        if self.search.algorithm == "brute" and not self.partitions:
            return 1  # it uses all cores of this process itself
        return max(engine.capacities(locations).values())


def this_process() -> tuple[Executor, Location]:
    """Return what runs tasks in this process, and its location."""
    with split([np.empty((0, 1))], backend="local") as parts:
        return _executor(parts[0]), parts[0].location


def _executor(partition: Partition) -> Executor:
    assert partition.executor is not None, "a partition is asked on the side that split it"
    return partition.executor


def in_item_order(answers: Sequence[Answer], items: Sequence[Ints]) -> Answer:
    """Return answers about the fitted points in the order of these.

    Parameters
    ----------
    answers : sequence of answer
        One for each tree, in the order of its points.
    items : sequence of ndarray of int64
        The numbers of these.

    Returns
    -------
    tuple of ndarray or CSR matrix
        Of as many rows as there are points.
    """
    order = np.argsort(np.concatenate(items), kind="stable")
    in_order = (order == np.arange(len(order))).all()
    outputs = stacked(answers)
    return outputs if in_order else tuple(output[order] for output in outputs)
