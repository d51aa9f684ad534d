"""Collections of blocks made by tasks at nodes drawn at random, for the suites of applications."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spliter.backend import concatenate
from tests.histogram_suite import cut

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


class MadeCollections:
    """How the suites of applications make collections on COMPSs, and read those it made."""

    def collection(self, array: Any, rows: Sequence[int]) -> Any:
        """Return an array cut along its rows."""
        return made(cut(array, rows), [rows, *([size] for size in array.shape[1:])])

    def frames(self, frame: Any, rows: Sequence[int]) -> Any:
        """Return a DataFrame or Series cut along its rows."""
        return made(cut(frame, rows))

    def blocks(self, blocks: Sequence[Any]) -> Any:
        """Return blocks of any kind as a collection."""
        return made(blocks)

    def gathered(self, collection: Any) -> Any:
        """Return what the engine has made as one array."""
        return concatenate(collection.gather())

    def heights(self, collection: Any) -> list[int]:
        """Return the numbers of rows of the blocks."""
        return list(collection.grid.chunks[0])
