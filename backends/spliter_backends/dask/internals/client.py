"""Undocumented Dask in the client: batches of tasks, graphs of collections, and pickling."""

from __future__ import annotations

import importlib
import inspect
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, TypeAlias, cast

import dask
from dask._task_spec import GraphNode, Task
from dask.typing import Key
from distributed import Client, Future
from distributed.batched import BatchedSend

from spliter_backends.dask.features import Feature, takes

_Expr: Any = getattr(importlib.import_module("dask._expr"), "Expr", object)

Row: TypeAlias = tuple[Key, Callable[..., Any], tuple[Any, ...]]
"""A task: key, function and arguments."""


class TaskGraph(_Expr):  # type: ignore[misc]
    """Graph of a batch; pickles its tasks as rows, which are smaller than Dask's task objects."""

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


def _batches_are_known(client: Any) -> bool:
    from distributed.utils import set_thread_state, thread_state

    make, name = cast("Any", TaskGraph), "c"
    graph = make([("a", len, ("",))], {"b": {"a": 1}}, _determ_token=name)
    return (
        takes(client._graph_to_futures, "expr", "keys", "span_metadata", "internal_priority")
        and takes(client._graph_to_futures, "fifo_timeout")
        and takes(Client._send_to_scheduler, "msg")
        and takes(Future, "key", "client")
        and isinstance(client._refcount_lock, type(threading.RLock()))
        and isinstance(client.futures, dict)
        and isinstance(thread_state, threading.local)
        and callable(set_thread_state)
        and list(graph.__dask_graph__()) == ["a"]
    )


batches = Feature("batches", "each task is sent by itself", _batches_are_known)


def message_lock(client: Any) -> AbstractContextManager[Any]:
    """Return the lock that a client holds while it sends a graph."""
    lock: AbstractContextManager[Any] = client._refcount_lock
    return lock


def pending_future(client: Client, key: Key) -> Future[Any]:
    """Return the future of a task that has not been sent."""
    return Future(key, client)


def submitting_task() -> Key | None:
    """Return the key of the task that this thread runs, if any."""
    from distributed.utils import thread_state

    return cast("Key | None", getattr(thread_state, "key", None))


def send_tasks(
    client: Any,
    name: str,
    rows: Sequence[Row],
    annotations: Mapping[str, Mapping[Key, object]],
    submitting: Key | None,
) -> None:
    """Send tasks whose futures exist in one message; the scheduler starts them in this order."""
    from distributed.utils import set_thread_state

    make: Any = TaskGraph
    keys = [key for key, _, _ in rows]
    with set_thread_state(key=submitting):
        # Like Client.get, but tasks start in the order of submission. Without `fifo_timeout`,
        # messages of the same minute have equal priority and workers choose any order: trainers
        # that wait for each other would occupy threads that another training needs.
        client._graph_to_futures(
            make(rows, annotations, _determ_token=name),
            keys,
            internal_priority={key: number for number, key in enumerate(keys)},
            fifo_timeout="0s",
            span_metadata={"collections": [{"type": "low-level-graph"}]},
        )


def call_before_messages(client: Any, before: Callable[[Mapping[str, Any]], None]) -> None:
    """Make a client call a function with each message before sending it."""
    send: Callable[[Mapping[str, Any]], None] = client._send_to_scheduler

    def send_after(message: Mapping[str, Any]) -> None:
        with message_lock(client):
            before(message)
            send(message)

    client._send_to_scheduler = send_after


def released_keys(message: Mapping[str, Any]) -> Collection[Key] | None:
    """Return the keys that a message releases; ``None`` for messages of other kinds."""
    return message["keys"] if message["op"] == "client-releases-keys" else None


def fail_futures(client: Any, keys: Collection[Key], error: Exception) -> None:
    """Set the error of futures, unless the client has cancelled them."""
    for key in keys:
        state = client.futures.get(key)
        if state is not None:
            client.loop.add_callback(state.set_error, error, None)


pushes = Feature(
    "pushes",
    "Dask's client delays messages by up to 10 ms",
    lambda stream: (
        isinstance(stream, BatchedSend)
        and isinstance(stream.buffer, list)
        and hasattr(stream, "next_deadline")
        and callable(stream.waker.set)
    ),
)


def push(client: Any) -> None:
    """Send a client's delayed messages now; runs on its event loop."""
    stream: Any = getattr(client, "scheduler_comm", None)
    if stream is not None and pushes.usable(stream) and stream.buffer:
        stream.next_deadline = None
        stream.waker.set()


def lacked_dependencies(future: Any) -> bool:
    """Return whether Dask cancelled a future because blocks that it is computed from are lost."""
    error = getattr(getattr(future, "_state", None), "exception", None)
    return getattr(error, "reason", None) == "lost dependencies"


# --- graphs of collections -----------------------------------------------------------------


class UnfusedTask(Task):
    """A task that Dask does not fuse with the one that takes its result."""

    __slots__ = ()

    @property
    def block_fusion(self) -> bool:
        """Whether it stays a task of its own."""
        return True


unfused_tasks = Feature(
    "unfused tasks",
    "the first operation on blocks of results may move whole results",
    lambda: isinstance(Task.block_fusion, property),
)


def unfused_task(key: Key, fn: Callable[..., Any], *args: Any) -> Task:
    """Return a task that is not fused with others."""
    return (UnfusedTask if unfused_tasks.usable() else Task)(key, fn, *args)


# --- what may wait -------------------------------------------------------------------------


_PICKLING: Final = {"dask.tokenize": "tokenize", "distributed.client": "_graph_to_futures"}
"""Functions that pickle arguments under locks which the event loop needs, by their modules."""

pickling = Feature(
    "pickling",
    "values that wait for tasks when they are pickled may hang",
    lambda: all(
        inspect.isfunction(fn) and _PICKLING[fn.__module__] == fn.__name__
        for fn in (dask.tokenize.tokenize, Client._graph_to_futures)
    ),
)


def is_pickling() -> bool:
    """Return whether Dask pickles what calls this, under locks."""
    frame = inspect.currentframe() if pickling.usable() else None
    while frame is not None:
        if _PICKLING.get(frame.f_globals.get("__name__", "")) == frame.f_code.co_name:
            return True
        frame = frame.f_back
    return False
