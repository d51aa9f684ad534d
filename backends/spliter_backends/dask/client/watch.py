"""Client-side watch over unfinished tasks on Dask: keep alive what they need until they end.

A program may drop the Split, and even the future of a task whose result another task waits
for. The blocks that such a task reads are not dependencies that Dask knows of, so the client
holds on to them until it sees the task's future done, or learns from the scheduler that the task
has ended. It asks only about tasks whose future is gone, once a second.

It also installs the scheduler plugin that lets pinned tasks run elsewhere when their worker
leaves (``dask.scheduler.pins``).
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dask.typing import Key
from distributed import Client, Future
from tornado.ioloop import PeriodicCallback

from spliter.backend import log_event
from spliter_backends.dask.scheduler.pins import TOPIC, PinPlugin, available_workers
from spliter_backends.dask.worker.materialize import kept_results_topic

INTERVAL: Final = 1.0
"""Seconds between two passes over the unfinished tasks."""

ASK_AFTER: Final = 1.0
"""Seconds from a task's submission until the scheduler is asked about it: it has to have arrived,
which takes another way than the question."""


@dataclass(eq=False)
class _Unfinished:
    """A task that has not been seen to finish, and what it needs kept alive."""

    future: weakref.ReferenceType[Future[Any]]
    keep: tuple[Any, ...]
    since: float = field(default_factory=time.monotonic)


class UnfinishedTasks:
    """The unfinished tasks of one client, and its link to the scheduler plugin.

    Parameters
    ----------
    client : distributed.Client
        The client that submits the tasks.
    """

    def __init__(self, client: Client) -> None:
        self._client = weakref.ref(client)
        self._lock = threading.Lock()
        self._unfinished: dict[Key, _Unfinished] = {}
        self._passes: PeriodicCallback | None = None
        self._has_plugin = False
        self._kept: set[Key] = set()

    def __len__(self) -> int:
        """Return the number of tasks that have not been seen to finish."""
        return len(self._unfinished)

    def add(self, future: Future[Any], keep: tuple[Any, ...]) -> None:
        """Keep objects alive until a task has finished.

        Parameters
        ----------
        future : distributed.Future
            The task's.
        keep : tuple
            What holds the blocks that it reads.
        """
        client = self._client()
        assert client is not None  # the future's own
        with self._lock:
            self._unfinished[future.key] = _Unfinished(weakref.ref(future), keep)
            if self._passes is None:
                self._passes = PeriodicCallback(self._inspect, INTERVAL * 1000)
                loop: Any = client.loop
                loop.add_callback(self._passes.start)

    async def available_workers(self) -> Mapping[str, int]:
        """Return the threads of the workers to plan with, on the client's event loop.

        Returns
        -------
        mapping of str to int
            Without workers that have been paused for long, unless there are no others.
        """
        client: Any = self._client()
        workers: Mapping[str, int] | None = None
        while workers is None:
            await self.send_plugin()
            workers = await client.run_on_scheduler(available_workers)
            self._has_plugin = workers is not None  # it may be another scheduler by now
        return workers

    async def send_plugin(self) -> None:
        """Have the scheduler run the plugin, on the client's event loop."""
        if self._has_plugin:
            return
        client: Any = self._client()
        await client.register_plugin(PinPlugin())
        self._has_plugin = True
        client.subscribe_topic(TOPIC, _log_unavailable)
        client.subscribe_topic(kept_results_topic(client.id), self._note_kept)

    def _note_kept(self, event: tuple[float, Key]) -> None:
        _, key = event
        self._kept.add(key)

    def forget_kept(self, key: Key) -> bool:
        """Forget a result that a task has had kept in the client's name; tell if there was one."""
        kept = key in self._kept
        self._kept.discard(key)
        return kept

    async def _inspect(self) -> None:
        """Drop the entries of tasks that have finished."""
        client: Any = self._client()
        is_closed = client is None or client.status in ("closing", "closed")
        with self._lock:
            if is_closed:
                self._unfinished.clear()
            self._drop_done()
            if not self._unfinished and self._passes is not None:
                self._passes.stop()
                self._passes = None
            begun_before = time.monotonic() - ASK_AFTER
            unknown = [
                key
                for key, entry in self._unfinished.items()
                if entry.future() is None and entry.since < begun_before
            ]
        if is_closed:
            return
        try:
            ended = await client.run_on_scheduler(ended_tasks, unknown) if unknown else []
        except OSError:  # the scheduler is gone; the client tells the user itself
            return
        with self._lock:
            for key in ended:
                self._unfinished.pop(key, None)

    def _drop_done(self) -> None:
        for key, entry in list(self._unfinished.items()):
            future = entry.future()
            if future is not None and (future.done() or future.status == "cancelled"):
                del self._unfinished[key]


def ended_tasks(keys: Sequence[Key], dask_scheduler: Any) -> list[Key]:
    """Run on the scheduler: return those tasks that have ended, or that nothing needs.

    Parameters
    ----------
    keys : sequence of key
        The tasks.
    dask_scheduler : distributed.Scheduler
        Given by Dask.

    Returns
    -------
    list of key
    """
    tasks = dask_scheduler.tasks
    # Released: its result was used, and is kept by nobody.
    ended = ("memory", "erred", "forgotten", "released")
    return [key for key in keys if key not in tasks or tasks[key].state in ended]


def _log_unavailable(event: tuple[float, Mapping[str, Any]]) -> None:
    """Log that a worker cannot serve the tasks that were pinned to it."""
    _, worker = event
    log_event(
        f"location {worker['status']}",
        "%(location)s is %(status)s; its tasks run elsewhere",
        level=logging.WARNING,
        engine="dask",
        **worker,
    )
