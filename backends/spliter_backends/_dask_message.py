"""Tasks that go to the scheduler together: one graph, each task with a place of its own.

The scheduler takes a millisecond or two for a graph, however small. A pass that sends one per
partition keeps the last worker waiting for all of them.

A message also shows which results will be wanted at which other workers. Small ones go there as
soon as they are made (``_dask_handed``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import dask
from dask._task_spec import Task, parse_input
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.typing import Key
from dask.utils import funcname
from distributed import Client, Future
from distributed.protocol.pickle import dumps

from spliter import Location, TaskNotSerializableError
from spliter_backends._dask_handed import hand_on
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
        self._tasks: dict[str, Task] = {}
        self._layers: dict[tuple[Location | None, bool], list[str]] = {}
        self.futures: list[Future[Any]] = []
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
        self._tasks[key] = Task(key, fn, *map(parse_input, args))
        self._layers.setdefault((location, on_partition), []).append(key)
        future: Future[Any] = Future(key, self._client)
        self._sent += args
        # Held: a future that nobody holds is taken for one that nobody wants, and released.
        self.futures.append(future)
        return future

    def __contains__(self, future: Future[Any]) -> bool:
        """Whether a future is of one of these tasks."""
        return future.key in self._tasks

    def send(self) -> None:
        """Send the tasks.

        Raises
        ------
        TaskNotSerializableError
            If one cannot be pickled. None of them is sent then.
        """
        if not self.futures:
            return
        self._have_results_handed_on()
        layers = {
            f"at-{location}-{on_partition}": MaterializedLayer(
                {key: self._tasks[key] for key in keys},
                annotations=_annotations(location, on_partition),
            )
            for (location, on_partition), keys in self._layers.items()
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

    def _have_results_handed_on(self) -> None:
        """Wrap the tasks of which it is known that their results are needed elsewhere."""
        locations = {key: at for (at, _), keys in self._layers.items() for key in keys}
        needs = {key: task.dependencies for key, task in self._tasks.items()}
        for key, wanted_at in handed_on(locations, needs).items():
            task = self._tasks[key]
            self._tasks[key] = Task(key, hand_on, wanted_at, task.func, *task.args)

    def discard(self) -> None:
        """Cancel all futures, so that nobody waits for tasks that are never sent."""
        for future in self.futures:
            future.cancel(asynchronous=False)


def handed_on(
    locations: Mapping[str, Location | None], needs: Mapping[str, Collection[Key]]
) -> dict[str, tuple[Location, ...]]:
    """Tell which results of some tasks are to be handed on to which workers.

    Parameters
    ----------
    locations : mapping of key to Location or None
        Where some tasks are pinned to.
    needs : mapping of key to collection of key
        Whose results they get, others' among them.

    Returns
    -------
    dict of key to tuple of Location
        Their results, and where to.

    Examples
    --------
    >>> at = {"first at A": "A", "first at B": "B", "next at A": "A", "next at B": "B"}
    >>> first = {"first at A": (), "first at B": ()}
    >>> exchange = {"next at A": ["first at A", "first at B"], "next at B": ["first at A"]}
    >>> handed_on(at, first | exchange)
    {'first at B': ('A',), 'first at A': ('B',)}
    """
    wanted: defaultdict[str, set[Location]] = defaultdict(set)
    for key, needed in needs.items():
        here = locations[key]
        for other in map(str, needed):
            there = locations.get(other)
            if here is not None and there is not None and here != there:
                wanted[other].add(here)
    return {key: tuple(sorted(places)) for key, places in wanted.items()}


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
