"""Keep the blocks of unfinished tasks alive, and install the scheduler plugin.

A program may drop the Split, and even the future of a task whose result another task needs. The
blocks that such a task reads are no dependencies known to Dask, so the client keeps them until the
task's future is done. If the future was dropped, the client queries the scheduler once a second
whether the task has ended.

The plugin lets pinned tasks run elsewhere if their worker leaves (``scheduler.pins``).
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
from spliter_backends.dask.client.scheduler_calls import block_timeout, is_closed
from spliter_backends.dask.scheduler.pins import TOPIC, PinPlugin, available_workers
from spliter_backends.dask.worker.materialize import kept_results_topic

INTERVAL: Final = 1.0
"""Seconds between two passes over the unfinished tasks."""

QUERY_AFTER: Final = 1.0
"""Minimum age of a task, in seconds, before a query: the task must have reached the scheduler, over
another connection than the query."""


@dataclass(eq=False)
class _UnfinishedTask:
    """A task not known to have finished, and the objects it needs."""

    future: weakref.ReferenceType[Future[Any]]
    keep: tuple[Any, ...]
    since: float = field(default_factory=time.monotonic)


class UnfinishedTasks:
    """Unfinished tasks of one client, and its subscription to the scheduler plugin."""

    def __init__(self, client: Client) -> None:
        self._client = weakref.ref(client)
        self._lock = threading.Lock()
        self._unfinished: dict[Key, _UnfinishedTask] = {}
        self._passes: PeriodicCallback | None = None
        self._has_plugin = False
        self._kept: set[Key] = set()

    def __len__(self) -> int:
        """Return the number of tasks not known to have finished."""
        return len(self._unfinished)

    def add(self, future: Future[Any], keep: tuple[Any, ...]) -> None:
        """Keep objects alive until a task has finished."""
        client = self._client()
        assert client is not None  # the future refers to it
        with self._lock:
            self._unfinished[future.key] = _UnfinishedTask(weakref.ref(future), keep)
            if self._passes is None:
                self._passes = PeriodicCallback(self._inspect, INTERVAL * 1000)
                loop: Any = client.loop
                loop.add_callback(self._passes.start)

    async def available_workers(self) -> Mapping[str, int]:
        """Return the threads of the workers to plan with, on the client's event loop."""
        client: Any = self._client()
        workers: Mapping[str, int] | None = None
        while workers is None:
            await self.send_plugin()
            workers = await client.run_on_scheduler(available_workers, block_timeout())
            self._has_plugin = workers is not None  # the scheduler may have been restarted
        return workers

    async def send_plugin(self) -> None:
        """Install the plugin in the scheduler; runs on the client's event loop."""
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
        """Return whether a task keeps a result in the client's name, and forget it."""
        kept = key in self._kept
        self._kept.discard(key)
        return kept

    async def _inspect(self) -> None:
        """Drop the entries of tasks that have finished."""
        client: Any = self._client()
        closed = is_closed(client)
        with self._lock:
            if closed:
                self._unfinished.clear()
            self._drop_done()
            if not self._unfinished and self._passes is not None:
                self._passes.stop()
                self._passes = None
            submitted_before = time.monotonic() - QUERY_AFTER
            unknown = [
                key
                for key, entry in self._unfinished.items()
                if entry.future() is None and entry.since < submitted_before
            ]
        if closed:
            return
        try:
            ended = await client.run_on_scheduler(ended_tasks, unknown) if unknown else []
        except OSError:  # the scheduler is lost, which the client itself reports
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
    """Return the tasks that have ended or are not needed; runs on the scheduler."""
    tasks = dask_scheduler.tasks
    # Released: the result was used and is no longer needed.
    ended = ("memory", "erred", "forgotten", "released")
    return [key for key in keys if key not in tasks or tasks[key].state in ended]


def _log_unavailable(event: tuple[float, Mapping[str, Any]]) -> None:
    """Log that tasks pinned to a worker run elsewhere."""
    _, worker = event
    log_event(
        f"location {worker['status']}",
        "%(location)s is %(status)s; its tasks run elsewhere",
        level=logging.WARNING,
        engine="dask",
        **worker,
    )
