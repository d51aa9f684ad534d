"""Decide which kernels copy a node, and when compiling them pays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from spliter.layout._cut import Piece
from spliter.layout._kernels import KERNELS, Kernel
from spliter.layout._nodes import Node, Places, Run, Runs, Sequence
from spliter.layout._numpy_engine import unit_of
from spliter.layout._shapes import Call, call_of, fuses, is_transposed

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
class Step:
    """A piece that NumPy copies, or one call of a kernel as soon as that is compiled.

    Parameters
    ----------
    piece : Piece
        What is copied.
    call : Call or None
        Shape and arguments of the kernel; without, NumPy copies.
    saves : float
        Of the time of compiling, the part that the kernel saves in one use; 1 compiles at once.
    kernels : dict of bool to Kernel
        Those compiled by now: the one that packs, and the one that unpacks (``True``).
    """

    piece: Piece
    call: Call | None = None
    saves: float = 0.0
    kernels: dict[bool, Kernel] = field(default_factory=dict)

    def kernel(self, unpacks: bool) -> Kernel | None:
        """Return the kernel, if there is one by now."""
        kernel = self.kernels.get(unpacks)
        if kernel is None and self.call is not None:
            kernel = KERNELS.find(self.call.shape, unpacks, self.saves)
            if kernel is not None:
                self.kernels[unpacks] = kernel
        return kernel


def steps(pieces: Iterable[Piece], eager: bool, least_runs: int = 1) -> Iterator[Step]:
    """Yield the steps that copy pieces.

    Parameters
    ----------
    pieces : iterable of Piece
        What is copied.
    eager : bool
        Whether to compile at first use, instead of when it pays.
    least_runs : int
        Pieces with fewer runs are left to NumPy.
    """
    for piece in pieces:
        node = piece.node
        call = call_of(node) if node.count_runs >= least_runs else None
        if call is not None:
            yield Step(piece, call, 1.0 if eager else saved_ns(node) / COMPILE_NS)
        elif isinstance(node, Sequence):
            yield from steps(_parts(node, piece), eager, least_runs)
        else:
            yield Step(piece)


def _parts(node: Sequence, piece: Piece) -> Iterator[Piece]:
    position = piece.position
    for part in node.parts:
        yield Piece(piece.displacement + part.displacement, part.node, position)
        position += part.node.size


def saved_ns(node: Node) -> float:
    """Return about how many nanoseconds a kernel saves over NumPy.

    Examples
    --------
    >>> from spliter.layout._nodes import Repeat
    >>> saved_ns(Repeat(1000, 16, Run(8))), saved_ns(Repeat(1000, 16, Run(12)))
    (0.0, 1400.0)
    """
    match node:
        case Run():
            return 0.0
        case Places() | Runs():
            return INDEX_NS * node.size / unit_of(node.bits)
        case Sequence() if fuses(node):
            return ROW_NS * node.count_runs
        case Sequence():
            return sum(saved_ns(part.node) for part in node.parts)
    if is_transposed(node):
        return ROW_NS * node.count_runs
    if isinstance(node.child, Run):
        return (
            0.0 if node.child.size in {1, 2, 4, 8} or node.child.size >= 32 else ODD_NS * node.count
        )
    if isinstance(node.child, Runs | Sequence):
        return ROW_NS * node.count_runs
    return node.count * saved_ns(node.child)


def uses_to_pay(node: Node) -> int | None:
    """Return after how many uses compiling has paid; ``None`` if it never does.

    Examples
    --------
    >>> from spliter.layout._nodes import Repeat
    >>> uses_to_pay(Repeat(1000, 16, Run(12)))
    3572
    """
    saved = saved_ns(node)
    return math.ceil(COMPILE_NS / saved) if saved and node.count_runs >= FEW_RUNS else None
