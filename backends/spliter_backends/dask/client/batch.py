"""Send tasks to Dask's scheduler in batches: those of one loop are one message.

The scheduler takes a millisecond or two for a message with a graph, however small. So a task
that is submitted waits for others, for a millisecond after the last one, and all go together. Their
futures exist at once. Nothing else that the client tells the scheduler overtakes them: whatever
it sends, a graph of the user's on these futures for example, sends the batch first.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
import uuid
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import dask
from dask.typing import Key
from distributed import Client, Future

from spliter import Location
from spliter_backends.dask import internals
from spliter_backends.dask.internals import Row
from spliter_backends.dask.scheduler.pins import PINNED

ON_PARTITION: Final = "spliter-on-partition"
"""The annotation of tasks on partitions, which the dashboard's page counts."""

QUIET_SECONDS: Final = 0.001
"""Seconds without another task after which a batch is sent: what one task more takes to submit,
several times."""

MAX_DELAY: Final = 0.01
"""Seconds after which a batch is sent although tasks keep coming: as long as Dask's client holds
back messages of its own."""

MAX_BATCH_NBYTES: Final = 4 * 2**20
"""Bytes of pickled calls from which on a batch is sent; Dask warns of graphs above 10 MB."""

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
        # The program's own functions of keys are called first: they may raise.
        of_task = {
            name: value(key) if callable(value) else value for name, value in annotations.items()
        }
        for name, value in of_task.items():
            self.annotations.setdefault(name, {})[key] = value
        self.rows.append((key, fn, tuple(map(self._shared, args))))
        self.futures[key] = future
        self.grown = time.monotonic()

    def _shared(self, value: Any) -> Any:
        """Return an equal value of this batch for bytes, which travel once then."""
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
    """Collects the tasks that a client's threads submit, and sends them in batches.

    Parameters
    ----------
    client : distributed.Client
        The client whose futures are handed out.
    """

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
        location: Location | None,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        *,
        on_partition: bool = False,
        keep_alive: Any = None,
    ) -> Future[Any]:
        """Add the task ``fn(*args)`` to the next batch and return its future.

        Parameters
        ----------
        name : str
            First part of its key, by which Dask groups tasks.
        location : Location or None
            Worker to pin it to.
        fn : callable
            A function that workers can import.
        args : tuple
            Bytes, strings and Dask's references to other tasks.
        on_partition : bool
            Whether there are partitions among the arguments.
        keep_alive : object
            Whatever must stay alive until the task has been sent, futures that it refers to.

        Returns
        -------
        distributed.Future
            Of the task, pending.
        """
        client: Any = self._client()
        annotations = _annotations(location, on_partition)
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
        """Send the tasks that are waiting, if there are any."""
        with self._lock:
            batch, self._batch = self._batch, None
            if batch is None:
                return
            try:
                # Annotations have been collected when tasks were submitted, each its own.
                contextvars.Context().run(self._send, batch)
            except Exception as error:  # noqa: BLE001 - nobody would be there to catch it
                self._fail(batch, error)
            batch.clear()

    def _send(self, batch: _Batch) -> None:
        client: Any = self._client()
        internals.send_tasks(
            client, batch.name, batch.rows, batch.annotations, batch.submitting_task
        )
        # A batch has waited already.
        client.loop.add_callback(internals.push, client)

    def _fail(self, batch: _Batch, error: Exception) -> None:
        """End futures whose tasks could not be sent, unless the client has cancelled them."""
        logger.error("%d tasks could not be sent to the scheduler: %s", len(batch.rows), error)
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
        """Whether a message is about results that no task of the batch makes or needs.

        Results are released all the time; what the batch needs it holds.
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


def _annotations(location: Location | None, on_partition: bool) -> dict[str, Any]:
    """Return the annotations of a task: the user's, then what pins it to a location."""
    annotations = internals.span_annotation() | dask.get_annotations()
    annotations[PINNED] = location is not None
    if location is not None:
        annotations |= {"workers": [location], "allow_other_workers": False}
    if on_partition:
        annotations[ON_PARTITION] = True
    return annotations
