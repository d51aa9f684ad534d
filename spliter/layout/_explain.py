"""Say what a packer does, in words."""

from __future__ import annotations

from dataclasses import dataclass

from spliter.layout._integers import shown
from spliter.layout._nodes import Node, Placed, Places, Repeat, Run, Runs

MOST_PARTS = 8
"""Parts of a struct that are described one by one."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What :meth:`Packer.explain` returns; ``str`` has it in words.

    Parameters
    ----------
    engine : str
        ``"numpy"`` or ``"llvm"``; ``"numpy, then llvm"`` if it compiles when that pays.
    nbytes : int
        Bytes that one repetition packs to.
    runs : int
        Contiguous runs that are copied.
    uses : int or None
        Uses of this size after which compiling has paid; ``None`` if it never does.
    overlaps : bool
        Whether the layout can only be packed, because it takes a byte twice.
    normal_form : str
        The nested steps that are copied.

    Examples
    --------
    >>> from spliter import layout as lo
    >>> print(lo.vector(1000, 3, 6, "f4").commit("numpy").explain())
    12000 bytes in 1000 runs: 1000 x (12 bytes) every 24 bytes
    engine numpy; compiling pays after 3572 uses
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
    >>> describe(Placed(64, Repeat(3, 16, Run(8))))
    '3 x (8 bytes) every 16 bytes, from byte 64'
    """
    begin = f", from byte {placed.displacement}" if placed.displacement else ""
    return _steps(placed.node) + begin


def _steps(node: Node) -> str:
    match node:
        case Run(size):
            return f"{size} bytes"
        case Repeat():
            return f"{node.count} x ({_steps(node.child)}) every {node.stride} bytes"
        case Places():
            return f"({_steps(node.child)}) at {shown(node.displacements)}"
        case Runs():
            return f"runs of {shown(node.lengths)} bytes at {shown(node.displacements)}"
    parts = [f"[{describe(part)}]" for part in node.parts[:MOST_PARTS]]
    more = len(node.parts) - len(parts)
    return " then ".join(parts) + (f" and {more} parts more" if more else "")
