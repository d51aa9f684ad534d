"""Submit tasks as active methods of dataClay objects, with futures for their results.

A submitted task goes through these steps, all but the first on dataClay's event loop::

    submit      pickle the function and its arguments; reject what cannot be pickled
    wait        for the futures among the arguments
    send        to the partition's backend; results that it keeps go by name, others with the call
    retry       if blocks have moved or a backend is lost: locate the blocks, send again
    deliver     unpickle the reply in a thread, and settle the future
"""

from __future__ import annotations

import asyncio
import functools
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from spliter import (
    BackendNotUsableError,
    BlockLostError,
    BlockTimeoutError,
    Location,
    Partition,
    SplIterError,
    TaskNotSerializableError,
)
from spliter.backend import Executor, IntArray, Prefetch, ResultBlocks, log_event
from spliter_backends._shared.unpicklable import not_serializable
from spliter_backends._shared.waiting import when_done
from spliter_backends.dataclay.blocks import ClientSource
from spliter_backends.dataclay.client.backend_calls import (
    MAX_ATTEMPTS,
    BackendLostError,
    ObjectMissingError,
    Peer,
)
from spliter_backends.dataclay.client.future import DataClayFuture, RemoteResult, unpickle_result
from spliter_backends.dataclay.client.handles import PartitionHandle, RemotePartition
from spliter_backends.dataclay.client.session import Session, current_session
from spliter_backends.dataclay.message import ERRORS, PickledMessage, check_fits, dumps, encode
from spliter_backends.dataclay.objects import keep_blocks
from spliter_backends.dataclay.worker.source import BackendSource

DELIVERY_THREADS: Final = 4
"""Number of threads that unpickle results and run the callbacks of futures."""

_making = threading.Lock()


@dataclass(frozen=True, eq=False)
class _PartitionArgument:
    """A partition among a task's arguments; keeps its handle even if the Split is closed."""

    partition: Partition
    handle: PartitionHandle
    concatenated: bool
    prefetch: Prefetch

    def message(self, remote: RemotePartition) -> bytes:
        """Return the partition as a message for its backend."""
        source = BackendSource(remote.partition.object_id, self.handle.nbytes, self.prefetch)
        return dumps(self.partition.at_location(source, materialize=self.concatenated))


@dataclass(eq=False)
class _Task:
    """A submitted task."""

    future: DataClayFuture
    location: Location | None
    call: bytes = b""
    referred: list[_PartitionArgument | Future[Any]] = field(default_factory=list)

    @property
    def sent(self) -> list[_PartitionArgument]:
        """Its partitions."""
        return [it for it in self.referred if isinstance(it, _PartitionArgument)]

    @property
    def awaited(self) -> list[Future[Any]]:
        """Its futures."""
        return [it for it in self.referred if isinstance(it, Future)]


class DataClayExecutor(Executor):
    """Runs functions at the backends of a client."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._delivery = ThreadPoolExecutor(DELIVERY_THREADS, "spliter-dataclay")
        self._running: set[asyncio.Task[None]] = set()
        self._turn = 0

    def capacities(self, locations: Collection[Location]) -> Mapping[Location, int]:
        """Return how many active methods each backend runs at once, at most one per core."""
        ids = [uuid.UUID(location) for location in locations]
        cores = self.session.wait(self.session.cores(ids))
        return {location: cores[one] for location, one in zip(locations, ids, strict=True)}

    def free_memory(self, locations: Collection[Location]) -> Mapping[Location, int | None]:
        """Return the bytes that each backend can take before dataClay writes objects to disk.

        Backends on one machine share its free memory equally.
        """
        ids = [uuid.UUID(location) for location in locations]
        described = self.session.wait(self.session.describe(ids))
        hosts = Counter(it["host"] for it in described.values())
        return {
            location: described[one]["free"] // hosts[described[one]["host"]]
            if one in described
            else None
            for location, one in zip(locations, ids, strict=True)
        }

    def blocking_call_allowed(self) -> bool:
        """Return whether this thread is not that of dataClay's event loop."""
        return self.session.may_wait()

    def gather(self, futures: Sequence[Any]) -> list[Any]:
        """Wait for futures and return their results; fetch those at backends concurrently."""
        kept = [future for future in futures if _is_kept(future)]
        if len(kept) > 1:
            with ThreadPoolExecutor(min(len(kept), 2 * DELIVERY_THREADS)) as fetchers:
                list(fetchers.map(Future.result, kept))
        return [future.result() for future in futures]

    def assemble(self, results: Sequence[tuple[IntArray, Any]], made: ResultBlocks) -> Any:
        """Wait for tasks and return the blocks they made as a collection.

        The blocks become persistent objects at the backends where they were made.
        """
        from spliter_backends.dataclay.collection import DataClayArray

        futures = [
            self.submit(_keep, (future, made.output), {}, self.location_of(future))
            for _, future in results
        ]
        object_ids: list[Any] = [None] * made.grid.nblocks
        nbytes = np.zeros(made.grid.nblocks, dtype=np.int64)
        rows = made.grid.row_counts.copy()
        for (positions, _), future in zip(results, futures, strict=True):
            for position, block in zip(positions.tolist(), future.result(), strict=True):
                object_ids[position], nbytes[position], count = block
                rows[made.grid.rows(position)] = count
        grid = made.grid.with_row_counts(rows)
        return DataClayArray(tuple(object_ids), grid.chunks, made.dtype, nbytes)

    def submit(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        location: Location | None = None,
    ) -> DataClayFuture:
        """Submit a task; see :class:`spliter.backend.Executor`.

        Futures of any pool of this process arrive as their results, at any depth in the arguments.
        """
        task = _Task(DataClayFuture(self, location), location)
        numbers: dict[int, int] = {}

        def refer(value: Any) -> int | None:
            if isinstance(value, Partition) and value.executor is not None:
                self.check_own(value.executor)
                if value.location != location:
                    return None  # sent as a reference that cannot be iterated there
                new: _PartitionArgument | Future[Any] = self._partition_argument(value)
            elif isinstance(value, Future):
                new = value
            else:
                return None
            if id(value) not in numbers:
                numbers[id(value)] = len(task.referred)
                task.referred.append(new)
            return numbers[id(value)]

        task.call = _pickle_call(fn, tuple(args), dict(kwargs), refer)
        waiting = [future for future in task.awaited if not future.done()]
        when_done(waiting, functools.partial(self._start, task))
        return task.future

    def _partition_argument(self, partition: Partition) -> _PartitionArgument:
        source = partition.source
        assert isinstance(source, ClientSource)
        return _PartitionArgument(partition, source.handle, partition.begin_pass(), source.prefetch)

    def _start(self, task: _Task) -> None:
        if not task.future.set_running_or_notify_cancel():
            return
        try:
            self.session.loop.call_soon_threadsafe(self._spawn, task)
        except RuntimeError as error:  # the loop is closed at the end of the interpreter
            task.future.set_exception(error)

    def _spawn(self, task: _Task) -> None:
        running = self.session.loop.create_task(self._run(task))
        # The event loop itself holds its tasks weakly.
        self._running.add(running)
        running.add_done_callback(self._running.discard)

    async def _run(self, task: _Task) -> None:
        """Run a task to its end, and settle its future."""
        deliver: Callable[[], None]
        try:
            deliver = functools.partial(_deliver, task.future, *await self._reply(task))
        except BaseException as error:  # noqa: BLE001 -- waiting threads need an answer
            deliver = functools.partial(task.future.set_exception, _error_for_program(error))
        # Release the partitions and results among the arguments.
        del task
        try:
            await self.session.loop.run_in_executor(self._delivery, deliver)
        except RuntimeError:  # the interpreter is shutting down its threads
            deliver()

    async def _call(
        self,
        task: _Task,
        remotes: Sequence[RemotePartition],
        peer: Peer,
        given: Sequence[bytes | str],
    ) -> tuple[Any, ...] | None:
        """Make the call of a task; return ``None`` if its target object is not there."""
        name = self.session.new_name()
        call = task.call, given, name
        try:
            if remotes:
                reply = await peer.call(remotes[0].partition.object_id, "run", *call)
            else:
                reply = await peer.call_handler("run", *call)
        except (BackendLostError, ObjectMissingError):
            return None
        except BaseException:
            peer.free_later([name])  # the result may exist or be created later
            raise
        return (
            ("kept", RemoteResult(self.session, peer, name)) if reply[0] == "kept" else tuple(reply)
        )

    async def _reply(self, task: _Task) -> tuple[Any, ...]:
        """Send a task; send it again if its blocks have moved."""
        for future in task.awaited:
            if (error := future.exception()) is not None:
                raise error
        dead: set[uuid.UUID] = set()
        for attempt in range(1, MAX_ATTEMPTS + 1):
            remotes = await _remotes_of(task)
            peer = remotes[0].peer if remotes else await self._peer_for(task, dead)
            given = await self._referred_values(task, remotes, peer)
            reply = await self._call(task, remotes, peer, given)
            if reply is None or reply[0] == "stale":
                log_event(
                    "retry",
                    "the blocks of a task are no longer at %(location)s; sending the task again",
                    engine="dataclay",
                    location=str(peer.backend_id),
                    attempt=attempt,
                )
            if reply is None and not remotes:  # the task can run at another backend
                dead.add(peer.backend_id)
                continue
            if reply is not None and reply[0] != "stale":
                if task.location is not None:
                    task.future.location = Location(str(peer.backend_id))
                return reply
            missing = frozenset(reply[1]) if reply is not None else frozenset()
            await asyncio.gather(
                *(
                    sent.handle.move(remote, missing=missing)
                    for sent, remote in zip(task.sent, remotes, strict=True)
                )
            )
        raise BlockTimeoutError(
            f"the blocks of the task had moved to another dataClay backend in all {MAX_ATTEMPTS} "
            "attempts; stop the program that moves them, and run the task again"
        )

    async def _peer_for(self, task: _Task, dead: set[uuid.UUID]) -> Peer:
        """Choose a backend for a task without partitions."""
        preferred = [task.future.location, *(self.location_of(it) for it in task.awaited)]
        for one in preferred:
            if one is not None and uuid.UUID(one) not in dead:
                return self.session.peer(uuid.UUID(one))
        known = [one for one in await self.session.backend_ids() if one not in dead]
        if not known:
            raise BackendNotUsableError(
                "no dataClay backend answers; check that the backends are running"
            )
        self._turn += 1
        return self.session.peer(known[self._turn % len(known)])

    async def _referred_values(
        self, task: _Task, remotes: Sequence[RemotePartition], peer: Peer
    ) -> list[bytes | str]:
        """Return the referenced partitions and results in the form that the backend expects."""
        own = iter(remotes)
        given = [
            it.message(next(own))
            if isinstance(it, _PartitionArgument)
            else await _argument(it, peer)
            for it in task.referred
        ]
        check_fits(len(task.call) + sum(map(len, given)))
        return given


def _pickle_call(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    refer: Callable[[Any], int | None],
) -> bytes:
    """Pickle a call."""

    def pickle(value: Any) -> PickledMessage:
        return encode(value, refer=refer)

    try:
        pickled = pickle((fn, args, kwargs))
    except SplIterError:
        raise
    except Exception as error:
        place = "a dataClay backend"
        raise not_serializable(fn, args, kwargs, error, pickle, place) from error
    return _check_message(pickled)


def _pickle_result(value: Any) -> bytes:
    """Pickle the result of another engine's future, which is an argument."""
    try:
        pickled = encode(value)
    except Exception as error:
        raise TaskNotSerializableError(
            f"a future among the arguments has a {type(value).__name__} as its result, which "
            f"cannot be pickled: {error}. Return picklable values from its task"
        ) from error
    return _check_message(pickled)


def _check_message(pickled: PickledMessage) -> bytes:
    check_fits(pickled.nbytes)
    return pickled.join()


async def _remotes_of(task: _Task) -> list[RemotePartition]:
    """Return the partition objects of a task, moved to one backend if needed."""
    handles = [sent.handle for sent in task.sent]
    for handle in handles[1:]:  # their blocks may have moved to different backends
        peer = handles[0].remote.peer
        if handle.remote.peer is not peer:
            await handle.move(handle.remote, to=peer.backend_id)
    return [handle.remote for handle in handles]


async def _argument(future: Future[Any], peer: Peer) -> bytes | str:
    """Return a result that is an argument: its name if it is kept at the task's backend."""
    if isinstance(future, DataClayFuture):
        kept = future.remote_result()
        if kept is not None:
            return kept.name if kept.peer is peer else bytes(await kept.message())
        if future.message is not None:
            return future.message
    return _pickle_result(future.result())


def _is_kept(future: Any) -> bool:
    Future.exception(future)  # waits
    return isinstance(future, DataClayFuture) and future.remote_result() is not None


def _deliver(future: DataClayFuture, state: str, content: Any) -> None:
    """Settle a future with a reply; runs in one of our threads."""
    if state == "kept":
        future.set_result(content)
    elif state == "failed":
        future.set_exception(ERRORS.decode(content))
    else:
        try:
            value = unpickle_result(content)
        except TaskNotSerializableError as error:
            future.set_exception(error)
            return
        future.message = content
        future.set_result(value)


def _error_for_program(error: BaseException) -> BaseException:
    """Return the error that the program gets."""
    if isinstance(error, BackendLostError):
        return BlockLostError(f"{error}; its objects are lost. Run the task again")
    return error


def _keep(result: Any, output: int | None) -> Any:
    """Make a task's result persistent; runs at a backend."""
    return keep_blocks(result if output is None else result[output])


def current_executor() -> DataClayExecutor:
    """Return the executor of the dataClay client started in this process."""
    session = current_session()
    with _making:
        if session.executor is None:
            session.executor = DataClayExecutor(session)
        executor: DataClayExecutor = session.executor
        return executor


def executor_of_future(future: Any) -> Executor | None:
    """Return the executor that made a future; ``None`` for anything else."""
    return future.executor if isinstance(future, DataClayFuture) else None
