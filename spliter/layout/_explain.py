"""Say what a packer does, in words."""

from __future__ import annotations

from dataclasses import dataclass

from spliter.layout._integers import shown
from spliter.layout._nodes import Contiguous, Indexed, IndexedBlock, Node, Placed, Struct, Vector

MOST_PARTS = 8
"""Parts of a struct that are described one by one."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What :meth:`Packer.explain` returns; ``str`` has it in words.

    Parameters
    ----------
    engine : str
        ``"numpy"`` or ``"llvm"``; ``"numpy, then llvm"`` if it compiles when that pays.
    nbytes, runs : int
        Packed bytes, and contiguous runs that are copied.
    uses : int or None
        Uses of this size after which compiling has paid; ``None`` if it never does.
    overlaps : bool
        Whether the layout can only be packed, because it takes a byte twice.
    normal_form : str
        The nested steps that are copied.
    """

    engine: str
    nbytes: int
    runs: int
    uses: int | None
    overlaps: bool
    normal_form: str

    def __str__(self) -> str:
        pays = f"pays after {self.uses} uses" if self.uses else "does not pay"
        overlaps = "; takes bytes twice, so it cannot unpack" if self.overlaps else ""
        return (
            f"{self.nbytes} bytes in {self.runs} runs: {self.normal_form}{overlaps}\n"
            f"engine {self.engine}; compiling {pays}"
        )


def describe(placed: Placed) -> str:
    """Return the nested steps of a normal form.

    Examples
    --------
    >>> describe(Placed(64, Vector(3, 16, Contiguous(8))))
    '3 x (8 bytes) every 16 bytes, from byte 64'
    """
    begin = f", from byte {placed.displacement}" if placed.displacement else ""
    return _steps(placed.node) + begin


def _steps(node: Node) -> str:
    match node:
        case Contiguous(size):
            return f"{size} bytes"
        case Vector(count, stride, child):
            return f"{count} x ({_steps(child)}) every {stride} bytes"
        case IndexedBlock(displacements, child):
            return f"({_steps(child)}) at {shown(displacements)}"
        case Indexed(displacements, lengths):
            return f"runs of {shown(lengths)} bytes at {shown(displacements)}"
        case Struct(parts):
            more = f" and {len(parts) - MOST_PARTS} parts more" if len(parts) > MOST_PARTS else ""
            return " then ".join(f"[{describe(part)}]" for part in parts[:MOST_PARTS]) + more
