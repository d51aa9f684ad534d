"""Shapes of nodes: what a kernel is compiled for, and the arguments that it is called with.

Nesting and the lengths of short runs are part of the shape; counts, strides, displacements and
long runs are arguments. So one kernel serves all layouts of a shape::

    Vector(900, 48, Indexed([0, 32], [20, 8]))      shape  Loop(Row((20, 8)))
                                                 arguments  900, 48, 28, 0, 32
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from spliter.layout._integers import Int64s
from spliter.layout._nodes import Contiguous, Indexed, IndexedBlock, Node, Placed, Struct, Vector

SHORT_NBYTES: Final = 128
"""Runs up to this size are copied by moves in the code; LLVM calls ``memcpy`` for longer ones."""

ROW_RUNS: Final = 16
"""Up to this many short runs stand one after the other in the code, without a loop."""

FUSED_PARTS: Final = 8
"""Vectors of one count and stride that one loop copies, so that each cache line is read once;
each needs a register for where it is packed."""

TILE: Final = 8
"""Vectors at a small stride that are copied together: eight doubles are a cache line."""

MOST_GROUPS: Final = 8
"""More loops one after the other are kernels of their own."""

MOST_DEPTH: Final = 12
"""Deeper nests are copied by NumPy."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A run. No arguments; of a long one, which has no `nbytes` here, these."""

    nbytes: int | None


@dataclass(frozen=True, slots=True)
class Row:
    """Several short runs, packed one after the other. Arguments: the displacement of each."""

    lengths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """Copies at equal steps. Arguments: count, stride in memory, stride in the packed bytes."""

    child: Shape


@dataclass(frozen=True, slots=True)
class IndexLoop:
    """Copies at displacements, or runs of any lengths if there is no child.

    Arguments: count, address of displacements, stride in the packed bytes or address of lengths.
    """

    child: Shape | None


@dataclass(frozen=True, slots=True)
class FusedLoop:
    """Several vectors in one loop.

    Arguments: count and stride; of each vector displacement, position and stride when packed.
    """

    children: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Parts:
    """Different shapes one after the other. Arguments: displacement and position before each."""

    children: tuple[Shape, ...]


Shape: TypeAlias = Copy | Row | Loop | IndexLoop | FusedLoop | Parts


@dataclass(frozen=True, eq=False, slots=True)
class KernelCall:
    """A kernel's shape, and the address of its arguments: of the outermost loop first."""

    shape: Shape
    address: int
    kept: list[Int64s]
    """The arguments, and the arrays whose addresses are among them."""


def call_of(node: Node) -> KernelCall | None:
    """Return the shape of a node and its arguments; ``None`` if it is copied part by part.

    Examples
    --------
    >>> call_of(Vector(900, 48, Indexed(np.array([0, 32]), np.array([20, 8])))).shape
    Loop(child=Row(lengths=(20, 8)))
    """
    builder = _Builder()
    try:
        shape = builder.shape(node, 0)
    except _NoKernelError:
        return None
    arguments = np.array(builder.arguments, np.int64)
    return KernelCall(shape, arguments.ctypes.data, [arguments, *builder.kept])


class _NoKernelError(Exception):
    """A node is nested too deep, or has too many parts."""


class _Builder:
    """Collects the arguments on the way through a node."""

    def __init__(self) -> None:
        self.arguments: list[int] = []
        self.kept: list[Int64s] = []

    def shape(self, node: Node, depth: int) -> Shape:
        """Return the shape of a node, and append its arguments."""
        if depth > MOST_DEPTH:
            raise _NoKernelError
        row = _row(node) if depth else None
        if row is not None:
            self.arguments += row.displacements.tolist()
            return Row(tuple(row.lengths.tolist()))
        match node:
            case Contiguous(size) if size <= SHORT_NBYTES:
                return Copy(size)
            case Contiguous(size):
                self.arguments.append(size)
                return Copy(None)
            case Vector() if is_transposed(node):
                return self._transposed(node)
            case Vector(count, stride, child):
                self.arguments += [count, stride, child.size]
                return Loop(self.shape(child, depth + 1))
            case IndexedBlock(displacements, child):
                self.arguments += [len(displacements), self._address(displacements), child.size]
                return IndexLoop(self.shape(child, depth + 1))
            case Indexed(displacements, lengths):
                addresses = map(self._address, (displacements, lengths))
                self.arguments += [len(lengths), *addresses]
                return IndexLoop(None)
            case Struct(parts):
                return self._struct(parts, depth)

    def _address(self, array: Int64s) -> int:
        self.kept.append(array)
        return array.ctypes.data

    def _transposed(self, node: Vector) -> Shape:
        """Return loops in which each cache line is read once for several vectors."""
        inner = node.child
        assert isinstance(inner, Vector) and isinstance(inner.child, Contiguous)
        element = inner.child.size
        many, left = divmod(node.count, TILE) if node.count > 2 * TILE else (0, node.count)
        vectors = inner.count, inner.stride, element
        shapes: list[Shape] = []
        if many:
            self.arguments += [0, 0, many, TILE * node.stride, TILE * inner.size, *vectors]
            self.arguments += [TILE, node.stride, inner.size]
            shapes.append(Loop(Loop(Loop(Copy(element)))))
        if left:
            self.arguments += [many * TILE * node.stride, many * TILE * inner.size, *vectors]
            self.arguments += [left, node.stride, inner.size]
            shapes.append(Loop(Loop(Copy(element))))
        return Parts(tuple(shapes))

    def _struct(self, parts: tuple[Placed, ...], depth: int) -> Shape:
        groups = list(_groups(parts))
        if len(groups) == 1:
            return self._fused(groups[0], depth)
        if len(groups) > MOST_GROUPS:
            raise _NoKernelError
        shapes: list[Shape] = []
        position = 0
        for group in groups:
            first = group[0]
            if _steps(first) is None:
                self.arguments += [first.displacement, position]
                shapes.append(self.shape(first.node, depth + 1))
            else:
                self.arguments += [0, position]
                shapes.append(self._fused(group, depth))
            position += sum(part.node.size for part in group)
        return Parts(tuple(shapes))

    def _fused(self, group: tuple[Placed, ...], depth: int) -> Shape:
        """Return the shape of vectors of one count and stride."""
        self.arguments += _steps(group[0]) or ()
        position = 0
        children = [part.node.child for part in group if isinstance(part.node, Vector)]
        for part, child in zip(group, children, strict=True):
            self.arguments += [part.displacement, position, child.size]
            position += part.node.size
        return FusedLoop(tuple(self.shape(child, depth + 1) for child in children))


def is_transposed(node: Vector) -> bool:
    """Return whether neighbours in memory are far from each other in the packed bytes."""
    child = node.child
    return (
        isinstance(child, Vector)
        and isinstance(child.child, Contiguous)
        and child.child.size <= SHORT_NBYTES
        and abs(node.stride) < abs(child.stride)
    )


def _row(node: Node) -> Indexed | None:
    """Return a few short runs as such, whether they are at equal steps or not."""
    if isinstance(node, Vector) and isinstance(node.child, Contiguous) and node.count <= ROW_RUNS:
        steps = np.arange(node.count) * node.stride
        node = Indexed(steps, np.full(node.count, node.child.size))
    if isinstance(node, Indexed) and len(node.lengths) <= ROW_RUNS:
        return node if node.lengths.max() <= SHORT_NBYTES else None
    return None


def _groups(parts: tuple[Placed, ...]) -> Iterator[tuple[Placed, ...]]:
    """Yield neighbours that one loop copies."""
    for steps, group in itertools.groupby(parts, _steps):
        most = 1 if steps is None else FUSED_PARTS
        listed = tuple(group)
        yield from (listed[at : at + most] for at in range(0, len(listed), most))


def fuses(node: Struct) -> bool:
    """Return whether all parts are vectors of one count and stride."""
    return None not in (steps := {_steps(part) for part in node.parts}) and len(steps) == 1


def _steps(part: Placed) -> tuple[int, int] | None:
    """Return count and stride of a vector."""
    node = part.node
    return (node.count, node.stride) if isinstance(node, Vector) else None
