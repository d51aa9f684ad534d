"""Blocks of one collection, as the program holds them, and their names in messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from spliter import BlockGrid
from spliter.backend import IntArray

BlockT = TypeVar("BlockT")


@dataclass(frozen=True, eq=False)
class CollectionBlocks(Generic[BlockT]):
    """One of the collections that are split together.

    blocks: The engine's references to the blocks, in C order of the grid.
    nbytes: Bytes of each block, if they are known before the blocks are located.
    """

    grid: BlockGrid
    blocks: Sequence[BlockT]
    nbytes: IntArray | None = None


MAX_NAMED: Final = 5
"""Blocks named in a message: enough to recognise a pattern, few enough to read."""


def name_blocks(blocks: Sequence[tuple[int, ...]]) -> str:
    """Return the number of some blocks and their first indexes.

    Examples
    --------
    >>> name_blocks([(0,), (7,)])
    '2 block(s) ((0,), (7,))'
    """
    named = ", ".join(map(str, blocks[:MAX_NAMED]))
    return f"{len(blocks)} block(s) ({named}{', ...' if len(blocks) > MAX_NAMED else ''})"
