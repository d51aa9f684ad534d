"""Every use of undocumented Dask, each with a check and a fallback.

A :class:`Feature` is an undocumented part of Dask that makes SplIter faster, or its errors earlier.
Before its first use in a process, SplIter checks that the attributes exist with the expected types
and parameters. If not, it logs a warning and uses only documented functions from then on:

=============== =================================== ===========================================
feature         purpose                             fallback
=============== =================================== ===========================================
batches         send the tasks of a loop at once    send each task by itself
pushes          send a batch without delay          Dask delays it by up to 10 ms
unfused tasks   keep the extraction of a block a    the first operation on blocks of results
                task of its own                     may move whole results
pickling        find out whether Dask pickles   values that wait for tasks when they are
                something under locks           pickled may hang
pool threads    find out whether a thread may wait  ``split`` in a task is not rejected
spans           put our tasks into one span         the scheduler records each burst of tasks
span records    remove ended groups of tasks        the records grow, as for any Dask program
dashboard       add a page to Dask's dashboard      there is no page
spill buffer    read a spilled block in place       Dask moves it back to memory, spills others
memory limits   reject what memory cannot hold      Dask kills the worker
scheduler calls query the scheduler in a task       query through the worker's client
peer reads      read a block from another worker    a Dask task copies it; if the scheduler has a
                                                    wrong holder: BlockTimeoutError
=============== =================================== ===========================================

Other modules use only what dask.org documents: the task classes of ``dask._task_spec`` (page
*Specification*), which have no public import path, and the attributes of ``Scheduler``,
``TaskState`` and ``WorkerState`` (page *Scheduling state*).
"""

from __future__ import annotations

import importlib
import inspect
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, TypeAlias, cast

import dask
from dask._task_spec import GraphNode, Task
from dask.typing import Key
from distributed import Client, Future, Worker, get_client, span
from distributed.batched import BatchedSend
from distributed.protocol.pickle import dumps
from distributed.spill import SpillBuffer
from distributed.utils import sync
from tornado.ioloop import IOLoop

from spliter_backends.dask.features import Feature

_Expr: Any = getattr(importlib.import_module("dask._expr"), "Expr", object)

Row: TypeAlias = tuple[Key, Callable[..., Any], tuple[Any, ...]]
"""A task: key, function and arguments."""


def _takes(fn: Callable[..., Any], *names: str) -> bool:
    """Return whether a function has parameters of these names."""
    return set(names) <= inspect.signature(fn).parameters.keys()


# --- the client: batches of tasks ----------------------------------------------------------


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
        _takes(client._graph_to_futures, "expr", "keys", "span_metadata", "internal_priority")
        and _takes(client._graph_to_futures, "fifo_timeout")
        and _takes(Client._send_to_scheduler, "msg")
        and _takes(Future, "key", "client")
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


# --- threads of a worker -------------------------------------------------------------------


def _pool_threads_are_known() -> bool:
    from distributed.threadpoolexecutor import ThreadPoolExecutor, thread_state

    with ThreadPoolExecutor(1) as pool:
        return bool(pool.submit(lambda: thread_state.proceed is True).result())


pool_threads = Feature(
    "pool threads",
    "a task that calls split() without worker_client() may deadlock",
    _pool_threads_are_known,
)


def holds_pool_thread() -> bool:
    """Return whether this thread runs a task and has not left the worker's pool."""
    if not pool_threads.usable():
        return False
    from distributed.threadpoolexecutor import thread_state

    return bool(getattr(thread_state, "proceed", False))


# --- the scheduler -------------------------------------------------------------------------

OUR_SPAN: Final = {"name": ("spliter",), "ids": ("spliter",)}
"""Span of all tasks of SplIter outside a span of the program; the same for all clients."""


def _span_annotations_are_known() -> bool:
    with span("a") as made:
        return bool(dask.get_annotations()["span"] == {"name": ("a",), "ids": (made,)})


spans = Feature("spans", "the scheduler records each burst of tasks", _span_annotations_are_known)


def span_annotation() -> dict[str, Any]:
    """Return the annotation that assigns a task to our span."""
    return {"span": OUR_SPAN} if spans.usable() else {}


span_records = Feature(
    "span records",
    "the scheduler keeps a record of each group of tasks",
    lambda found: isinstance(found.groups, set) and isinstance(found.metadata["collections"], list),
)


def our_span(scheduler: Any) -> Any:
    """Return the scheduler's record of our span, or ``None``."""
    extension = scheduler.extensions.get("spans")
    found = None if extension is None else extension.spans.get(OUR_SPAN["ids"][-1])
    return found if found is not None and span_records.usable(found) else None


def _dashboard_is_known(scheduler: Any) -> bool:
    from distributed.dashboard.scheduler import BokehApplication, template_variables

    return (
        _takes(BokehApplication, "applications", "server", "prefix", "template_variables")
        and callable(template_variables)
        and callable(scheduler.http_application.add_application)
    )


dashboard = Feature("dashboard", "the dashboard has no page of SplIter", _dashboard_is_known)


def add_dashboard_page(scheduler: Any, path: str, fill: Callable[..., None]) -> bool:
    """Add a page to a scheduler's dashboard, if it has one; `fill` creates the content."""
    try:
        from distributed.dashboard.scheduler import BokehApplication, template_variables
    except ImportError:  # of bokeh
        return False
    if not dashboard.usable(scheduler):
        return False
    page = BokehApplication(
        {path: fill}, scheduler, prefix="", template_variables=template_variables(scheduler)
    )
    scheduler.http_application.add_application(page)
    page.initialize(IOLoop.current())
    page.start()
    return True


# --- a worker's memory ---------------------------------------------------------------------


def _spill_buffer_is_known(worker: Any) -> bool:
    data, fast = worker.data, worker.data.fast
    return (
        isinstance(fast.d, dict)
        and isinstance(fast.total_weight + fast.n, int | float)
        and isinstance(data.slow.data.weight_by_key, dict)
        and worker.monitor.get_process_memory() > 0
    )


spill_buffer = Feature("spill buffer", "spilled blocks return to memory", _spill_buffer_is_known)


def _has_known_buffer(worker: Worker) -> bool:
    return isinstance(worker.data, SpillBuffer) and spill_buffer.usable(worker)


def in_memory(worker: Worker) -> Any:
    """Return the fastest mapping of the values in a worker's memory.

    The spill buffer measures accesses and is 8 times slower than its `fast` mapping, which tracks
    the order of use, for when values may be spilled, and is 10 times slower than its dictionary.
    """
    if not _has_known_buffer(worker):
        return worker.data
    fast = worker.data.fast  # type: ignore[attr-defined]
    return fast.d if 2 * fast.total_weight < fast.n else fast


def has_spilled(worker: Worker) -> bool:
    """Return whether values of a worker are on disk, as far as its buffer is known."""
    return _has_known_buffer(worker) and len(worker.data.slow) > 0  # type: ignore[attr-defined]


def read_spilled(worker: Worker, key: Key) -> Any:
    """Read a value that may be on disk; return it to memory only if there is room."""
    data: Any = worker.data
    if not _has_known_buffer(worker):
        return data[key]
    nbytes: int = data.slow.data.weight_by_key[key].memory
    has_room = data.fast.total_weight + nbytes <= data.fast.n and is_below_target(worker, nbytes)
    return data[key] if has_room else data.slow[key]


memory_limits = Feature(
    "memory limits",
    "Dask kills workers that run out of memory",
    lambda manager: (
        {"memory_limit", *(f"memory_{name}_fraction" for name in ("target", "spill", "pause"))}
        <= vars(manager).keys()
    ),
)


def is_below_target(worker: Worker, nbytes: int = 0) -> bool:
    """Return whether a worker's process with so many bytes more stays below its memory target.

    Dask also counts memory that it does not manage, and spills down to the target.
    """
    manager: Any = getattr(worker, "memory_manager", None)
    if not memory_limits.usable(manager) or not manager.memory_limit:
        return True
    most = manager.memory_target_fraction or manager.memory_spill_fraction or 1
    return bool(worker.monitor.get_process_memory() + nbytes <= manager.memory_limit * most)


def memory_limit(worker: Worker) -> float | None:
    """Return the bytes of memory above which Dask pauses or kills a worker."""
    manager: Any = getattr(worker, "memory_manager", None)
    if not memory_limits.usable(manager) or not manager.memory_limit:
        return None
    ended = dask.config.get("distributed.worker.memory.terminate")
    return float(manager.memory_limit * (manager.memory_pause_fraction or ended or 1))


# --- a worker and the others ---------------------------------------------------------------


def _scheduler_calls_are_known(worker: Any) -> bool:
    from distributed.core import PooledRPCCall

    return isinstance(worker.scheduler, PooledRPCCall)


scheduler_calls = Feature(
    "scheduler calls",
    "tasks query the scheduler through the worker's client",
    _scheduler_calls_are_known,
)


def call_scheduler(worker: Worker, name: str, timeout: float, /, **arguments: Any) -> Any:
    """Call a method of the scheduler, by its name in messages, in a task's thread."""
    if scheduler_calls.usable(worker):
        call = getattr(worker.scheduler, name)
        return sync(worker.loop, call, callback_timeout=timeout, **arguments)
    client, options = get_client(), {"asynchronous": False, "callback_timeout": timeout}
    return client.sync(client.run_on_scheduler, _call_method, name, arguments, **options)


def _call_method(name: str, arguments: Mapping[str, Any], dask_scheduler: Any) -> Any:
    """Call a method by name; runs on the scheduler."""
    method = getattr(dask_scheduler, name, None) or getattr(dask_scheduler, f"get_{name}")
    return method(**arguments)


def _peer_reads_are_known(worker: Any) -> bool:
    from distributed.utils_comm import gather_from_workers

    return (
        _takes(gather_from_workers, "who_has", "rpc", "who")
        and inspect.iscoroutinefunction(gather_from_workers)
        and callable(worker.rpc)
        and callable(worker.handlers["run"])
        and isinstance(
            worker.transfer_outgoing_count_total + worker.transfer_outgoing_bytes_total, int
        )
        and _takes(worker.batched_send, "msg")
        and _takes(worker.update_data, "data")
        and isinstance(worker.state.tasks, dict)
    )


peer_reads = Feature("peer reads", "a Dask task copies blocks", _peer_reads_are_known)


async def read_from_peers(
    worker: Any, holders: Mapping[Key, Collection[str]]
) -> tuple[dict[Key, Any], list[Key], list[str]]:
    """Read values from other workers; also return unreadable keys and silent workers."""
    from distributed.utils_comm import gather_from_workers

    found, _, failed, silent = await gather_from_workers(
        holders, rpc=worker.rpc, who=worker.address
    )
    return found, failed, silent


def register_copies(worker: Any, data: Mapping[Key, Any]) -> None:
    """Register copies of blocks as replicas at a worker; runs on its event loop."""
    worker.update_data(dict(data))
    worker.batched_send({"op": "add-keys", "keys": list(data), "stimulus_id": _stimulus("keep")})


async def run_at(worker: Any, address: str, fn: Callable[..., Any], **arguments: Any) -> Any:
    """Call a function on another worker's event loop; return None if it raises an error."""
    answer = await worker.rpc(address).run(function=dumps(fn), kwargs=dumps(arguments))
    return answer.get("result")


def count_transfer(worker: Any, nbytes: int) -> None:
    """Count a message to another worker in Dask's metrics, as Dask counts its own."""
    worker.transfer_outgoing_count_total += 1
    worker.transfer_outgoing_bytes_total += nbytes


def report_missing(keys: Sequence[Key], dask_worker: Any) -> None:
    """Report those of `keys` that a worker does not have; runs on its event loop."""
    message = {"op": "release-worker-data", "stimulus_id": _stimulus("not-here")}
    for key in keys:
        if key not in dask_worker.data:
            dask_worker.batched_send(message | {"key": key})


def _stimulus(name: str) -> str:
    return f"spliter-{name}-{time.time()}"
