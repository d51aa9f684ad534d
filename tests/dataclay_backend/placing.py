"""Collections whose blocks are at backends drawn at random, for the suites of applications."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spliter_backends.dataclay import DataClayArray, distribute
from tests.engine_collections import EngineCollections, cut

N_BACKENDS = 3


def shuffled(blocks: Sequence[Any]) -> DataClayArray:
    """Return blocks, each at a backend drawn at random."""
    drawn = np.random.default_rng(len(blocks)).integers(0, N_BACKENDS, len(blocks))
    return distribute(blocks, placement=drawn.tolist())


class ShuffledCollections(EngineCollections):
    """Arrays, each block of which is at a backend drawn at random, and lists of objects."""

    def collection(self, array: npt.NDArray[Any], rows: Sequence[int]) -> Any:
        return shuffled(cut(array, rows))

    def blocks(self, blocks: Sequence[Any]) -> Any:
        return shuffled(blocks).blocks
