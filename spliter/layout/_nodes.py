"""The normal form of layouts: five kinds of nodes over bytes, named after MPI's datatypes.

============  ==========================================  ==================
node          bytes in packed order                       made by
============  ==========================================  ==================
Contiguous    one run of bytes
Vector        copies of a node at equal steps             `vector_of`
IndexedBlock  copies of a node at any displacements       `indexed_block_of`
Indexed       runs of several lengths                     `indexed_of`
Struct        different nodes, one after the other        `struct_of`
============  ==========================================  ==================

A node begins at displacement 0; :class:`Placed` moves it. The functions return the simplest node
for the same bytes in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np

from spliter.layout._integers import Int64s

LEAST_CONTIGUOUS: Final = 0.5
"""Blocks of equal length are merged if this part of them follow the one before. Kernels copy runs
of several lengths half as fast as those of one: merging fewer costs more than it saves."""


class _Facts:
    """What all nodes know of themselves, computed once."""

    size: int
    """Bytes of data."""
    low: int
    """Displacement of the first byte."""
    high: int
    """Displacement behind the last byte."""
    count_runs: int
    """Contiguous runs that are copied."""
    bits: int
    """All sizes and displacements or-ed: their low bits tell what divides them."""

    def _note(self, size: int, low: int, high: int, count_runs: int, bits: int) -> None:
        vars(self).update(size=size, low=low, high=high, count_runs=count_runs, bits=bits)


@dataclass(frozen=True, eq=False)
class Contiguous(_Facts):
    """Contiguous bytes."""

    size: int

    def __post_init__(self) -> None:
        self._note(self.size, 0, self.size, int(self.size > 0), self.size)


@dataclass(frozen=True, eq=False)
class Vector(_Facts):
    """Copies of a node, `stride` bytes from one to the next."""

    count: int
    stride: int
    child: Node

    def __post_init__(self) -> None:
        count, one, last = self.count, self.child, (self.count - 1) * self.stride
        low, high = one.low + min(0, last), one.high + max(0, last)
        self._note(count * one.size, low, high, count * one.count_runs, self.stride | one.bits)


@dataclass(frozen=True, eq=False)
class IndexedBlock(_Facts):
    """Copies of a node at displacements in bytes."""

    displacements: Int64s
    child: Node

    def __post_init__(self) -> None:
        at, one, count = self.displacements, self.child, len(self.displacements)
        low, high = one.low + int(at.min()), one.high + int(at.max())
        bits = int(np.bitwise_or.reduce(at)) | one.bits
        self._note(count * one.size, low, high, count * one.count_runs, bits)


@dataclass(frozen=True, eq=False)
class Indexed(_Facts):
    """Contiguous bytes of several lengths at displacements."""

    displacements: Int64s
    lengths: Int64s

    def __post_init__(self) -> None:
        at, lengths = self.displacements, self.lengths
        low, high = int(at.min()), int((at + lengths).max())
        bits = int(np.bitwise_or.reduce(at | lengths))
        self._note(int(lengths.sum()), low, high, len(lengths), bits)

    @cached_property
    def ends(self) -> Int64s:
        """Position in the packed bytes where each run ends."""
        return np.cumsum(self.lengths)


@dataclass(frozen=True, eq=False)
class Struct(_Facts):
    """Different nodes, one after the other in the packed bytes."""

    parts: tuple[Placed, ...]

    def __post_init__(self) -> None:
        low, high = min(part.low for part in self.parts), max(part.high for part in self.parts)
        sizes = [part.node.size for part in self.parts]
        each = [part.displacement | part.node.bits for part in self.parts]
        count_runs = sum(part.node.count_runs for part in self.parts)
        self._note(sum(sizes), low, high, count_runs, int(np.bitwise_or.reduce(each)))

    @cached_property
    def ends(self) -> Int64s:
        """Position in the packed bytes where each part ends."""
        return np.cumsum([part.node.size for part in self.parts])


Node: TypeAlias = Contiguous | Vector | IndexedBlock | Indexed | Struct


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


NOTHING: Final = Placed(0, Contiguous(0))


def vector_of(count: int, stride: int, one: Placed) -> Placed:
    """Return copies at equal steps."""
    child = one.node
    if not count * child.size:
        return NOTHING
    if count == 1:
        return one
    if isinstance(child, Contiguous) and stride == child.size:
        return Placed(one.displacement, Contiguous(count * stride))
    if isinstance(child, Vector) and stride == child.count * child.stride:
        return Placed(one.displacement, Vector(count * child.count, child.stride, child.child))
    return Placed(one.displacement, Vector(count, stride, child))


def indexed_block_of(displacements: Int64s, one: Placed) -> Placed:
    """Return copies at displacements.

    Examples
    --------
    >>> indexed_block_of(np.array([4, 16, 28]), Placed(0, Contiguous(4)))
    Placed(displacement=4, node=Vector(count=3, stride=12, child=Contiguous(size=4)))
    >>> indexed_block_of(np.array([0, 4, 20, 40]), Placed(0, Contiguous(4))).node
    IndexedBlock(displacements=array([ 0,  4, 20, 40]), child=Contiguous(size=4))
    """
    child = one.node
    if not (child.size and len(displacements)):
        return NOTHING
    steps = np.diff(displacements)
    if not len(steps) or (steps == steps[0]).all():
        first = one.moved(int(displacements[0]))
        return vector_of(len(displacements), int(steps[0]) if len(steps) else 0, first)
    displacements = displacements + one.displacement
    if isinstance(child, Contiguous) and np.mean(steps == child.size) >= LEAST_CONTIGUOUS:
        return indexed_of(displacements, np.full(len(displacements), child.size))
    return Placed(0, IndexedBlock(displacements, child))


def indexed_of(displacements: Int64s, lengths: Int64s) -> Placed:
    """Return contiguous runs; those that follow each other in memory and in order become one."""
    begins = np.ones(len(lengths), bool)
    np.not_equal(displacements[1:], (displacements + lengths)[:-1], out=begins[1:])
    if not begins.all():
        at = np.flatnonzero(begins)
        displacements, lengths = displacements[at], np.add.reduceat(lengths, at)
    if (lengths == lengths[0]).all():
        return indexed_block_of(displacements, Placed(0, Contiguous(int(lengths[0]))))
    return Placed(0, Indexed(displacements, lengths))


def struct_of(parts: Iterable[Placed]) -> Placed:
    """Return parts one after the other."""
    flat = list(_opened(parts))
    if len(flat) < 2:
        return flat[0] if flat else NOTHING
    if all(isinstance(part.node, Contiguous | Indexed) for part in flat):
        displacements, lengths = zip(*map(_runs, flat), strict=True)
        return indexed_of(np.concatenate(displacements), np.concatenate(lengths))
    return Placed(0, Struct(tuple(_merged(flat))))


def _opened(parts: Iterable[Placed]) -> Iterable[Placed]:
    """Yield parts that have data, and those of structs among them."""
    for part in parts:
        if isinstance(part.node, Struct):
            yield from (inner.moved(part.displacement) for inner in part.node.parts)
        elif part.node.size:
            yield part


def _runs(part: Placed) -> tuple[Int64s, Int64s]:
    """Return displacements and lengths of the runs of a part."""
    node = part.node
    if isinstance(node, Indexed):
        return node.displacements + part.displacement, node.lengths
    return np.array([part.displacement]), np.array([node.size])


def _merged(parts: Iterable[Placed]) -> list[Placed]:
    """Return parts with contiguous neighbours as one."""
    merged: list[Placed] = []
    for part in parts:
        last = merged[-1] if merged else NOTHING
        both = isinstance(last.node, Contiguous) and isinstance(part.node, Contiguous)
        if both and merged and last.high == part.displacement:
            merged[-1] = Placed(last.displacement, Contiguous(last.node.size + part.node.size))
        else:
            merged.append(part)
    return merged
