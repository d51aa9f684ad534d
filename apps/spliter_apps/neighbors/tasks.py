"""What is asked of trees, and the functions that run as tasks where trees and queries are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from spliter import Partition
from spliter_apps._blocks import Expected
from spliter_apps.neighbors.kernel import Candidates, Tree, build_tree, merge_nearest, nearest
from spliter_apps.neighbors.metric import Search
from spliter_apps.neighbors.radius import Neighbourhoods, merge_within, within
from spliter_apps.neighbors.sample import (
    TargetKind,
    gather_points,
    gather_targets,
    stack,
)
from spliter_apps.neighbors.tree import Ints, nbytes

Answer: TypeAlias = tuple[Any, ...]
"""What is concluded for a piece of the queries: arrays of one entry per query."""

Conclude: TypeAlias = Callable[[Any], Answer]
"""Makes an answer of the neighbours that were found."""


class Question(Protocol):
    """What is asked about each query."""

    def ask(self, tree: Tree, points: Any) -> Any:
        """Return what one tree knows."""
        ...

    def merged(self, *found: Any) -> Any:
        """Return what several trees know together."""
        ...


@dataclass(frozen=True)
class WhichNearest:
    """Ask for the k nearest neighbours.

    Parameters
    ----------
    k : int
        How many.
    with_targets : bool
        Whether their targets are wanted too.
    """

    k: int
    with_targets: bool = False

    def ask(self, tree: Tree, points: Any) -> Candidates:
        """Return the nearest that one tree knows."""
        return nearest(tree, points, self.k, with_targets=self.with_targets)

    def merged(self, *found: Candidates) -> Candidates:
        """Return the nearest that several trees know."""
        return merge_nearest(found, self.k)


@dataclass(frozen=True)
class WhichWithin:
    """Ask for all neighbours within a radius.

    Parameters
    ----------
    radius : float
        The radius.
    with_targets : bool
        Whether their targets are wanted too.
    """

    radius: float
    with_targets: bool = False

    def ask(self, tree: Tree, points: Any) -> Neighbourhoods:
        """Return those that one tree knows."""
        return within(tree, points, self.radius, with_targets=self.with_targets)

    def merged(self, *found: Neighbourhoods) -> Neighbourhoods:
        """Return those that several trees know."""
        return merge_within(found)


@dataclass(frozen=True, eq=False)
class Piece:
    """Queries at their location.

    Parameters
    ----------
    points : ndarray or CSR matrix of shape (n, n_features)
        The queries.
    items : ndarray of int64, shape (n,), or None
        Their global numbers, if they are fitted points, which are not their own neighbours.
    """

    points: Any
    items: Ints | None = None

    def __sizeof__(self) -> int:
        """Return the bytes of the arrays."""
        return 500 + nbytes(self.points) + nbytes(self.items)


def grow_tree(
    partition: Partition, search: Search, kind: TargetKind | None, is_sparse: bool
) -> Tree:
    """Run at a location: make the points of a partition searchable."""
    points = gather_points(partition, search.dtype, is_sparse=is_sparse)
    targets = None if kind is None else gather_targets(partition)
    if targets is not None and kind == "classes" and targets.shape[1:] == (1,):
        targets = targets.ravel()
    return build_tree(points, partition.get_item_indexes(), search, targets)


def hold(value: Any) -> Any:
    """Run at a location: be the value that later tasks name."""
    return value


def points_to_ask(partition: Partition, expected: Expected) -> Piece:
    """Run at a location: make a piece of a partition of queries (and what goes with them)."""
    blocks = (block[0] if isinstance(block, tuple) else block for block in partition)
    return Piece(stack(map(expected.points, blocks), partition.shape[0]))


def own_points(tree: Tree, number: int, of: int) -> Piece:
    """Run at a location: make a piece of a tree's own points, one of several."""
    start, stop = (len(tree) * at // of for at in (number, number + 1))
    return Piece(tree.points[start:stop], tree.items[start:stop])


def ask_tree(tree: Tree, piece: Piece, question: Question) -> Any:
    """Run where the tree is: ask it."""
    return question.ask(tree, piece.points)


def conclude_answer(
    own: Piece | None, found: Sequence[Any], question: Question, conclude: Conclude
) -> Answer:
    """Run where the queries are: merge what the trees have found, but not themselves."""
    together = question.merged(*found)
    if own is not None and own.items is not None:
        together = together.without(own.items)
    return conclude(together)


def cut_answers(partition: Partition, answers: Sequence[Answer]) -> tuple[list[Any], ...]:
    """Run at a location: cut each output of the answers like the partition's blocks."""
    return tuple(map(partition.cut, stacked(answers)))


def stacked(answers: Iterable[Answer]) -> Answer:
    """Return answers about pieces of the queries as one.

    Parameters
    ----------
    answers : iterable of answer
        In the order of the pieces; at least one.

    Returns
    -------
    tuple of ndarray or CSR matrix
        One for each output.
    """
    return tuple(stack(output, None) for output in zip(*answers, strict=True))
