"""Send tasks to Dask's scheduler in batches: the tasks of one loop in one message.

The scheduler takes 1 to 2 ms per graph, however small. So submitted tasks are collected until none
has been added for 1 ms, and sent together. Their futures exist immediately. No other message of the
client overtakes the batch: sending one, such as a user's graph on these futures, sends the batch
first.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import dask
from dask.typing import Key
from distributed import Client, Future

from spliter import Location
from spliter_backends.dask.internals import client as internals
from spliter_backends.dask.internals.client import Row
from spliter_backends.dask.internals.scheduler import span_annotation
from spliter_backends.dask.scheduler.pins import PINNED

ON_PARTITION: Final = "spliter-on-partition"
"""Annotation of tasks on partitions, counted by the dashboard's page."""

QUIET_SECONDS: Final = 0.001
"""Seconds without another task after which a batch is sent: several times the time that submitting
one task takes."""

MAX_DELAY: Final = 0.01
"""Maximum age of a batch in seconds: as long as Dask's client delays its own messages."""

MAX_BATCH_NBYTES: Final = 4 * 2**20
"""Size from which a batch is sent immediately; Dask warns about graphs above 10 MB."""

logger = logging.getLogger(__name__)


class _Batch:
    """Tasks that have not been sent yet."""

    def __init__(self, submitting_task: Key | None) -> None:
        self.name = uuid.uuid4().hex
        self.submitting_task = submitting_task
        self.begun = self.grown = time.monotonic()
        self.nbytes = 0
        self.rows: list[Row] = []
        self.annotations: dict[str, dict[Key, object]] = {}
        self.futures: dict[Key, Future[Any]] = {}
        self.keep_alive: list[Any] = []
        self._same: dict[bytes, bytes] = {}

    def add(
        self,
        future: Future[Any],
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        annotations: Mapping[str, Any],
    ) -> None:
        key = future.key
        # Callables of the program come first, as they may raise.
        of_task = {
            name: value(key) if callable(value) else value for name, value in annotations.items()
        }
        for name, value in of_task.items():
            self.annotations.setdefault(name, {})[key] = value
        self.rows.append((key, fn, tuple(map(self._deduplicate, args))))
        self.futures[key] = future
        self.grown = time.monotonic()

    def _deduplicate(self, value: Any) -> Any:
        """Return equal bytes of this batch if there are any, so that they are sent once."""
        if type(value) is not bytes:
            return value
        found = self._same.setdefault(value, value)
        if found is value:
            self.nbytes += len(value)
        return found

    def clear(self) -> None:
        """Release the futures; the coroutine that waits for the batch may outlive them."""
        self.rows, self.futures, self.keep_alive, self._same = [], {}, [], {}

    def seconds_left(self) -> float:
        due = min(self.grown + QUIET_SECONDS, self.begun + MAX_DELAY)
        return due - time.monotonic()


class BatchSender:
    """Collects the tasks that a client's threads submit, and sends them in batches."""

    def __init__(self, client: Client) -> None:
        self._client = weakref.ref(client)
        self._batch: _Batch | None = None
        self._collects = internals.batches.usable(client)
        self._lock: AbstractContextManager[Any] = nullcontext()
        if self._collects:
            self._lock = internals.message_lock(client)
            internals.call_before_messages(client, self._send_first)

    def add(
        self,
        name: str,
        locations: Sequence[Location],
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        *,
        on_partition: bool = False,
        keep_alive: Any = None,
    ) -> Future[Any]:
        """Add the task ``fn(*args)`` to the next batch and return its future.

        `name` is the prefix of its key, by which Dask groups tasks. Any worker may run it if there
        are no `locations`. The function can be imported by workers; arguments are bytes, strings,
        and Dask's references to other tasks. `on_partition` says that there are partitions among
        them. `keep_alive` are objects, such as futures it refers to, that must exist until the task
        is sent.
        """
        client: Any = self._client()
        annotations = _annotations(locations, on_partition)
        if not self._collects:
            return _submit(client, name, fn, args, annotations)
        submitting_task = internals.submitting_task()
        with self._lock:
            if self._batch is not None and self._batch.submitting_task != submitting_task:
                self.flush()
            if self._batch is None:
                self._batch = _Batch(submitting_task)
                client.loop.add_callback(self._send_when_complete, self._batch)
            batch = self._batch
            key = f"{name}-{batch.name}-{len(batch.rows)}"
            future = internals.pending_future(client, key)
            batch.add(future, fn, args, annotations)
            batch.keep_alive.append(keep_alive)
            if batch.nbytes >= MAX_BATCH_NBYTES:
                self.flush()
        return future

    def flush(self) -> None:
        """Send the collected tasks, if any."""
        with self._lock:
            batch, self._batch = self._batch, None
            if batch is None:
                return
            try:
                # Without the caller's annotations: each task has those of its submission.
                contextvars.Context().run(self._send, batch)
            except Exception as error:  # noqa: BLE001 - raised by the futures
                self._fail(batch, error)
            batch.clear()

    def _send(self, batch: _Batch) -> None:
        client: Any = self._client()
        internals.send_tasks(
            client, batch.name, batch.rows, batch.annotations, batch.submitting_task
        )
        client.loop.add_callback(internals.push, client)

    def _fail(self, batch: _Batch, error: Exception) -> None:
        """Set the error of futures whose tasks could not be sent, unless they are cancelled."""
        logger.error("failed to send %d tasks to the scheduler: %s", len(batch.rows), error)
        internals.fail_futures(self._client(), batch.futures, error)

    async def _send_when_complete(self, batch: _Batch) -> None:
        while batch is self._batch and (seconds := batch.seconds_left()) > 0:
            await asyncio.sleep(seconds)
        if batch is self._batch:
            self.flush()

    def _send_first(self, message: Mapping[str, Any]) -> None:
        """Send the batch before a message that could depend on it."""
        if self._batch is not None and not self._may_overtake(message, self._batch):
            self.flush()

    @staticmethod
    def _may_overtake(message: Mapping[str, Any], batch: _Batch) -> bool:
        """Return whether a message only releases results of tasks outside the batch.

        Such messages are frequent, and the batch keeps the futures it needs.
        """
        released = internals.released_keys(message)
        return released is not None and batch.futures.keys().isdisjoint(released)


def _submit(
    client: Client,
    name: str,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    annotations: Mapping[str, Any],
) -> Future[Any]:
    """Send one task by itself."""
    with dask.annotate(**annotations):
        future: Future[Any] = client.submit(
            fn, *args, key=f"{name}-{uuid.uuid4().hex}", fifo_timeout="0s", pure=False
        )
    return future


def _annotations(locations: Sequence[Location], on_partition: bool) -> dict[str, Any]:
    """Return the annotations of a task: the user's, and those that pin it to locations."""
    annotations = span_annotation() | dask.get_annotations()
    annotations[PINNED] = bool(locations)
    if locations:
        annotations |= {"workers": locations, "allow_other_workers": False}
    if on_partition:
        annotations[ON_PARTITION] = True
    return annotations
