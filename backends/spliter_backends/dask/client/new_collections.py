"""Make lazy Dask collections of blocks that are inside the results of tasks.

The graph has one task per block. It is materialized on demand only, because that takes as long as a
pass over the blocks, and many programs never use the collection (labels, for instance).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence, Set
from functools import cached_property
from typing import Any

from dask._task_spec import Task, TaskRef
from dask.highlevelgraph import HighLevelGraph, Layer
from dask.typing import Key

from spliter.backend import UNKNOWN, BlockGrid, IntArray, ResultBlocks
from spliter_backends.dask.internals.client import unfused_task
from spliter_backends.dask.scheduler.pins import EXTRACTED


def assemble_blocks(results: Sequence[tuple[IntArray, Any]], made: ResultBlocks) -> Any:
    """Return a lazy collection of blocks that are inside the results of tasks.

    `results` are the positions of blocks, and the future of their list.
    """
    name = f"{EXTRACTED}-{uuid.uuid4().hex}"
    if made.dtype is None:
        return _frame(name, results, made)
    from dask.array import Array

    layer = ExtractedBlocks(name, results, made.grid, made.output)
    chunks = tuple(
        tuple(float("nan") if size == UNKNOWN else size for size in axis)
        for axis in made.grid.chunks
    )
    graph = HighLevelGraph.from_collections(name, layer, dependencies=())
    return Array(graph, name, chunks=chunks, dtype=made.dtype, meta=made.meta)


def _frame(name: str, results: Sequence[tuple[IntArray, Any]], made: ResultBlocks) -> Any:
    """Return a Dask DataFrame, Series or Index.

    Categories become unknown: blocks may have others than the example from which `meta` was made.
    """
    import dask.dataframe as dd
    from dask.dataframe.utils import clear_known_categories

    tasks: dict[Key, Any] = {}
    for positions, future in results:
        # As in the graph of a persisted DataFrame. Futures as arguments would be kept alive by a
        # scheduler in this process, with its last messages.
        tasks[future.key] = future
        for at, position in enumerate(positions.tolist()):
            key = (name, position)
            tasks[key] = unfused_task(key, extract_block, TaskRef(future.key), at, made.output)
    keys = [(name, position) for position in range(made.grid.nblocks)]
    divisions = made.divisions or (None,) * (len(keys) + 1)
    meta = clear_known_categories(made.meta)
    return dd.from_graph(tasks, meta, tuple(divisions), keys, EXTRACTED)


class ExtractedBlocks(Layer):
    """Graph layer with one task per block, which extracts it from a list.

    `output` is the index of the list, if results are tuples of lists.
    """

    def __init__(
        self,
        name: str,
        results: Sequence[tuple[IntArray, Any]],
        grid: BlockGrid,
        output: int | None,
    ) -> None:
        super().__init__()
        self.name = name
        self._results = tuple(results)
        self._grid = grid
        self._output = output

    @cached_property
    def _tasks(self) -> dict[Key, Task]:
        tasks: dict[Key, Task] = {}
        for positions, future in self._results:
            for at, index in enumerate(self._grid.indexes(positions)):
                key: Key = (self.name, *index)
                tasks[key] = unfused_task(key, extract_block, future, at, self._output)
        return tasks

    def __getitem__(self, key: Key) -> Task:
        """Return the task of one block."""
        return self._tasks[key]

    def __iter__(self) -> Iterator[Key]:
        """Yield the keys of all blocks."""
        return iter(self._tasks)

    def __len__(self) -> int:
        """Return the number of blocks."""
        return sum(len(positions) for positions, _ in self._results)

    def is_materialized(self) -> bool:
        """Return whether the tasks have been created."""
        return "_tasks" in self.__dict__

    def get_output_keys(self) -> Set[Key]:
        """Return the keys of all blocks."""
        return {
            (self.name, *index)
            for positions, _ in self._results
            for index in self._grid.indexes(positions)
        }


def extract_block(result: Any, at: int, output: int | None) -> Any:
    """Return one block of a task's result; runs on a worker."""
    return result[at] if output is None else result[output][at]
