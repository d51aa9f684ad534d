"""Shapes of nodes: what a kernel is compiled for, and the arguments that it is called with.

Nesting and the lengths of short runs are part of the shape; counts, strides, displacements and
long runs are arguments. So one kernel serves all layouts of a shape::

    Repeat(900, 48, Runs([0, 32], [20, 8]))      shape  Loop(Row((20, 8)))
                                                 arguments  900, 48, 28, 0, 32
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from spliter.layout._integers import Int64s
from spliter.layout._nodes import Node, Placed, Places, Repeat, Run, Runs, Sequence

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
    """A short run. No arguments."""

    nbytes: int


@dataclass(frozen=True, slots=True)
class LongCopy:
    """A long run. Argument: its bytes."""


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
    """Copies at displacements. Arguments: count, address of displacements, stride when packed."""

    child: Shape


@dataclass(frozen=True, slots=True)
class RunLoop:
    """Runs of any lengths. Arguments: count, addresses of displacements and lengths."""


@dataclass(frozen=True, slots=True)
class FusedLoop:
    """Several vectors in one loop.

    Arguments: count and stride, then for each vector displacement, position and stride in the
    packed bytes.
    """

    children: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Parts:
    """Different shapes one after the other. Arguments: displacement and position before each."""

    children: tuple[Shape, ...]


Shape: TypeAlias = Copy | LongCopy | Row | Loop | IndexLoop | RunLoop | FusedLoop | Parts


@dataclass(frozen=True, eq=False, slots=True)
class Call:
    """A kernel's shape and its arguments.

    Parameters
    ----------
    shape : Shape
        What the kernel is compiled for.
    address : int
        Of the arguments, in the order in which the shapes list them, from the outside in.
    kept : list of ndarray
        The arguments, and the arrays whose addresses are among them.
    """

    shape: Shape
    address: int
    kept: list[Int64s]


def call_of(node: Node) -> Call | None:
    """Return the shape of a node and its arguments; ``None`` if it is copied part by part.

    Examples
    --------
    >>> call_of(Repeat(900, 48, Runs(np.array([0, 32]), np.array([20, 8])))).shape
    Loop(child=Row(lengths=(20, 8)))
    """
    builder = _Builder()
    shape = builder.shape(node, 0)
    if shape is None:
        return None
    arguments = np.array(builder.arguments, np.int64)
    return Call(shape, arguments.ctypes.data, [arguments, *builder.kept])


class _Builder:
    """Collects the arguments on the way through a node."""

    def __init__(self) -> None:
        self.arguments: list[int] = []
        self.kept: list[Int64s] = []

    def shape(self, node: Node, depth: int) -> Shape | None:
        """Return the shape of a node, and append its arguments."""
        if depth > MOST_DEPTH:
            return None
        row = _row(node) if depth else None
        if row is not None:
            self.arguments += row.displacements.tolist()
            return Row(tuple(row.lengths.tolist()))
        match node:
            case Run():
                return self._copy(node.size)
            case Repeat() if is_transposed(node):
                return self._transposed(node)
            case Repeat():
                self.arguments += [node.count, node.stride, node.child.size]
                child = self.shape(node.child, depth + 1)
                return child and Loop(child)
            case Places():
                address = self._address(node.displacements)
                self.arguments += [len(node.displacements), address, node.child.size]
                child = self.shape(node.child, depth + 1)
                return child and IndexLoop(child)
            case Runs():
                addresses = self._address(node.displacements), self._address(node.lengths)
                self.arguments += [len(node.lengths), *addresses]
                return RunLoop()
            case Sequence():
                return self._sequence(node, depth)

    def _copy(self, size: int) -> Shape:
        if size <= SHORT_NBYTES:
            return Copy(size)
        self.arguments.append(size)
        return LongCopy()

    def _address(self, array: Int64s) -> int:
        self.kept.append(array)
        return array.ctypes.data

    def _transposed(self, node: Repeat) -> Shape:
        """Return loops in which each cache line is read once for several vectors."""
        inner, many = node.child, TILE
        assert isinstance(inner, Repeat) and isinstance(inner.child, Run)
        element = inner.child.size
        vectors = inner.count, inner.stride, element
        whole, left = divmod(node.count, many) if node.count > 2 * many else (0, node.count)
        shapes: list[Shape] = []
        if whole:
            if left:
                self.arguments += [0, 0]
            self.arguments += [whole, many * node.stride, many * inner.size, *vectors]
            self.arguments += [many, node.stride, inner.size]
            shapes.append(Loop(Loop(Loop(Copy(element)))))
        if left:
            if whole:
                self.arguments += [whole * many * node.stride, whole * many * inner.size]
            self.arguments += [*vectors, left, node.stride, inner.size]
            shapes.append(Loop(Loop(Copy(element))))
        return Parts(tuple(shapes)) if len(shapes) > 1 else shapes[0]

    def _sequence(self, node: Sequence, depth: int) -> Shape | None:
        groups = list(_groups(node.parts))
        if len(groups) == 1:
            return self._fused(groups[0], depth)
        shapes: list[Shape | None] = []
        position = 0
        for group in groups if len(groups) <= MOST_GROUPS else ():
            is_loop = _steps(group[0]) is not None
            self.arguments += [0 if is_loop else group[0].displacement, position]
            shapes.append(
                self._fused(group, depth) if is_loop else self.shape(group[0].node, depth + 1)
            )
            position += sum(part.node.size for part in group)
        known = tuple(shape for shape in shapes if shape is not None)
        return Parts(known) if len(known) == len(groups) else None

    def _fused(self, group: tuple[Placed, ...], depth: int) -> Shape | None:
        """Return the shape of vectors of one count and stride."""
        self.arguments += _steps(group[0]) or ()
        position = 0
        children = [part.node.child for part in group if isinstance(part.node, Repeat)]
        for part, child in zip(group, children, strict=True):
            self.arguments += [part.displacement, position, child.size]
            position += part.node.size
        shapes = [self.shape(child, depth + 1) for child in children]
        known = tuple(shape for shape in shapes if shape is not None)
        return FusedLoop(known) if len(known) == len(group) else None


def is_transposed(node: Repeat) -> bool:
    """Return whether neighbours in memory are far from each other in the packed bytes."""
    child = node.child
    return (
        isinstance(child, Repeat)
        and isinstance(child.child, Run)
        and child.child.size <= SHORT_NBYTES
        and abs(node.stride) < abs(child.stride)
    )


def _row(node: Node) -> Runs | None:
    """Return a few short runs as such, whether they are at equal steps or not."""
    if isinstance(node, Repeat) and isinstance(node.child, Run) and node.count <= ROW_RUNS:
        steps = np.arange(node.count) * node.stride
        node = Runs(steps, np.full(node.count, node.child.size))
    if isinstance(node, Runs) and len(node.lengths) <= ROW_RUNS:
        return node if node.lengths.max() <= SHORT_NBYTES else None
    return None


def _groups(parts: tuple[Placed, ...]) -> Iterator[tuple[Placed, ...]]:
    """Yield neighbours that one loop copies."""
    for steps, group in itertools.groupby(parts, _steps):
        most = 1 if steps is None else FUSED_PARTS
        listed = tuple(group)
        yield from (listed[at : at + most] for at in range(0, len(listed), most))


def fuses(node: Sequence) -> bool:
    """Return whether all parts are vectors of one count and stride."""
    first = _steps(node.parts[0])
    return first is not None and all(_steps(part) == first for part in node.parts)


def _steps(part: Placed) -> tuple[int, int] | None:
    """Return count and stride of a vector."""
    node = part.node
    return (node.count, node.stride) if isinstance(node, Repeat) else None
