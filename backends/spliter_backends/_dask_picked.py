"""The graph of an array whose blocks are to be picked out of what tasks have returned.

Written out when somebody asks for its tasks, which many programs never do (labels that nobody
looks at), and not when the array is made: that would take as long as a pass over the blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from functools import cached_property
from typing import Any

from dask._task_spec import Task
from dask.highlevelgraph import Layer
from dask.typing import Key

from spliter._grid import IntArray


class PickedBlocks(Layer):
    """One task per block, which picks it out of a list.

    Parameters
    ----------
    name : str
        Of the array.
    results : sequence of (ndarray of int64, future)
        Which blocks, and the future of the list of them.
    further : int
        Axes of the array besides the first one.
    output : int, optional
        If the futures' results are tuples of such lists: which of them.
    """

    def __init__(
        self,
        name: str,
        results: Sequence[tuple[IntArray, Any]],
        further: int,
        output: int | None,
    ) -> None:
        super().__init__()
        self.name = name
        self._results = tuple(results)
        self._further = (0,) * further
        self._output = output

    @cached_property
    def _tasks(self) -> dict[Key, Task]:
        tasks: dict[Key, Task] = {}
        for positions, future in self._results:
            for at, position in enumerate(positions.tolist()):
                key = (self.name, position, *self._further)
                tasks[key] = Task(key, pick, future, at, self._output)
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
        """Whether the tasks have been written out."""
        return "_tasks" in self.__dict__

    def get_output_keys(self) -> Set[Key]:
        """Return the keys of all blocks."""
        return {
            (self.name, position, *self._further)
            for positions, _ in self._results
            for position in positions.tolist()
        }


def pick(result: Any, at: int, output: int | None) -> Any:
    """Return one block out of what a task has returned; runs on a worker.

    Parameters
    ----------
    result : list, or tuple of list
        What the task has returned.
    at : int
        Which block.
    output : int or None
        Of a tuple, which list.

    Returns
    -------
    block
        At that place.
    """
    return result[at] if output is None else result[output][at]
