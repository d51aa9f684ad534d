"""Copy the bytes of nodes with NumPy alone: strided copies, and index arrays for the rest.

A node is followed down to its contiguous runs. Steps on the way become dimensions of one strided
copy::

    Vector(3, 48, Vector(2, 16, Contiguous(8)))    memory  shape (3, 2), strides (48, 16)
                                                   packed  shape (3, 2), strides (16, 8)

From the first node with any displacements on, the displacements of all units of 1, 2, 4 or 8 bytes
below it become one index array, in the order of the packed bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter.layout._cut import Piece, cut
from spliter.layout._integers import Int64s
from spliter.layout._memory import Bytes
from spliter.layout._nodes import Contiguous, Indexed, IndexedBlock, Node, Placed, Struct, Vector

Dims: TypeAlias = tuple[tuple[int, int, int], ...]
"""Count, stride in memory and stride in the packed bytes, of each dimension."""

INDEXED_NBYTES: Final = 2**18
"""Packed bytes that one index array covers: its displacements take up to eight times as much
memory."""

LONG_UNITS: Final = 2**9
"""Blocks from so many units on are copied one by one: as fast as by index, without an index."""

FEW_RUNS: Final = 16
"""Up to this many runs of a row are copied by one strided copy each, for all rows."""

VOID_NBYTES: Final = 2**10
"""Runs up to this size are elements of a void dtype, which NumPy copies faster than a dimension."""


@dataclass(frozen=True, slots=True)
class NumpyEngine:
    """Copies from memory, whose first byte has displacement `first`, to packed bytes, or back."""

    memory: Bytes
    first: int
    packed: Bytes
    unpacks: bool

    def copy(self, piece: Piece) -> None:
        """Copy the bytes of a node."""
        at = piece.displacement - self.first
        self._copy(piece.node, at, piece.position, ())

    def _copy(self, node: Node, at: int, position: int, dims: Dims) -> None:
        match node:
            case Contiguous():
                self._strided(node.size, at, position, dims)
            case Vector():
                step = node.count, node.stride, node.child.size
                self._copy(node.child, at, position, (*dims, step))
            case Struct():
                for part in node.parts:
                    self._copy(part.node, at + part.displacement, position, dims)
                    position += part.node.size
            case Indexed() if len(node.lengths) <= FEW_RUNS or _is_long(
                node, node.size // len(node.lengths)
            ):
                starts = (node.ends - node.lengths).tolist()
                each = zip(node.displacements.tolist(), node.lengths.tolist(), starts, strict=True)
                for displacement, length, start in each:
                    self._strided(length, at + displacement, position + start, dims)
            case IndexedBlock() if _is_long(node, node.child.size):
                for number, displacement in enumerate(node.displacements.tolist()):
                    there = position + number * node.child.size
                    self._copy(node.child, at + displacement, there, dims)
            case _:
                for piece in _indexable(node):
                    where = at + piece.displacement
                    self._indexed(piece.node, where, position + piece.position, dims)

    def _strided(self, size: int, at: int, position: int, dims: Dims) -> None:
        """Copy runs of one size at equal steps."""
        shape = tuple(count for count, _, _ in dims)
        kind = f"u{size}" if size in {1, 2, 4, 8} else f"V{size}"
        if size > VOID_NBYTES:
            kind, shape, dims = "u1", (*shape, size), (*dims, (size, 1, 1))
        strides = tuple(stride for _, stride, _ in dims)
        there: npt.NDArray[Any] = np.ndarray(shape, kind, self.memory, at, strides)
        packed_strides = tuple(stride for _, _, stride in dims)
        here: npt.NDArray[Any] = np.ndarray(shape, kind, self.packed, position, packed_strides)
        if self.unpacks:
            there[...] = here
        else:
            here[...] = there

    def _indexed(self, node: Node, at: int, position: int, dims: Dims) -> None:
        """Copy the units of a node by their displacements."""
        unit = unit_of(node.bits)
        index = _displacements(node, unit) - node.low
        index >>= unit.bit_length() - 1
        shape = tuple(count for count, _, _ in dims)
        window = (*shape, (node.high - node.low) // unit)
        strides = (*(stride for _, stride, _ in dims), unit)
        there: npt.NDArray[Any] = np.ndarray(
            window, f"u{unit}", self.memory, at + node.low, strides
        )
        packed_strides = (*(stride for _, _, stride in dims), unit)
        here: npt.NDArray[Any] = np.ndarray(
            (*shape, len(index)), f"u{unit}", self.packed, position, packed_strides
        )
        if self.unpacks:
            there[..., index] = here
        elif there.ndim == 1 and there.flags.aligned:
            np.take(there, index, out=here, mode="clip")
        else:
            here[...] = there[..., index]


def unit_of(bits: int) -> int:
    """Return the largest number of bytes up to 8 that divides all sizes and displacements."""
    return min(bits & -bits, 8)


def _is_long(node: Node, nbytes: int) -> bool:
    return nbytes >= LONG_UNITS * unit_of(node.bits)


def _indexable(node: Node) -> Iterator[Piece]:
    """Yield parts of a node whose index arrays are of a bounded size."""
    whole = Placed(0, node)
    step = INDEXED_NBYTES
    if isinstance(node, IndexedBlock | Vector):
        step = max(step - step % node.child.size, node.child.size)
    for start in range(0, node.size, step):
        for piece in cut(whole, start, min(start + step, node.size)):
            yield Piece(piece.displacement, piece.node, start + piece.position)


def _displacements(node: Node, unit: int) -> Int64s:
    """Return the displacements of all units in packed order."""
    match node:
        case Contiguous():
            return np.arange(0, node.size, unit)
        case Vector():
            return _sums(np.arange(node.count) * node.stride, _displacements(node.child, unit))
        case IndexedBlock():
            return _sums(node.displacements, _displacements(node.child, unit))
        case Indexed():
            counts = node.lengths // unit
            gaps = node.displacements - (node.ends - node.lengths)
            return np.repeat(gaps, counts) + np.arange(0, node.size, unit)
        case Struct():
            return np.concatenate(
                [_displacements(part.node, unit) + part.displacement for part in node.parts]
            )


def _sums(outer: Int64s, inner: Int64s) -> Int64s:
    return np.add.outer(outer, inner).ravel() if len(inner) > 1 else outer + inner[0]
