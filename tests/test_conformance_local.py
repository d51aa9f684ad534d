"""The local backend passes the conformance suite, with each kind of collection it takes."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import dask.array as da
import numpy as np
from dask.highlevelgraph import HighLevelGraph

from spliter import Partition
from spliter.testing import BackendTests
from spliter.testing._hooks import Block


class LocalTests(BackendTests):
    """What the kinds of local collections have in common."""

    backend = "local"
    locations_are_elsewhere = False
    examples = 10
    n_locations = 1

    def where_it_runs(self) -> Callable[[Partition], str]:
        return location_of_this_thread


def location_of_this_thread(_: Partition) -> str:
    return "local" if threading.current_thread().name.startswith("spliter") else "main thread"


class TestLists(LocalTests):
    def distribute(self, blocks: Sequence[Block], placement: Sequence[int]) -> Any:
        return list(blocks)

    def test_futures_are_those_of_the_standard_library(self) -> None:
        (future,) = self.split_of(3).map(len)
        assert isinstance(future, Future)


class TestTuplesOfLists(LocalTests):
    """Blocks of another type: the values are all that counts."""

    def distribute(self, blocks: Sequence[Block], placement: Sequence[int]) -> Any:
        return tuple(np.ma.masked_array(block) for block in blocks)


class TestDaskWithoutCluster(LocalTests):
    """Dask arrays whose blocks are values in the graph."""

    def distribute(self, blocks: Sequence[Block], placement: Sequence[int]) -> Any:
        further = [(size,) for size in blocks[0].shape[1:]]
        return self.distribute_grid(blocks, [[len(block) for block in blocks], *further], placement)

    def distribute_grid(
        self, blocks: Sequence[Block], chunks: Sequence[Sequence[int]], placement: Sequence[int]
    ) -> Any:
        indexes = np.ndindex(*map(len, chunks))
        name = f"blocks-{uuid.uuid4().hex}"
        graph: dict[Any, Block] = {
            (name, *index): block for index, block in zip(indexes, blocks, strict=True)
        }
        layers = HighLevelGraph.from_collections(name, graph)
        return da.Array(layers, name, chunks, dtype=blocks[0].dtype)
