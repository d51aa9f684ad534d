"""Run a cluster: many tasks of a graph as one task at a worker."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from dask.typing import Key
from distributed import Reschedule, get_worker
from distributed.protocol.pickle import dumps, loads

from spliter_backends.dask.worker.idle import wanted_task


@dataclass(frozen=True)
class ClusterTask:
    """The tasks of a cluster.

    Parameters
    ----------
    nodes : tuple
        Dask's tasks, in the order in which they run.
    direct : tuple of hashable
        Keys of the arguments that are single values.
    received : tuple of (tuple of hashable, int or None)
        For each of the other arguments, which are outputs of clusters, the keys of the values, and
        where the output is in the argument, if that is the value of a whole cluster.
    outputs : tuple of tuple of hashable
        Keys of the values that leave together.
    singles : tuple of hashable
        Keys of values that leave one by one.
    copied : frozenset of hashable
        Tasks that get a copy of their arguments, as each task of Dask does.
    """

    nodes: tuple[Any, ...]
    direct: tuple[Key, ...]
    received: tuple[tuple[tuple[Key, ...], int | None], ...]
    outputs: tuple[tuple[Key, ...], ...]
    singles: tuple[Key, ...]
    copied: frozenset[Key]

    def __repr__(self) -> str:
        return f"<cluster of {len(self.nodes)} tasks>"  # Dask logs it when a task fails

    def __call__(self, *arguments: Any) -> Any:
        """Run the tasks; raise `Reschedule` before the next one if the cluster was cancelled.

        Takes the values of `direct`, then an argument for each of `received`. Returns a
        tuple of values for each of `outputs`, then the values of `singles`; if there is nothing
        but one of `outputs`, that one.
        """
        is_wanted = _is_wanted()
        single = len(self.direct)
        values: dict[Key, Any] = dict(zip(self.direct, arguments[:single], strict=True))
        for (keys, position), given in zip(self.received, arguments[single:], strict=True):
            output = given if position is None else given[position]
            values.update(zip(keys, output, strict=True))
        del arguments
        kept = [*chain.from_iterable(self.outputs), *self.singles]
        uses = [node.dependencies for node in self.nodes]
        released = releases(uses, [node.key for node in self.nodes], kept)
        for node, last in zip(self.nodes, released, strict=True):
            if not is_wanted():
                raise Reschedule
            own = loads(dumps(node)) if node.key in self.copied else node
            try:
                values[node.key] = own({key: values[key] for key in node.dependencies})
            except Exception as error:
                with contextlib.suppress(Exception):  # errors of some classes refuse notes
                    error.add_note(f"raised by the Dask task {node.key!r}, which ran in a cluster")
                raise
            for key in last:
                del values[key]
        left = [tuple(values[key] for key in keys) for keys in self.outputs]
        if len(left) == 1 and not self.singles:
            return left[0]
        return (*left, *(values[key] for key in self.singles))


def _is_wanted() -> Callable[[], bool]:
    """Return a function that returns whether nobody has cancelled the task that runs."""
    try:
        worker = get_worker()
    except ValueError:  # not at a worker
        return lambda: True
    key = worker.get_current_task()
    return lambda: wanted_task(worker, key) is not None


class PickledCluster:
    """A :class:`ClusterTask` as bytes: Dask's scheduler forwards it without making its tasks.

    Raises `TypeError` if its tasks cannot be pickled, as Dask does.
    """

    def __init__(self, cluster: ClusterTask) -> None:
        self._description = repr(cluster)
        try:
            self._pickled = dumps(cluster)
        except Exception as error:
            raise TypeError(f"tasks of the graph cannot be pickled: {error}") from error

    def __repr__(self) -> str:
        return self._description

    def __call__(self, *arguments: Any) -> Any:
        """Run the tasks, as :class:`ClusterTask` does."""
        return loads(self._pickled)(*arguments)


def releases(
    uses: Sequence[Collection[Key]], made: Sequence[Key], kept: Sequence[Key]
) -> list[list[Key]]:
    """Return, for each task, the values that no later task uses; `kept` are used after the last.

    Examples
    --------
    >>> releases([[], ["a"], ["b", "x"]], made="abc", kept=["c"])
    [[], ['a'], ['b', 'x']]
    """
    seen = set(kept)
    found = []
    for used, key in zip(reversed(uses), reversed(made), strict=True):
        last = [needed for needed in (*used, key) if needed not in seen]
        seen.update(last)
        found.append(last)
    return found[::-1]
