"""Cut a part out of the packed bytes: find the nodes that hold it, without any state.

A position in the packed bytes is found by division where all blocks have one size, else by
bisection. A part of a vector of structs, for instance, is the tail of one struct, whole structs,
and the head of another::

    packed bytes   | struct 0 | struct 1 | struct 2 | struct 3 |
    part                 [---------------------------]
    pieces               tail | Repeat(2)           | head

"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from spliter.layout._nodes import Node, Placed, Places, Repeat, Run, Runs, Sequence


@dataclass(frozen=True, slots=True)
class Piece:
    """A whole node, where it is in memory, and the position of its bytes in the part."""

    displacement: int
    node: Node
    position: int


def cut(placed: Placed, start: int, stop: int) -> Iterator[Piece]:
    """Yield nodes that hold the packed bytes from `start` to `stop`, in order.

    Parameters
    ----------
    placed : Placed
        Normal form of a layout.
    start, stop : int
        Positions in its packed bytes, ``0 <= start <= stop <= size``.

    Yields
    ------
    Piece
        Positions count from `start`. Their number is bounded by the depth and the number of
        different nodes, whatever the counts.

    Examples
    --------
    >>> from spliter.layout._nodes import Repeat, Run
    >>> for piece in cut(Placed(0, Repeat(9, 100, Run(8))), 5, 30):
    ...     print(piece)
    Piece(displacement=5, node=Run(size=3), position=0)
    Piece(displacement=100, node=Repeat(count=2, stride=100, child=Run(size=8)), position=3)
    Piece(displacement=300, node=Run(size=6), position=19)
    """
    return _cut(placed.node, placed.displacement, start, stop, 0)


def _cut(node: Node, at: int, start: int, stop: int, position: int) -> Iterator[Piece]:
    """Yield the pieces of one node; start and stop count from its own first byte."""
    if start >= stop:
        return
    if stop - start == node.size:
        yield Piece(at, node, position)
        return
    match node:
        case Run():
            yield Piece(at + start, Run(stop - start), position)
        case Repeat() | Places():
            yield from _cut_copies(node, at, start, stop, position)
        case Runs():
            yield from _cut_runs(node, at, start, stop, position)
        case Sequence():
            yield from _cut_sequence(node, at, start, stop, position)


def _cut_copies(
    node: Repeat | Places, at: int, start: int, stop: int, position: int
) -> Iterator[Piece]:
    """Yield the tail of one copy, whole copies, and the head of one."""
    child = node.child
    first, skipped = divmod(start, child.size)
    last, left = divmod(stop, child.size)
    if first == last:
        yield from _cut(child, at + _place(node, first), skipped, left, position)
        return
    if skipped:
        yield from _cut(child, at + _place(node, first), skipped, child.size, position)
        position += child.size - skipped
        first += 1
    if last > first:
        yield _copies(node, at, first, last, position)
        position += (last - first) * child.size
    if left:
        yield from _cut(child, at + _place(node, last), 0, left, position)


def _place(node: Repeat | Places, number: int) -> int:
    if isinstance(node, Repeat):
        return number * node.stride
    return int(node.displacements[number])


def _copies(node: Repeat | Places, at: int, first: int, last: int, position: int) -> Piece:
    if last - first == 1:
        return Piece(at + _place(node, first), node.child, position)
    if isinstance(node, Repeat):
        some = Repeat(last - first, node.stride, node.child)
        return Piece(at + first * node.stride, some, position)
    return Piece(at, Places(node.displacements[first:last], node.child), position)


def _cut_runs(node: Runs, at: int, start: int, stop: int, position: int) -> Iterator[Piece]:
    """Yield some of the runs as one node, its first and last run shortened."""
    first = int(np.searchsorted(node.ends, start, "right"))
    last = int(np.searchsorted(node.ends, stop, "left")) + 1
    displacements, lengths = node.displacements[first:last].copy(), node.lengths[first:last].copy()
    skipped = start - int(node.ends[first] - node.lengths[first])
    displacements[0] += skipped
    lengths[0] -= skipped
    lengths[-1] -= int(node.ends[last - 1]) - stop
    if len(lengths) == 1:
        yield Piece(at + int(displacements[0]), Run(int(lengths[0])), position)
    else:
        yield Piece(at, Runs(displacements, lengths), position)


def _cut_sequence(node: Sequence, at: int, start: int, stop: int, position: int) -> Iterator[Piece]:
    first = int(np.searchsorted(node.ends, start, "right"))
    for number in range(first, len(node.parts)):
        part = node.parts[number]
        end = int(node.ends[number])
        begin = end - part.node.size
        if begin >= stop:
            return
        low, high = max(start - begin, 0), min(stop, end) - begin
        yield from _cut(
            part.node, at + part.displacement, low, high, position + max(begin - start, 0)
        )
