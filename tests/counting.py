"""Count what a program asks of a Dask cluster: deterministic numbers, where times are not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from distributed import Client, Scheduler, SchedulerPlugin

from spliter_experiments.compare.engines.dask_meter import ClusterMeter

PATIENCE_SECONDS = 60.0
LOOK_SECONDS = 0.05

COUNTED_OPERATIONS = ("who_has",)
"""Questions to the scheduler that are counted."""


@dataclass(frozen=True)
class Counts:
    """What a program has cost.

    Parameters
    ----------
    tasks : int
        That have been computed.
    graphs : int
        Messages with tasks, from the client to the scheduler.
    who_has : int
        Questions to the scheduler where blocks are.
    nbytes : int
        Of results that workers have got from each other.
    """

    tasks: int
    graphs: int
    who_has: int
    nbytes: int


class MessageCounter(SchedulerPlugin):
    """Counts graphs, and questions, that come to a scheduler."""

    name = "spliter-message-counter"

    def __init__(self) -> None:
        self.graphs = 0
        self.asked = dict.fromkeys(COUNTED_OPERATIONS, 0)
        self._handlers: dict[str, Any] = {}

    async def start(self, scheduler: Scheduler) -> None:
        """Stand between the scheduler and those who ask."""
        for operation in COUNTED_OPERATIONS:
            handler = scheduler.handlers[operation]
            self._handlers[operation] = handler
            scheduler.handlers[operation] = self._counted(operation, handler)

    def _counted(self, operation: str, handler: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any, **kwargs: Any) -> Any:
            self.asked[operation] += 1
            return handler(*args, **kwargs)

        return count

    def update_graph(self, scheduler: Scheduler, **_: Any) -> None:
        """Count a graph."""
        self.graphs += 1

    def leave(self, scheduler: Scheduler) -> None:
        """Let the scheduler be asked as before."""
        scheduler.handlers.update(self._handlers)


def _plugin(scheduler: Scheduler) -> MessageCounter:
    found = scheduler.plugins[MessageCounter.name]
    assert isinstance(found, MessageCounter)
    return found


def _messages(dask_scheduler: Scheduler) -> tuple[int, int]:
    counter = _plugin(dask_scheduler)
    return counter.graphs, counter.asked["who_has"]


def _leave(dask_scheduler: Scheduler) -> None:
    _plugin(dask_scheduler).leave(dask_scheduler)


def _under_way(dask_scheduler: Scheduler) -> int:
    return sum(task.state in ("processing", "waiting") for task in dask_scheduler.tasks.values())


def settle(client: Client) -> None:
    """Wait until no task is under way: programs may leave results at the workers."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while client.run_on_scheduler(_under_way):
        assert time.monotonic() < deadline, f"tasks still under way after {PATIENCE_SECONDS:g} s"
        time.sleep(LOOK_SECONDS)


@contextmanager
def counter(client: Client) -> Iterator[Callable[[Callable[[], Any]], Counts]]:
    """Yield what runs a program and returns what it has cost.

    Parameters
    ----------
    client : Client
        Synchronous client of the cluster.
    """
    client.register_plugin(MessageCounter())
    try:
        with ClusterMeter(client) as meter:

            def count(program: Callable[[], Any]) -> Counts:
                settle(client)
                before, (graphs, asked) = meter.reading(), client.run_on_scheduler(_messages)
                kept = program()
                settle(client)
                found = meter.reading().since(before)
                graphs_after, asked_after = client.run_on_scheduler(_messages)
                del kept
                assert found.nbytes is not None  # Dask's meter counts them
                return Counts(found.tasks, graphs_after - graphs, asked_after - asked, found.nbytes)

            yield count
    finally:
        client.run_on_scheduler(_leave)
        client.unregister_scheduler_plugin(MessageCounter.name)
