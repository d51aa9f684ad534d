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
from typing import Any, Final

import dask
from dask._expr import Expr
from dask._task_spec import GraphNode, Task
from dask.typing import Key
from distributed import Client, Future
from distributed.spans import SpanMetadata
from distributed.utils import set_thread_state, thread_state

from spliter import Location
from spliter_backends.dask.scheduler.pins import MARK
from spliter_backends.dask.scheduler.records import SPAN

ON_PARTITION: Final = "spliter-on-partition"
"""The annotation of tasks on partitions, which the dashboard's page counts."""

SEND_AFTER: Final = 0.001
"""Seconds without another task after which a batch is sent: what one task more takes to submit,
several times."""

LONGEST_WAIT: Final = 0.01
"""Seconds after which a batch is sent although tasks keep coming: as long as Dask's client holds
back messages of its own."""

LARGEST_BATCH: Final = 4 * 2**20
"""Bytes of pickled calls from which on a batch is sent; Dask warns of graphs above 10 MB."""

logger = logging.getLogger(__name__)


class TaskGraph(Expr):
    """The tasks of a batch as they travel: in rows, which are smaller than Dask's task objects.

    Operands: ``rows``, of key, function and arguments; ``annotations``, by name and key.
    """

    _parameters = ["rows", "annotations"]  # noqa: RUF012 - as the base class has it

    def _layer(self) -> dict[Key, GraphNode]:
        return {key: Task(key, fn, *args) for key, fn, args in self.operands[0]}

    def __dask_keys__(self) -> list[Key]:
        """Return the keys of all tasks."""
        return [key for key, _, _ in self.operands[0]]

    def __dask_annotations__(self) -> dict[str, dict[Key, object]]:
        """Return the annotations of each task."""
        annotations: dict[str, dict[Key, object]] = self.operands[1]
        return annotations


class _Batch:
    """Tasks that have not been sent yet."""

    def __init__(self, submitting_task: Key | None) -> None:
        self.name = uuid.uuid4().hex
        self.submitting_task = submitting_task
        self.begun = self.grown = time.monotonic()
        self.nbytes = 0
        self.rows: list[tuple[Key, Callable[..., Any], tuple[Any, ...]]] = []
        self.annotations: dict[str, dict[Key, object]] = {}
        self.futures: dict[Key, Future[Any]] = {}
        self.needed: list[Any] = []
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
        self.rows, self.futures, self.needed, self._same = [], {}, [], {}

    def seconds_left(self) -> float:
        due = min(self.grown + SEND_AFTER, self.begun + LONGEST_WAIT)
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
        # The client's own: it holds it while it sends a graph, which may send our batch first.
        self._lock = client._refcount_lock
        self._batch: _Batch | None = None
        self._send_first(client)

    def add(
        self,
        name: str,
        location: Location | None,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        *,
        on_partition: bool = False,
        needed: Any = None,
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
        needed : object
            Whatever must stay alive until the task has been sent, futures that it refers to.

        Returns
        -------
        distributed.Future
            Of the task, pending.
        """
        client: Any = self._client()
        annotations = _annotations(location, on_partition)
        submitting_task = getattr(thread_state, "key", None)
        with self._lock:
            if self._batch is not None and self._batch.submitting_task != submitting_task:
                self.flush()
            if self._batch is None:
                self._batch = _Batch(submitting_task)
                client.loop.add_callback(self._send_when_complete, self._batch)
            batch = self._batch
            future: Future[Any] = Future(f"{name}-{batch.name}-{len(batch.rows)}", client)
            batch.add(future, fn, args, annotations)
            batch.needed.append(needed)
            if batch.nbytes >= LARGEST_BATCH:
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
        make: Any = TaskGraph
        graph = make(batch.rows, batch.annotations, _determ_token=batch.name)
        with set_thread_state(key=batch.submitting_task):
            # As Client.get does, except that tasks are started in the order of their submission.
            # Without the timeout the scheduler takes messages of one minute for equally urgent, and
            # each worker orders their tasks as it likes: trainers that wait for each other would
            # each hold a thread that another training needs.
            client._graph_to_futures(
                graph,
                list(batch.futures),
                internal_priority={key: number for number, key in enumerate(batch.futures)},
                fifo_timeout="0s",
                span_metadata=SpanMetadata(collections=[{"type": "low-level-graph"}]),
            )
        client.loop.add_callback(self._push)

    def _push(self) -> None:
        """Have the client send what it holds back for 10 ms, as a batch has waited already."""
        stream: Any = getattr(self._client(), "scheduler_comm", None)
        if stream is not None and stream.buffer:
            stream.next_deadline = None
            stream.waker.set()

    def _fail(self, batch: _Batch, error: Exception) -> None:
        """End futures whose tasks could not be sent, unless the client has cancelled them."""
        client: Any = self._client()
        logger.error("%d tasks could not be sent to the scheduler: %s", len(batch.rows), error)
        for key in batch.futures:
            state = client.futures.get(key)
            if state is not None:
                client.loop.add_callback(state.set_error, error, None)

    async def _send_when_complete(self, batch: _Batch) -> None:
        while batch is self._batch and (seconds := batch.seconds_left()) > 0:
            await asyncio.sleep(seconds)
        if batch is self._batch:
            self.flush()

    def _send_first(self, client: Any) -> None:
        """Have the client send the batch before any other message that could depend on it."""
        send: Callable[[Mapping[str, Any]], None] = client._send_to_scheduler

        def send_after_batch(message: Mapping[str, Any]) -> None:
            with self._lock:
                if self._batch is not None and not self._may_overtake(message, self._batch):
                    self.flush()
                send(message)

        client._send_to_scheduler = send_after_batch

    @staticmethod
    def _may_overtake(message: Mapping[str, Any], batch: _Batch) -> bool:
        """Whether a message is about results that no task of the batch makes or needs.

        Results are released all the time; what the batch needs it holds.
        """
        released = message["op"] == "client-releases-keys"
        return released and batch.futures.keys().isdisjoint(message["keys"])


def _annotations(location: Location | None, on_partition: bool) -> dict[str, Any]:
    """Return the annotations of a task: the user's, then what pins it to a location."""
    annotations = {"span": SPAN, **dask.get_annotations()}
    annotations[MARK] = location is not None
    if location is not None:
        annotations |= {"workers": [location], "allow_other_workers": False}
    if on_partition:
        annotations[ON_PARTITION] = True
    return annotations
