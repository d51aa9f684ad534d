"""Tasks that go to the scheduler together: one graph, each task with a place of its own.

The scheduler takes a millisecond or two for a graph, however small. A pass that sends one per
partition keeps the last worker waiting for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import dask
from dask._task_spec import Task, parse_input
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.utils import funcname
from distributed import Client, Future
from distributed.protocol.pickle import dumps

from spliter import Location, TaskNotSerializableError
from spliter_backends._dask_pins import MARK
from spliter_backends._dask_records import SPAN

ON_PARTITION: Final = "spliter-on-partition"
"""The annotation of tasks on partitions, which the dashboard's page counts."""


class Message:
    """Tasks to be sent to the scheduler of a client.

    Parameters
    ----------
    client : distributed.Client
        Whose futures there will be.

    Attributes
    ----------
    futures : list of Future
        Of the tasks added so far.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._layers: dict[tuple[Location | None, bool], dict[str, Task]] = {}
        self.futures: list[Future[Any]] = []
        self._keys: set[str] = set()
        self._sent: list[Any] = []

    def add(
        self,
        key: str,
        location: Location | None,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        *,
        on_partition: bool = False,
    ) -> Future[Any]:
        """Add the task ``fn(*args)`` and return its future, pending until long after `send`.

        Parameters
        ----------
        key : str
            A new one.
        location : Location or None
            Worker to pin it to.
        fn : callable
            The function.
        args : tuple
            Its arguments; futures among them, or in lists and the like, arrive as results.
        on_partition : bool
            Whether there are partitions among the arguments.

        Returns
        -------
        distributed.Future
            Of the task.
        """
        task = Task(key, fn, *map(parse_input, args))
        self._layers.setdefault((location, on_partition), {})[key] = task
        future: Future[Any] = Future(key, self._client)
        self._sent += args
        # Held: a future that nobody holds is taken for one that nobody wants, and released.
        self.futures.append(future)
        self._keys.add(key)
        return future

    def __contains__(self, future: Future[Any]) -> bool:
        """Whether a future is of one of these tasks."""
        return future.key in self._keys

    def send(self) -> None:
        """Send the tasks.

        Raises
        ------
        TaskNotSerializableError
            If one cannot be pickled. None of them is sent then.
        """
        if not self.futures:
            return
        layers = {
            f"at-{location}-{on_partition}": MaterializedLayer(
                tasks, annotations=_annotations(location, on_partition)
            )
            for (location, on_partition), tasks in self._layers.items()
        }
        graph = HighLevelGraph(layers, {name: set() for name in layers})
        try:
            # Without this the scheduler takes messages of one minute for equally urgent, and each
            # worker orders their tasks as it likes: trainers that wait for each other would each
            # hold a thread that another training needs.
            keys = [future.key for future in self.futures]
            with _in_a_span():
                self._client.get(graph, keys, sync=False, fifo_timeout="0s")
        except Exception as error:
            self.discard()
            _refuse_unpicklable(self._sent, error)
            raise

    def discard(self) -> None:
        """Cancel all futures, so that nobody waits for tasks that are never sent."""
        for future in self.futures:
            future.cancel(asynchronous=False)


def _annotations(location: Location | None, on_partition: bool) -> dict[str, Any] | None:
    """Pin tasks to a location; what the user has annotated them with holds beside it."""
    pin = {"workers": [location], "allow_other_workers": False, MARK: True} if location else {}
    return {**pin, **({ON_PARTITION: True} if on_partition else {})} or None


def _in_a_span() -> AbstractContextManager[object]:
    """Leave the user's span as it is; otherwise be in ours."""
    return nullcontext() if "span" in dask.get_annotations() else dask.annotate(span=SPAN)


def _refuse_unpicklable(values: Sequence[Any], error: Exception) -> None:
    """Say so if a submission failed because something cannot be pickled."""
    for value in values:
        try:
            dumps(value)
        except Exception as cause:  # noqa: BLE001 - a __reduce__ may raise anything
            name = funcname(value) if callable(value) else f"an argument ({type(value)})"
            raise TaskNotSerializableError(
                f"{name} cannot be sent to a worker: {cause}. What a task uses must be "
                "picklable: open files, locks and connections inside the task instead"
            ) from error
