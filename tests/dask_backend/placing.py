"""Collections whose blocks are at workers drawn at random, for the suites of applications."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
from dask._task_spec import Task
from dask.highlevelgraph import HighLevelGraph
from distributed import Client

from tests.dask_workers import workers_of
from tests.engine_collections import EngineCollections, cut


def same(block: Any) -> Any:
    """Return the block; what makes it a task's result, which Dask can make again."""
    return block


def shuffled(blocks: Sequence[Any]) -> list[Any]:
    """Return futures of blocks, each at a worker drawn at random."""
    client = Client.current()
    workers = workers_of(client)
    drawn = np.random.default_rng(len(blocks)).integers(0, len(workers), len(blocks))
    return [
        client.submit(same, block, workers=[workers[at]], pure=False)
        for block, at in zip(blocks, drawn.tolist(), strict=True)
    ]


def shuffled_array(array: npt.NDArray[Any], rows: Sequence[int]) -> da.Array:
    """Return an array cut along its rows, each chunk at a worker drawn at random."""
    name = f"shuffled-{uuid.uuid4().hex}"
    further = (0,) * (array.ndim - 1)
    graph: dict[Any, Any] = {
        (name, at, *further): Task((name, at, *further), same, future)
        for at, future in enumerate(shuffled(cut(array, rows)))
    }
    layers = HighLevelGraph.from_collections(name, graph, dependencies=())
    chunks = (tuple(rows), *((size,) for size in array.shape[1:]))
    persisted: da.Array = da.Array(layers, name, chunks=chunks, dtype=array.dtype).persist()
    return persisted


class ShuffledCollections(EngineCollections):
    """Arrays, each chunk of which is at a worker drawn at random, and lists of futures."""

    def collection(self, array: npt.NDArray[Any], rows: Sequence[int]) -> Any:
        return shuffled_array(array, rows)

    def blocks(self, blocks: Sequence[Any]) -> Any:
        return shuffled(blocks)
