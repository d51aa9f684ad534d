"""The normal form of layouts: five kinds of nodes over bytes, made by functions that merge them.

==========  ===============================================  =========================
node        bytes in packed order                            as a layout
==========  ===============================================  =========================
Run         contiguous ones                                  contiguous(n, "u1")
Repeat      copies of a node at equal steps                  hvector
Places      copies of a node at any displacements            hindexed_block
Runs        contiguous ones of several lengths               hindexed
Sequence    different nodes one after the other              struct
==========  ===============================================  =========================

Each node has its bytes of data (`size`), the displacements of its first byte and behind its last
(`low`, `high`), the contiguous runs that are copied (`count_runs`), all sizes and displacements
or-ed, whose low bits tell what divides them (`bits`), and a `key` that is equal for equal nodes.

A node begins at displacement 0; :class:`Placed` moves it. The functions :func:`repeat`,
:func:`places`, :func:`runs` and :func:`sequence` return the simplest node for the same bytes in the
same order; made from nodes that are simplest already, they change nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np

from spliter.layout._integers import Int64s

LEAST_CONTIGUOUS: Final = 0.5
"""Blocks of equal length are merged if this part of them follow the one before. Kernels copy runs
of several lengths half as fast as those of one: merging fewer costs more than it saves."""


@dataclass(frozen=True, eq=False)
class Run:
    """Contiguous bytes."""

    size: int

    @property
    def low(self) -> int:
        return 0

    @property
    def high(self) -> int:
        return self.size

    @property
    def count_runs(self) -> int:
        return 1 if self.size else 0

    @property
    def bits(self) -> int:
        return self.size

    @property
    def key(self) -> Hashable:
        return self.size


@dataclass(frozen=True, eq=False)
class Repeat:
    """Copies of a node, `stride` bytes from one to the next."""

    count: int
    stride: int
    child: Node

    @property
    def size(self) -> int:
        return self.count * self.child.size

    @property
    def low(self) -> int:
        return self.child.low + min(0, (self.count - 1) * self.stride)

    @property
    def high(self) -> int:
        return self.child.high + max(0, (self.count - 1) * self.stride)

    @property
    def count_runs(self) -> int:
        return self.count * self.child.count_runs

    @property
    def bits(self) -> int:
        return self.stride | self.child.bits

    @property
    def key(self) -> Hashable:
        return "repeat", self.count, self.stride, self.child.key


@dataclass(frozen=True, eq=False)
class Places:
    """Copies of a node at displacements in bytes."""

    displacements: Int64s
    child: Node

    @property
    def size(self) -> int:
        return len(self.displacements) * self.child.size

    @cached_property
    def low(self) -> int:
        return int(self.displacements.min()) + self.child.low

    @cached_property
    def high(self) -> int:
        return int(self.displacements.max()) + self.child.high

    @property
    def count_runs(self) -> int:
        return len(self.displacements) * self.child.count_runs

    @cached_property
    def bits(self) -> int:
        return int(np.bitwise_or.reduce(self.displacements)) | self.child.bits

    @property
    def key(self) -> Hashable:
        return "places", self.displacements.tobytes(), self.child.key


@dataclass(frozen=True, eq=False)
class Runs:
    """Contiguous bytes of several lengths at displacements."""

    displacements: Int64s
    lengths: Int64s

    @cached_property
    def ends(self) -> Int64s:
        """Position in the packed bytes where each run ends."""
        return np.cumsum(self.lengths)

    @cached_property
    def size(self) -> int:
        return int(self.lengths.sum())

    @cached_property
    def low(self) -> int:
        return int(self.displacements.min())

    @cached_property
    def high(self) -> int:
        return int((self.displacements + self.lengths).max())

    @property
    def count_runs(self) -> int:
        return len(self.lengths)

    @cached_property
    def bits(self) -> int:
        return int(np.bitwise_or.reduce(self.displacements | self.lengths))

    @property
    def key(self) -> Hashable:
        return "runs", self.displacements.tobytes(), self.lengths.tobytes()


@dataclass(frozen=True, eq=False)
class Sequence:
    """Different nodes, one after the other in the packed bytes."""

    parts: tuple[Placed, ...]

    @cached_property
    def ends(self) -> Int64s:
        """Position in the packed bytes where each part ends."""
        return np.cumsum([part.node.size for part in self.parts])

    @cached_property
    def size(self) -> int:
        return sum(part.node.size for part in self.parts)

    @cached_property
    def low(self) -> int:
        return min(part.low for part in self.parts)

    @cached_property
    def high(self) -> int:
        return max(part.high for part in self.parts)

    @cached_property
    def count_runs(self) -> int:
        return sum(part.node.count_runs for part in self.parts)

    @cached_property
    def bits(self) -> int:
        each = (part.displacement | part.node.bits for part in self.parts)
        return functools.reduce(int.__or__, each)

    @property
    def key(self) -> Hashable:
        return "sequence", *((part.displacement, part.node.key) for part in self.parts)


Node: TypeAlias = Run | Repeat | Places | Runs | Sequence


@dataclass(frozen=True, eq=False, slots=True)
class Placed:
    """A node at a displacement in bytes."""

    displacement: int
    node: Node

    @property
    def low(self) -> int:
        return self.displacement + self.node.low

    @property
    def high(self) -> int:
        return self.displacement + self.node.high

    def moved(self, displacement: int) -> Placed:
        """Return the node at a further displacement."""
        return Placed(self.displacement + displacement, self.node)


NOTHING = Placed(0, Run(0))


def repeat(count: int, stride: int, one: Placed) -> Placed:
    """Return copies at equal steps.

    Examples
    --------
    >>> repeat(3, 8, Placed(16, Run(8)))
    Placed(displacement=16, node=Run(size=24))
    """
    child = one.node
    if not count * child.size:
        return NOTHING
    if count == 1:
        return one
    if isinstance(child, Run) and stride == child.size:
        return Placed(one.displacement, Run(count * stride))
    if isinstance(child, Repeat) and stride == child.count * child.stride:
        return Placed(one.displacement, Repeat(count * child.count, child.stride, child.child))
    return Placed(one.displacement, Repeat(count, stride, child))


def places(displacements: Int64s, one: Placed) -> Placed:
    """Return copies at displacements.

    Examples
    --------
    >>> places(np.array([4, 16, 28]), Placed(0, Run(4)))
    Placed(displacement=4, node=Repeat(count=3, stride=12, child=Run(size=4)))
    >>> places(np.array([0, 4, 20, 40]), Placed(0, Run(4))).node
    Places(displacements=array([ 0,  4, 20, 40]), child=Run(size=4))
    """
    child = one.node
    if not (child.size and len(displacements)):
        return NOTHING
    first = one.moved(int(displacements[0]))
    steps = np.diff(displacements)
    if not len(steps) or (steps == steps[0]).all():
        return repeat(len(displacements), int(steps[0]) if len(steps) else 0, first)
    if isinstance(child, Run) and np.mean(steps == child.size) >= LEAST_CONTIGUOUS:
        return runs(displacements + one.displacement, np.full(len(displacements), child.size))
    return Placed(0, Places(displacements + one.displacement, child))


def runs(displacements: Int64s, lengths: Int64s) -> Placed:
    """Return contiguous runs; those that follow each other in memory and in order become one.

    Examples
    --------
    >>> runs(np.array([0, 4, 20]), np.array([4, 8, 12]))
    Placed(displacement=0, node=Repeat(count=2, stride=20, child=Run(size=12)))
    """
    filled = lengths > 0
    if not filled.all():
        displacements, lengths = displacements[filled], lengths[filled]
    if not len(lengths):
        return NOTHING
    begins = np.ones(len(lengths), bool)
    np.not_equal(displacements[1:], (displacements + lengths)[:-1], out=begins[1:])
    if not begins.all():
        at = np.flatnonzero(begins)
        displacements, lengths = displacements[at], np.add.reduceat(lengths, at)
    if (lengths == lengths[0]).all():
        return places(displacements, Placed(0, Run(int(lengths[0]))))
    return Placed(0, Runs(displacements, lengths))


def sequence(parts: Iterable[Placed]) -> Placed:
    """Return parts one after the other.

    Examples
    --------
    >>> sequence([Placed(0, Run(8)), Placed(8, Run(4)), NOTHING])
    Placed(displacement=0, node=Run(size=12))
    """
    flat = list(_flattened(parts))
    if len(flat) < 2:
        return flat[0] if flat else NOTHING
    if all(isinstance(part.node, Run | Runs) for part in flat):
        return runs(
            np.concatenate([_displacements(part) for part in flat]),
            np.concatenate([_lengths(part.node) for part in flat]),
        )
    if len({part.node.key for part in flat}) == 1:
        return places(np.array([part.displacement for part in flat]), Placed(0, flat[0].node))
    return Placed(0, Sequence(tuple(flat)))


def _flattened(parts: Iterable[Placed]) -> Iterable[Placed]:
    """Yield parts that have data, with contiguous neighbours merged and sequences opened."""
    last: Placed | None = None
    for part in _opened(parts):
        both = last and isinstance(last.node, Run) and isinstance(part.node, Run)
        if last and both and last.high == part.displacement:
            last = Placed(last.displacement, Run(last.node.size + part.node.size))
        else:
            if last:
                yield last
            last = part
    if last:
        yield last


def _opened(parts: Iterable[Placed]) -> Iterable[Placed]:
    for part in parts:
        if isinstance(part.node, Sequence):
            yield from (inner.moved(part.displacement) for inner in part.node.parts)
        elif part.node.size:
            yield part


def _displacements(part: Placed) -> Int64s:
    node = part.node
    return (
        node.displacements if isinstance(node, Runs) else np.zeros(1, np.int64)
    ) + part.displacement


def _lengths(node: Node) -> Int64s:
    return node.lengths if isinstance(node, Runs) else np.array([node.size])
