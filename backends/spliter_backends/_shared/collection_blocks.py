"""Blocks of one collection, as the program holds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

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
