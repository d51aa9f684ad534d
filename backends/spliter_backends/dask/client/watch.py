"""Client-side watch over unfinished tasks on Dask: keep alive what they need until they end.

A program may drop the Split, and even the future of a task whose result another task waits
for. The blocks that such a task reads are not dependencies that Dask knows of, so the client
holds on to them until it sees the task's future done, or learns from the scheduler that the task
has ended. It asks only about tasks whose future is gone, once a second.

What has tasks run elsewhere when their worker is gone runs in the scheduler (``_dask_pins``) and
is put there from here.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dask.typing import Key
from distributed import Client, Future
from tornado.ioloop import PeriodicCallback

from spliter._events import tell
from spliter_backends.dask.scheduler.pins import AVAILABLE_WORKERS, TOPIC, PinPlugin

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
        self._plugin_sent_by: Any = None

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
        await self.send_plugin()
        client: Any = self._client()
        workers: Mapping[str, int] = await getattr(client.scheduler, AVAILABLE_WORKERS)()
        return workers

    async def send_plugin(self) -> None:
        """Have the scheduler run the plugin, on the client's event loop.

        Does so once for each connection to a scheduler.
        """
        client: Any = self._client()
        connection = client.scheduler_comm
        if connection is None or connection is self._plugin_sent_by:
            return
        await client.register_plugin(PinPlugin())
        if connection is not self._plugin_sent_by:  # nor has another call sent it meanwhile
            self._plugin_sent_by = connection
            client.subscribe_topic(TOPIC, _log_unavailable)

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
            await self.send_plugin()  # the client may have connected anew
            states = await client.scheduler.get_task_status(keys=unknown) if unknown else {}
        except OSError:  # the scheduler is gone; the client tells the user itself
            return
        with self._lock:
            for key, state in states.items():
                if state in (None, "memory", "erred", "forgotten"):
                    self._unfinished.pop(key, None)

    def _drop_done(self) -> None:
        for key, entry in list(self._unfinished.items()):
            future = entry.future()
            if future is not None and (future.done() or future.status == "cancelled"):
                del self._unfinished[key]


def _log_unavailable(event: tuple[float, Mapping[str, Any]]) -> None:
    """Log that a worker cannot serve the tasks that were pinned to it."""
    _, worker = event
    tell(
        f"location {worker['status']}",
        "%(location)s is %(status)s; its tasks run elsewhere",
        level=logging.WARNING,
        engine="dask",
        **worker,
    )
