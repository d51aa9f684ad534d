"""Cut a part out of the packed bytes: find the nodes that hold it, without any state.

A position in the packed bytes is found by division where all blocks have one size, else by
bisection. A part of a vector of structs, for instance, is the tail of one struct, whole structs,
and the head of another::

    packed bytes   | struct 0 | struct 1 | struct 2 | struct 3 |
    part                 [---------------------------]
    pieces               tail | Vector(2)           | head

"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from spliter.layout._nodes import Contiguous, Indexed, IndexedBlock, Node, Placed, Struct, Vector


@dataclass(frozen=True, slots=True)
class Piece:
    """A whole node, where it is in memory, and the position of its bytes in the part."""

    displacement: int
    node: Node
    position: int


def cut(placed: Placed, start: int, stop: int) -> Iterator[Piece]:
    """Yield nodes that hold the packed bytes from `start` to `stop`, in order.

    Their number is bounded by the depth and the number of different nodes, whatever the counts.
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
        case Contiguous():
            yield Piece(at + start, Contiguous(stop - start), position)
        case Vector() | IndexedBlock():
            yield from _cut_copies(node, at, start, stop, position)
        case Indexed():
            yield from _cut_indexed(node, at, start, stop, position)
        case Struct():
            yield from _cut_struct(node, at, start, stop, position)


def _cut_copies(
    node: Vector | IndexedBlock, at: int, start: int, stop: int, position: int
) -> Iterator[Piece]:
    """Yield the tail of one copy, whole copies, and the head of one."""
    child, nbytes = node.child, node.child.size
    first, last = -(-start // nbytes), stop // nbytes
    if first > last:
        begin = last * nbytes
        yield from _cut(child, at + _place(node, last), start - begin, stop - begin, position)
        return
    tail, head = first * nbytes - start, stop - last * nbytes
    if tail:
        yield from _cut(child, at + _place(node, first - 1), nbytes - tail, nbytes, position)
    if last > first:
        yield _copies(node, at, first, last, position + tail)
    if head:
        yield from _cut(child, at + _place(node, last), 0, head, position + last * nbytes - start)


def _place(node: Vector | IndexedBlock, number: int) -> int:
    if isinstance(node, Vector):
        return number * node.stride
    return int(node.displacements[number])


def _copies(node: Vector | IndexedBlock, at: int, first: int, last: int, position: int) -> Piece:
    if last - first == 1:
        return Piece(at + _place(node, first), node.child, position)
    if isinstance(node, IndexedBlock):
        return Piece(at, IndexedBlock(node.displacements[first:last], node.child), position)
    some = Vector(last - first, node.stride, node.child)
    return Piece(at + first * node.stride, some, position)


def _cut_indexed(node: Indexed, at: int, start: int, stop: int, position: int) -> Iterator[Piece]:
    """Yield some of the runs as one node, its first and last run shortened."""
    first = int(np.searchsorted(node.ends, start, "right"))
    last = int(np.searchsorted(node.ends, stop, "left")) + 1
    displacements, lengths = node.displacements[first:last].copy(), node.lengths[first:last].copy()
    skipped = start - int(node.ends[first] - node.lengths[first])
    displacements[0] += skipped
    lengths[0] -= skipped
    lengths[-1] -= int(node.ends[last - 1]) - stop
    if len(lengths) == 1:
        yield Piece(at + int(displacements[0]), Contiguous(int(lengths[0])), position)
    else:
        yield Piece(at, Indexed(displacements, lengths), position)


def _cut_struct(node: Struct, at: int, start: int, stop: int, position: int) -> Iterator[Piece]:
    first = int(np.searchsorted(node.ends, start, "right"))
    for part, end in zip(node.parts[first:], node.ends[first:].tolist(), strict=True):
        begin = end - part.node.size
        low, high = max(start, begin) - begin, min(stop, end) - begin
        where = position + max(begin - start, 0)
        yield from _cut(part.node, at + part.displacement, low, high, where)
