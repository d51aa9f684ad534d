"""Check that collections split together have the same blocking along axis 0."""

from __future__ import annotations

from collections.abc import Sequence

from spliter._errors import AlignmentError
from spliter._format import plural
from spliter._planning.grid import UNKNOWN, BlockGrid


def check_aligned(grids: Sequence[BlockGrid]) -> None:
    """Raise `AlignmentError` for collections that are not blocked alike along axis 0.

    The first grid is that of the collection being split. The others may have more axes, with one
    block along each. Unknown sizes are compared later, when the blocks are read.
    """
    first = grids[0]
    for number, other in enumerate(grids[1:], start=1):
        if other.nblocks != other.shape[0]:
            raise AlignmentError(
                f"aligned collection {number} has a grid of {other.shape} blocks; only the "
                "first collection may be blocked along further axes"
            )
        if len(first.chunks[0]) != len(other.chunks[0]):
            raise AlignmentError(
                f"aligned collection {number} has {_show(other)} along axis 0, the first "
                f"collection has {_show(first)}; rechunk one like the other"
            )
        for at, (mine, theirs) in enumerate(zip(first.chunks[0], other.chunks[0], strict=True)):
            if mine != theirs and UNKNOWN not in (mine, theirs):
                raise AlignmentError(
                    f"block {at} along axis 0 has {mine} rows in the first collection and "
                    f"{theirs} in aligned collection {number} (blocks of {_show(first)} "
                    f"against {_show(other)}); rechunk one like the other"
                )


def _show(grid: BlockGrid, most: int = 8) -> str:
    sizes = ["?" if size == UNKNOWN else str(size) for size in grid.chunks[0]]
    shown = ", ".join(sizes[:most]) + (", ..." if len(sizes) > most else "")
    return f"{plural(len(sizes), 'block')} ({shown})"
