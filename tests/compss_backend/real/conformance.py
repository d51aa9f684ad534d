"""The conformance suite on a real COMPSs runtime; run inside ``runcompss``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from spliter import Partition, split
from spliter.backend import concatenate_grid
from spliter.testing import BackendTests, _programs
from spliter.testing._hooks import Block
from spliter_backends.compss import configure, make_blocks
from tests.compss_backend.placing import same
from tests.compss_backend.real.nodes import nodes_by_software

PINS = nodes_by_software()
NAMES = sorted(PINS)

pytestmark = pytest.mark.skipif(
    not PINS, reason="COMPSS_RESOURCES names no file in which each node has a software of its own"
)


def node(_: Partition) -> str:
    return os.environ["COMPSS_HOSTNAMES"]


class TestConformance(BackendTests):
    backend = "compss"
    n_locations = len(NAMES)
    examples = 2

    @pytest.fixture(autouse=True)
    def _pinned(self) -> Iterator[None]:
        before = configure(pins=PINS, computing_units=2)
        yield
        configure(pins=before.pins, computing_units=before.computing_units)

    def distribute(self, blocks: Sequence[Block], placement: Sequence[int]) -> Any:
        further = [(size,) for size in blocks[0].shape[1:]]
        return self.distribute_grid(blocks, [[len(block) for block in blocks], *further], placement)

    def distribute_grid(
        self, blocks: Sequence[Block], chunks: Sequence[Sequence[int]], placement: Sequence[int]
    ) -> Any:
        at = [NAMES[number] for number in placement]
        return make_blocks(same, [(block,) for block in blocks], chunks=chunks, nodes=at)

    def where_it_runs(self) -> Callable[[Partition], str]:
        return node

    def values_of(self, collection: Any) -> npt.NDArray[Any]:
        return np.asarray(concatenate_grid(collection.gather(), collection.grid.shape))

    # As on the stand-in's nodes: a task's copy of a block is its own.

    def test_concatenated_once_and_apart_from_the_blocks(self) -> None:
        collection = self.encoded([2] * (4 * self.n_locations))
        with split(collection, partitions_per_location=1, materialize=True) as parts:
            for _ in range(2):
                assert self.collect(parts.map(_programs.mark)) == [0] * len(parts)
            assert sum(self.collect(parts.map(_programs.consume))) == len(parts)

    def test_requested_by_the_task(self) -> None:
        lengths = [2] * (4 * self.n_locations)
        with split(self.encoded(lengths), partitions_per_location=1) as parts:
            assert self.collect(parts.map(_programs.mark)) == [0] * len(parts)
            assert self.collect(parts.map(_programs.consume)) == [len(part) for part in parts]
