"""Copy the bytes of nodes with kernels where they are compiled, and with NumPy elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spliter.layout._cut import Piece
from spliter.layout._kernels import KERNELS
from spliter.layout._nodes import Node, Places, Run, Runs, Sequence
from spliter.layout._numpy_engine import NumpyEngine, unit_of
from spliter.layout._shapes import Call, call_of, fuses, is_transposed

FEW_RUNS: Final = 16
"""Nodes with fewer runs, such as heads and tails of parts, are left to NumPy."""

COMPILE_NS: Final = 5e6
"""Compiling a kernel takes about 5 ms."""

INDEX_NS: Final = 4.0
"""Saved for each unit that NumPy copies by an index array: 3 to 11 ns with units of 8 bytes."""

ROW_NS: Final = 2.5
"""Saved for each run of a row, and of vectors that one loop copies: 2.4 to 7 ns."""

ODD_NS: Final = 1.4
"""Saved for each run of other than 1, 2, 4 or 8 bytes; from 32 bytes on NumPy is as fast."""


@dataclass(frozen=True, slots=True)
class LlvmEngine:
    """Copies between memory and packed bytes.

    Parameters
    ----------
    numpy : NumpyEngine
        Copies between the same buffers.
    memory, packed : int
        Addresses of displacement 0 and of the first packed byte.
    calls : mapping of node to Call
        Those that are known already.
    eager : bool
        Whether to compile at first use, instead of when it pays.
    """

    numpy: NumpyEngine
    memory: int
    packed: int
    calls: Mapping[Node, Call]
    eager: bool

    def copy(self, piece: Piece) -> None:
        """Copy the bytes of a node."""
        node = piece.node
        if node.count_runs < FEW_RUNS:
            self.numpy.copy(piece)
            return
        call = self.calls.get(node) or call_of(node)
        if call is None and isinstance(node, Sequence):
            self._copy_parts(node, piece)
        elif call is None or not self._run(call, piece):
            self.numpy.copy(piece)

    def _run(self, call: Call, piece: Piece) -> bool:
        """Run the kernel, if it is compiled or compiling it pays by now."""
        saves = 1.0 if self.eager else saved_ns(piece.node) / COMPILE_NS
        kernel = KERNELS.find(call.shape, self.numpy.unpacks, saves)
        if kernel is None:
            return False
        memory, packed = self.memory + piece.displacement, self.packed + piece.position
        kernel.run(memory, packed, call.address)
        return True

    def _copy_parts(self, node: Sequence, piece: Piece) -> None:
        position = piece.position
        for part in node.parts:
            self.copy(Piece(piece.displacement + part.displacement, part.node, position))
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
