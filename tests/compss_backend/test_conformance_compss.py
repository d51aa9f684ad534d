"""The COMPSs backend passes the conformance suite, with and without a runtime (the stand-in's)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from spliter import Partition, split
from spliter.backend import concatenate_grid
from spliter.testing import BackendTests, _programs
from spliter.testing._hooks import Block
from tests.compss_backend.conftest import NODES

pytestmark = [pytest.mark.backend("compss"), pytest.mark.standin]


def same(block: Any) -> Any:
    return block


def node(_: Partition) -> str:
    return os.environ["COMPSS_HOSTNAMES"]


class CompssTests(BackendTests):
    """What the modes have in common: blocks are made by tasks."""

    backend = "compss"

    def make(self, blocks: Sequence[Block], chunks: Any, placement: Sequence[int]) -> Any:
        from spliter_backends.compss import make_blocks

        return make_blocks(same, [(block,) for block in blocks], chunks=chunks)

    def distribute(self, blocks: Sequence[Block], placement: Sequence[int]) -> Any:
        further = [(size,) for size in blocks[0].shape[1:]]
        return self.make(blocks, [[len(block) for block in blocks], *further], placement)

    def distribute_grid(
        self, blocks: Sequence[Block], chunks: Sequence[Sequence[int]], placement: Sequence[int]
    ) -> Any:
        return self.make(blocks, chunks, placement)

    def values_of(self, collection: Any) -> npt.NDArray[Any]:
        return np.asarray(concatenate_grid(collection.gather(), collection.grid.shape))


class TestWithoutRuntime(CompssTests):
    """Tasks are calls, as in a program started by plain ``python``."""

    locations_are_elsewhere = False
    n_locations = 1


class TestListWithoutRuntime(TestWithoutRuntime):
    """Blocks of whose sizes nothing is said."""

    def make(self, blocks: Sequence[Block], chunks: Any, placement: Sequence[int]) -> Any:
        if len(chunks) > 1:
            return super().make(blocks, chunks, placement)
        return super().make(blocks, None, placement)


class TestOnNodes(CompssTests):
    """Tasks run on nodes, and every object reaches them as a copy."""

    n_locations = len(NODES)
    examples = 5
    nodes: Any

    @pytest.fixture(autouse=True)
    def _connect(self, runtime: Any) -> None:
        self.nodes = runtime

    def make(self, blocks: Sequence[Block], chunks: Any, placement: Sequence[int]) -> Any:
        from spliter_backends.compss import make_blocks

        at = [f"node-{number}" for number in placement]
        return make_blocks(same, [(block,) for block in blocks], chunks=chunks, nodes=at)

    def where_it_runs(self) -> Callable[[Partition], str]:
        return node

    def incoming_transfers(self) -> float:
        return float(self.nodes.transfers)

    def move_something(self, collection: Any) -> None:
        from spliter_backends.compss.tasks import with_constraints

        with_constraints("describe", {"app_software": "NODE2"})("key", [collection[0]]).result()

    # COMPSs hands every task its own copy of an object, so nothing that a task writes into the
    # blocks as one can be seen by the next. That they are put together once shows in the tasks.

    def test_concatenated_once_and_apart_from_the_blocks(self) -> None:
        collection = self.encoded([2] * (4 * self.n_locations))
        with split(collection, partitions_per_location=1, materialize=True) as parts:
            before = self.nodes.submitted_count("concatenate")
            for _ in range(3):
                assert self.collect(parts.map(_programs.mark)) == [0] * len(parts)
            assert self.nodes.submitted_count("concatenate") == before + len(parts)
            found = self.collect(parts.map(_programs.contents))
            assert sorted(
                int(item) for content in found for _, block in content for item in block
            ) == list(range(8 * self.n_locations))

    def test_requested_by_the_task(self) -> None:
        lengths = [2] * (4 * self.n_locations)
        with split(self.encoded(lengths), partitions_per_location=1) as parts:
            for _ in range(2):
                assert self.collect(parts.map(_programs.mark)) == [0] * len(parts)
            assert self.collect(parts.map(_programs.consume)) == [len(part) for part in parts]


class TestListOfFutures(TestOnNodes):
    """Futures of tasks of the program's own, of which nothing is known."""

    def distribute(self, blocks: Sequence[Block], placement: Sequence[int]) -> Any:
        from tests.compss_backend.programs import at_node

        return [
            at_node(f"NODE{number}", block) for block, number in zip(blocks, placement, strict=True)
        ]
