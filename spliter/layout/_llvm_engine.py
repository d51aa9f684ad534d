"""Decide which kernels copy a node, and when compiling them pays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from spliter.layout._cut import Piece
from spliter.layout._kernels import KERNELS, Kernel
from spliter.layout._nodes import Contiguous, Indexed, IndexedBlock, Node, Struct
from spliter.layout._numpy_engine import unit_of
from spliter.layout._shapes import KernelCall, call_of, fuses, is_transposed

FEW_RUNS: Final = 16
"""Pieces of a part with fewer runs, such as its head and tail, are left to NumPy: their shapes vary
from one part to another."""

COMPILE_NS: Final = 5e6
"""Compiling a kernel takes about 5 ms."""

INDEX_NS: Final = 4.0
"""Saved for each unit that NumPy copies by an index array: 3 to 11 ns with units of 8 bytes."""

ROW_NS: Final = 2.5
"""Saved for each run of a row, and of vectors that one loop copies: 2.4 to 7 ns."""

ODD_NS: Final = 1.4
"""Saved for each run of other than 1, 2, 4 or 8 bytes; from 32 bytes on NumPy is as fast."""


@dataclass(frozen=True, eq=False, slots=True)
class Move:
    """A piece that NumPy copies, or one call of a kernel as soon as that is compiled."""

    piece: Piece
    call: KernelCall | None = None
    saves: float = 0.0
    """Of the time of compiling, the part that the kernel saves in one use; 1 compiles at once."""
    kernels: dict[bool, Kernel] = field(default_factory=dict)
    """Those compiled by now: the one that packs, and the one that unpacks (``True``)."""

    def kernel(self, unpacks: bool) -> Kernel | None:
        """Return the kernel, if there is one by now."""
        kernel = self.kernels.get(unpacks)
        if kernel is None and self.call is not None:
            kernel = KERNELS.find(self.call.shape, unpacks, self.saves)
            if kernel is not None:
                self.kernels[unpacks] = kernel
        return kernel


def moves(pieces: Iterable[Piece], eager: bool, least_runs: int = 1) -> Iterator[Move]:
    """Yield what copies pieces; those with fewer than `least_runs` runs are left to NumPy.

    If `eager`, kernels are compiled at first use, instead of when that pays.
    """
    for piece in pieces:
        node = piece.node
        call = call_of(node) if node.count_runs >= least_runs else None
        if call is not None:
            yield Move(piece, call, 1.0 if eager else saved_ns(node) / COMPILE_NS)
        elif isinstance(node, Struct):
            ends = (node.ends + piece.position).tolist()
            parts = [
                Piece(piece.displacement + part.displacement, part.node, end - part.node.size)
                for part, end in zip(node.parts, ends, strict=True)
            ]
            yield from moves(parts, eager, least_runs)
        else:
            yield Move(piece)


def saved_ns(node: Node) -> float:
    """Return about how many nanoseconds a kernel saves over NumPy."""
    match node:
        case Contiguous():
            return 0.0
        case IndexedBlock() | Indexed():
            return INDEX_NS * node.size / unit_of(node.bits)
        case Struct() if fuses(node):
            return ROW_NS * node.count_runs
        case Struct():
            return sum(saved_ns(part.node) for part in node.parts)
    child = node.child
    if isinstance(child, Contiguous):
        return 0.0 if child.size in {1, 2, 4, 8} or child.size >= 32 else ODD_NS * node.count
    if isinstance(child, Indexed | Struct) or is_transposed(node):
        return ROW_NS * node.count_runs
    return node.count * saved_ns(child)


def uses_to_pay(node: Node) -> int | None:
    """Return after how many uses compiling has paid; ``None`` if it never does."""
    saved = saved_ns(node)
    return math.ceil(COMPILE_NS / saved) if saved and node.count_runs >= FEW_RUNS else None
