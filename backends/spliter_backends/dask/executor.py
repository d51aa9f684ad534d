"""Submit tasks pinned to the worker that holds their partition, and return Dask's own futures.

Pins are strict: a loose pin (``allow_other_workers=True``) lets work stealing take tasks away from
their blocks, which would then be copied across the network. A strictly pinned task would hang if
its worker left or stayed paused; a scheduler plugin prevents that (``scheduler.pins``). Such a task
starts elsewhere, and finds its blocks from there (``worker.source``). Its future stays the same, so
``gather``, ``as_completed``, ``progress`` and further ``submit`` calls work on it.

The blocks of unfinished tasks are kept alive (``client.watch``), because a program may keep only
the future of a reduction.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy as shallow_copy
from typing import Any, Final

import dask
from dask._task_spec import TaskRef
from dask.typing import Key
from dask.utils import funcname
from distributed import Client, Future
from distributed.protocol.pickle import dumps, loads

from spliter import Location, Partition
from spliter.backend import Executor, IntArray, ResultBlocks
from spliter_backends.dask.client.batch import BatchSender
from spliter_backends.dask.client.calls import pickle_call
from spliter_backends.dask.client.new_collections import assemble_blocks
from spliter_backends.dask.client.scheduler_calls import call_client, check_open, is_closed
from spliter_backends.dask.client.source import ClientSource
from spliter_backends.dask.client.watch import UnfinishedTasks
from spliter_backends.dask.internals.client import is_pickling
from spliter_backends.dask.scheduler.records import release_client_keys
from spliter_backends.dask.worker.binding import MaterializedPartition
from spliter_backends.dask.worker.calls import PickledPartition, run_call
from spliter_backends.dask.worker.fetch import identity
from spliter_backends.dask.worker.idle import OnIdleThreads
from spliter_backends.dask.worker.materialize import materialize_blocks

MAX_INLINE_BLOCKS: Final = 64
"""Maximum blocks of a partition that is sent with each of its tasks, in about 4 kB. A larger
partition is sent once, by an additional task; later tasks refer to its result."""


class DaskExecutor(Executor):
    """Runs functions on the workers of one client's cluster."""

    can_steal = True

    def __init__(self, client: Client) -> None:
        self._client = weakref.ref(client)
        self._lock = threading.Lock()
        self._unfinished = UnfinishedTasks(client)
        self._locations: weakref.WeakKeyDictionary[Future[Any], Location] = (
            weakref.WeakKeyDictionary()
        )
        self._sender = BatchSender(client)

    @property
    def client(self) -> Client:
        """The client; raises ``ClientClosedError`` if it was closed."""
        return check_open(self._client())

    @property
    def is_closed(self) -> bool:
        """Whether the client was closed."""
        return is_closed(self._client())

    def capacities(self, locations: Collection[Location]) -> Mapping[Location, int]:
        """Return the number of threads of each worker."""
        threads = call_client(self.client, self.client.nthreads)
        # A departed worker needs an entry too; its tasks run elsewhere.
        return {location: max(threads.get(location, 1), 1) for location in locations}

    def send_plugin(self) -> None:
        """Install SplIter's plugin in the scheduler, unless it is installed."""
        call_client(self.client, self._unfinished.send_plugin)

    def available_workers(self) -> Mapping[str, int]:
        """Return the threads of the workers to plan with.

        Workers that have been paused for more than a few seconds are omitted, unless there are no
        others.
        """
        workers: Mapping[str, int] = call_client(self.client, self._unfinished.available_workers)
        return workers

    def gather(self, futures: Sequence[Any]) -> list[Any]:
        """Wait for futures and return their results, fetched together."""
        self._sender.flush()
        try:
            results: list[Any] = self.client.gather(list(futures), asynchronous=False)
        except Exception as error:  # noqa: BLE001 - it is raised again
            raise _unbound(error) from error.__cause__
        return results

    def location_of(self, future: Any) -> Location | None:
        """Return the worker a future's task was pinned to, if this executor did it."""
        return self._locations.get(future)

    def blocking_call_allowed(self) -> bool:
        """Return whether this thread is not the client's event loop, nor holds locks it needs."""
        if is_pickling():
            return False
        loop: Any = self.client.loop
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return True
        return loop.asyncio_loop is not running

    def free_memory(self, locations: Collection[Location]) -> Mapping[Location, int | None]:
        """Return the bytes that each worker can use before Dask starts to spill."""
        target = dask.config.get("distributed.worker.memory.target") or 1.0
        free: Mapping[Location, int | None] = call_client(
            self.client, self.client.run_on_scheduler, free_memory_at, list(locations), target
        )
        return free

    def assemble(self, results: Sequence[tuple[IntArray, Any]], made: ResultBlocks) -> Any:
        """Return a lazy Dask array or DataFrame; computing it extracts blocks from the results."""
        return assemble_blocks(results, made)

    def submit(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        location: Location | None = None,
    ) -> Future[Any]:
        """Submit a task; see :class:`spliter.backend.Executor`."""
        return self.submit_among(fn, args, kwargs, () if location is None else (location,))

    def submit_among(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        locations: Sequence[Location],
    ) -> Future[Any]:
        """Submit a task that any of some workers may steal, or any worker if there are none."""
        check_open(self._client())
        keep: list[Any] = []
        sent_args = [self._replace_partition(value, keep) for value in args]
        sent_kwargs = {name: self._replace_partition(value, keep) for name, value in kwargs.items()}
        call = pickle_call(fn, sent_args, sent_kwargs)
        future = self._sender.add(
            funcname(fn),
            locations,
            run_call,
            (call.function, call.arguments, call.partitions, *call.inputs),
            on_partition=bool(keep),
            keep_alive=(fn, sent_args, sent_kwargs),
        )
        if len(locations) == 1:
            self._locations[future] = locations[0]
        self._unfinished.add(future, tuple(keep))
        return future

    def submit_team(
        self, fn: Callable[..., Any], args: Sequence[Any], location: Location, threads: int
    ) -> Future[Any]:
        """Submit a task that uses the idle threads of its worker."""
        return self.submit(OnIdleThreads(fn, threads), args, {}, location)

    def _replace_partition(self, value: Any, keep: list[Any]) -> Any:
        """Return what is sent in place of a partition, and add what it needs to `keep`."""
        if not isinstance(value, Partition) or value.executor is None:
            return value
        self.check_own(value.executor)
        source = value.source
        assert isinstance(source, ClientSource)
        with source.lock:
            keep.extend(source.keep_alive())
            return self._task_input(value, source)

    def _task_input(self, partition: Partition, source: ClientSource) -> Any:
        """Return the input for a task: the partition, pickled or its future.

        A `MaterializedPartition` adds the future of the concatenated blocks, if iterated.
        """
        materialize = partition.begin_pass()
        sent = source.reusable(partition, materialize)
        if sent is None:
            sent = PickledPartition(dumps(partition.at_location(materialize=materialize)))
            # A shared partition stays inline: the worker that runs it must fetch nothing.
            if len(partition) > MAX_INLINE_BLOCKS and not partition.holders:
                sent = self._sender.add(
                    "spliter-partition", (partition.location,), loads, (sent.data,)
                )
                self._unfinished.add(sent, ())
            source.sent = partition.indexes, materialize, sent
        if not materialize or len(partition) == 1:
            return sent
        if source.one is None or source.one.status in ("error", "cancelled"):
            source.one = self._materialize(source, partition.location)
        return MaterializedPartition(sent, source.one)

    def release(self, key: Key) -> None:
        """Free the result that tasks keep in this client's name under a key, if there is one."""
        client = self._client()
        kept = self._unfinished.forget_kept(key)
        if kept and client is not None and client.status == "running":
            loop: Any = client.loop
            loop.add_callback(client.run_on_scheduler, release_client_keys, [key], client.id)

    def _materialize(self, source: ClientSource, location: Location) -> Future[Any]:
        """Concatenate the blocks of a partition at its location, where Dask keeps the result."""
        name, sent, keep_alive = "spliter-materialized", dumps(source), source.keep_alive()
        future = self._sender.add(
            name, (location,), materialize_blocks, (sent,), keep_alive=keep_alive
        )
        self._unfinished.add(future, keep_alive)
        return future

    def copy_to(self, blocks: Sequence[tuple[Location, Future[Any]]]) -> list[Future[Any]]:
        """Start copying blocks to workers, and return the futures of the copies.

        The pins are strict: an idle worker may steal a loosely pinned task.
        """
        copies = [
            self._sender.add(
                "spliter-aligned", (location,), identity, (TaskRef(block.key),), keep_alive=block
            )
            for location, block in blocks
        ]
        self._sender.flush()
        for copy in copies:
            self._unfinished.add(copy, ())
        return copies


def _unbound(error: Exception) -> Exception:
    """Return a copy of a failed future's error, and clear the traceback of the original.

    The client keeps the original. Its traceback refers to the local variables of the calling
    functions, and would keep their collections, and the data on the cluster, alive.
    """
    try:
        unbound = shallow_copy(error)
    except Exception:  # noqa: BLE001 - a class may require arguments that it does not store
        return error
    unbound.args = error.args  # the constructor may have changed them
    traceback, error.__traceback__ = error.__traceback__, None
    return unbound.with_traceback(traceback)


def free_memory_at(
    addresses: Sequence[str], target: float, dask_scheduler: Any
) -> dict[str, int | None]:
    """Run on the scheduler: return the bytes that workers have free below their spill target.

    The target is a fraction of a worker's memory limit. ``None`` for workers without a limit, and
    for departed workers.
    """
    return {address: _free(dask_scheduler.workers.get(address), target) for address in addresses}


def _free(worker: Any, target: float) -> int | None:
    if worker is None or not worker.memory_limit:
        return None
    # Spilled values must return to memory to be copied.
    free = worker.memory_limit * target - worker.memory.process - worker.memory.spilled
    return int(free)


_executors: weakref.WeakKeyDictionary[Client, DaskExecutor] = weakref.WeakKeyDictionary()
_executors_lock = threading.Lock()


def executor_for_client(client: Client) -> DaskExecutor:
    """Return the one executor of a client."""
    with _executors_lock:
        if client not in _executors:
            _executors[client] = DaskExecutor(client)
        return _executors[client]


def executor_of_future(future: Any) -> DaskExecutor | None:
    """Return the executor of a Dask future's client; ``None`` for anything else."""
    if not isinstance(future, Future) or future.client is None:
        return None
    return executor_for_client(future.client)
