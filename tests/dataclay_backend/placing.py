"""Collections whose blocks are at backends drawn at random, for the suites of applications."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spliter_backends.dataclay import DataClayArray, distribute
from tests.histogram_suite import cut

N_BACKENDS = 3


def shuffled(blocks: Sequence[Any]) -> DataClayArray:
    """Return blocks, each at a backend drawn at random."""
    drawn = np.random.default_rng(len(blocks)).integers(0, N_BACKENDS, len(blocks))
    return distribute(blocks, placement=drawn.tolist())


class ShuffledCollections:
    """How the suites of applications make collections in dataClay, and read those it made."""

    def collection(self, array: npt.NDArray[Any], rows: Sequence[int]) -> Any:
        """Return an array cut along its rows, each block at a backend drawn at random."""
        return shuffled(cut(array, rows))

    def frames(self, frame: Any, rows: Sequence[int]) -> Any:
        """Return a list of persistent objects that hold the pieces of a frame."""
        return shuffled(cut(frame, rows)).blocks

    def blocks(self, blocks: Sequence[Any]) -> Any:
        """Return a list of persistent objects of blocks of any kind."""
        return shuffled(blocks).blocks

    def gathered(self, collection: Any) -> Any:
        """Return a collection in dataClay as one array."""
        return collection.compute()

    def heights(self, collection: Any) -> list[int]:
        """Return the numbers of rows of the blocks of a collection that was made in dataClay."""
        return list(collection.chunks[0])
