"""Collections of blocks made by tasks at nodes drawn at random, for the suites of applications."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spliter.backend import concatenate
from tests.engine_collections import EngineCollections, cut

Array = npt.NDArray[Any]


def same(block: Any) -> Any:
    """Return the block: what makes it a task's result."""
    return block


def made(blocks: Sequence[Any], chunks: Any = None) -> Any:
    """Return a collection of blocks, each at a node drawn at random where there are nodes."""
    from spliter_backends.compss import make_blocks, settings

    pins = sorted(settings().pins)
    nodes = None
    if pins:
        drawn = np.random.default_rng(len(blocks)).integers(0, len(pins), len(blocks))
        nodes = [pins[at] for at in drawn.tolist()]
    return make_blocks(same, [(block,) for block in blocks], chunks=chunks, nodes=nodes)


class MadeCollections(EngineCollections):
    def collection(self, array: Any, rows: Sequence[int]) -> Any:
        return made(cut(array, rows), [rows, *([size] for size in array.shape[1:])])

    def blocks(self, blocks: Sequence[Any]) -> Any:
        return made(blocks)

    def gathered(self, collection: Any) -> Any:
        return concatenate(collection.gather())

    def heights(self, collection: Any) -> list[int]:
        return list(collection.grid.chunks[0])
