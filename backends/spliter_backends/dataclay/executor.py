"""Submit tasks as active methods of dataClay objects, with futures for their results.

A submitted task goes through these steps, all but the first on dataClay's event loop::

    submit      pickle the function and its arguments; reject what cannot be pickled
    wait        for the futures among the arguments
    send        to the partition's home; results among the arguments go by name if they are kept
                there, else with the call
    stale, gone create a home where the blocks are now and send again, a few times
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
    InvalidArgumentError,
    Location,
    Partition,
    SplIterError,
    TaskNotSerializableError,
)
from spliter.backend import BlocksMade, Executor, ExecutorBase, IntArray, log_event
from spliter_backends._shared.unpicklable import not_serializable
from spliter_backends._shared.waiting import when_done
from spliter_backends.dataclay.blocks import ClientSource
from spliter_backends.dataclay.client.backend_calls import (
    ATTEMPTS,
    BackendGoneError,
    ObjectAwayError,
    Peer,
)
from spliter_backends.dataclay.client.future import DataClayFuture, Kept, unpickled
from spliter_backends.dataclay.client.handles import Anchor, Home
from spliter_backends.dataclay.client.session import Session, current_session
from spliter_backends.dataclay.message import ERRORS, MESSAGE_LIMIT, Pickled, dumps, encode
from spliter_backends.dataclay.persist import keep_blocks
from spliter_backends.dataclay.worker.source import StationSource

DELIVERY_THREADS: Final = 4
"""Number of threads that unpickle results and run the callbacks of futures."""

_making = threading.Lock()


@dataclass(frozen=True, eq=False)
class _SentPartition:
    """A partition among a task's arguments; keeps its anchor even if the Split is closed."""

    partition: Partition
    anchor: Anchor
    as_one: bool

    def message(self, home: Home) -> bytes:
        """Return the partition as a message for its home."""
        source = StationSource(home.partition.object_id, self.anchor.nbytes)
        return dumps(self.partition.at_location(source, as_one=self.as_one))


@dataclass(eq=False)
class _Task:
    """A submitted task."""

    future: DataClayFuture
    location: Location | None
    call: bytes = b""
    referred: list[_SentPartition | Future[Any]] = field(default_factory=list)

    @property
    def sent(self) -> list[_SentPartition]:
        """Its partitions."""
        return [it for it in self.referred if isinstance(it, _SentPartition)]

    @property
    def awaited(self) -> list[Future[Any]]:
        """Its futures."""
        return [it for it in self.referred if isinstance(it, Future)]


class DataClayExecutor(ExecutorBase):
    """Runs functions at the backends of a client.

    Parameters
    ----------
    session : Session
        Session of the client.
    """

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
        told = self.session.wait(self.session.describe(ids))
        hosts = Counter(it["host"] for it in told.values())
        return {
            location: told[one]["free"] // hosts[told[one]["host"]] if one in told else None
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

    def assemble(self, results: Sequence[tuple[IntArray, Any]], made: BlocksMade) -> Any:
        """Wait for tasks and return the blocks they made as a collection.

        The blocks become persistent objects at the backends where they were made.
        """
        from spliter_backends.dataclay.collection import DataClayArray

        futures = [
            self.submit(_keep, (future, made.output), {}, self.location_of(future))
            for _, future in results
        ]
        object_ids: list[Any] = [None] * len(made.rows)
        nbytes = np.zeros(len(made.rows), dtype=np.int64)
        rows = list(made.rows)
        for (positions, _), future in zip(results, futures, strict=True):
            for position, block in zip(positions.tolist(), future.result(), strict=True):
                object_ids[position], nbytes[position], rows[position] = block
        chunks = (tuple(rows), *((size,) for size in made.trailing_shape))
        return DataClayArray(tuple(object_ids), chunks, made.dtype, nbytes)

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
                if value.executor is not self:
                    raise InvalidArgumentError(
                        "the partition belongs to another client (or backend) than the one the "
                        "task is submitted to; pass a future of its result instead"
                    )
                if value.location != location:
                    return None  # sent as a reference that cannot be iterated there
                new: _SentPartition | Future[Any] = self._sent(value)
            elif isinstance(value, Future):
                new = value
            else:
                return None
            if id(value) not in numbers:
                numbers[id(value)] = len(task.referred)
                task.referred.append(new)
            return numbers[id(value)]

        task.call = _pickled(fn, tuple(args), dict(kwargs), refer)
        waiting = [future for future in task.awaited if not future.done()]
        when_done(waiting, functools.partial(self._start, task))
        return task.future

    def _sent(self, partition: Partition) -> _SentPartition:
        source = partition.source
        assert isinstance(source, ClientSource)
        return _SentPartition(partition, source.anchor, partition.begin_pass())

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
        self, task: _Task, homes: Sequence[Home], peer: Peer, given: Sequence[bytes | str]
    ) -> tuple[Any, ...] | None:
        """Make the call of a task; return ``None`` if its target object is not there."""
        name = self.session.new_name()
        call = task.call, given, name
        try:
            if homes:
                reply = await peer.call(homes[0].partition.object_id, "run", *call)
            else:
                reply = await peer.at_station("run", *call)
        except (BackendGoneError, ObjectAwayError):
            return None
        except BaseException:
            peer.free_later([name])  # the result may exist or be created later
            raise
        return ("kept", Kept(self.session, peer, name)) if reply[0] == "kept" else tuple(reply)

    async def _reply(self, task: _Task) -> tuple[Any, ...]:
        """Send a task; send it again if its blocks have moved."""
        for future in task.awaited:
            if (error := future.exception()) is not None:
                raise error
        gone: set[uuid.UUID] = set()
        for attempt in range(1, ATTEMPTS + 1):
            homes = await _homes(task)
            peer = homes[0].peer if homes else await self._peer_for(task, gone)
            given = await self._given(task, homes, peer)
            reply = await self._call(task, homes, peer, given)
            if reply is None or reply[0] == "stale":
                log_event(
                    "retry",
                    "a task did not find its blocks at %(location)s; it is sent again",
                    engine="dataclay",
                    location=str(peer.backend_id),
                    attempt=attempt,
                )
            if reply is None and not homes:  # the task can run at another backend
                gone.add(peer.backend_id)
                continue
            if reply is not None and reply[0] != "stale":
                if task.location is not None:
                    task.future.location = Location(str(peer.backend_id))
                return reply
            missing = frozenset(reply[1]) if reply is not None else frozenset()
            await asyncio.gather(
                *(
                    sent.anchor.move(home, missing=missing)
                    for sent, home in zip(task.sent, homes, strict=True)
                )
            )
        raise BlockTimeoutError(
            f"the blocks of the task were found elsewhere {ATTEMPTS} times in a row; something "
            "keeps moving them between dataClay's backends"
        )

    async def _peer_for(self, task: _Task, gone: set[uuid.UUID]) -> Peer:
        """Choose a backend for a task without partitions."""
        wishes = [task.future.location, *(self.location_of(it) for it in task.awaited)]
        for wish in wishes:
            if wish is not None and uuid.UUID(wish) not in gone:
                return self.session.peer(uuid.UUID(wish))
        known = [one for one in await self.session.backend_ids() if one not in gone]
        if not known:
            raise BackendNotUsableError("no dataClay backend answers")
        self._turn += 1
        return self.session.peer(known[self._turn % len(known)])

    async def _given(self, task: _Task, homes: Sequence[Home], peer: Peer) -> list[bytes | str]:
        """Return the referenced partitions and results in the form that the backend expects."""
        at_home = iter(homes)
        given = [
            it.message(next(at_home))
            if isinstance(it, _SentPartition)
            else await _argument(it, peer)
            for it in task.referred
        ]
        _check_fits(len(task.call) + sum(map(len, given)))
        return given


def _pickled(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    refer: Callable[[Any], int | None],
) -> bytes:
    """Pickle a call."""

    def pickle(value: Any) -> Pickled:
        return encode(value, refer=refer)

    try:
        pickled = pickle((fn, args, kwargs))
    except SplIterError:
        raise
    except Exception as error:
        place = "a dataClay backend"
        raise not_serializable(fn, args, kwargs, error, pickle, place) from error
    return _checked_message(pickled)


def _pickled_result(value: Any) -> bytes:
    """Pickle the result of another engine's future, which is an argument."""
    try:
        pickled = encode(value)
    except Exception as error:
        raise TaskNotSerializableError(
            f"a future among the arguments has a {type(value).__name__} as its result, which "
            f"cannot be pickled: {error}. Pass something that can"
        ) from error
    return _checked_message(pickled)


def _checked_message(pickled: Pickled) -> bytes:
    _check_fits(pickled.nbytes)
    return pickled.join()


def _check_fits(nbytes: int) -> None:
    """Reject a message that gRPC would lose."""
    if nbytes > MESSAGE_LIMIT:
        raise TaskNotSerializableError(
            f"a task and its arguments take {nbytes} bytes; gRPC carries less than 2 GiB "
            f"({MESSAGE_LIMIT} bytes). Pass less, or futures of results that are where the task "
            "runs"
        )


async def _homes(task: _Task) -> list[Home]:
    """Return the homes of a task's partitions, moved to one backend if needed."""
    anchors = [sent.anchor for sent in task.sent]
    for anchor in anchors[1:]:  # their blocks may have moved to different backends
        peer = anchors[0].home.peer
        if anchor.home.peer is not peer:
            await anchor.move(anchor.home, to=peer.backend_id)
    return [anchor.home for anchor in anchors]


async def _argument(future: Future[Any], peer: Peer) -> bytes | str:
    """Return a result that is an argument: its name if it is kept at the task's backend."""
    if isinstance(future, DataClayFuture):
        kept = future.kept()
        if kept is not None:
            return kept.name if kept.peer is peer else bytes(await kept.message())
        if future.message is not None:
            return future.message
    return _pickled_result(future.result())


def _is_kept(future: Any) -> bool:
    Future.exception(future)  # waits
    return isinstance(future, DataClayFuture) and future.kept() is not None


def _deliver(future: DataClayFuture, state: str, content: Any) -> None:
    """Settle a future with a reply; runs in one of our threads."""
    if state == "kept":
        future.set_result(content)
    elif state == "failed":
        future.set_exception(ERRORS.decode(content))
    else:
        try:
            value = unpickled(content)
        except TaskNotSerializableError as error:
            future.set_exception(error)
            return
        future.message = content
        future.set_result(value)


def _error_for_program(error: BaseException) -> BaseException:
    """Return the error that the program gets."""
    if isinstance(error, BackendGoneError):
        return BlockLostError(f"{error}, and what was there with it; run the task again")
    return error


def _keep(result: Any, output: int | None) -> Any:
    """Make a task's result persistent; runs at a backend."""
    return keep_blocks(result if output is None else result[output])


def current_executor() -> DataClayExecutor:
    """Return the executor of the dataClay client started in this process.

    Raises
    ------
    BackendNotUsableError
        If no client is started.
    """
    session = current_session()
    with _making:
        if session.executor is None:
            session.executor = DataClayExecutor(session)
        executor: DataClayExecutor = session.executor
        return executor


def executor_of_future(future: Any) -> Executor | None:
    """Return the executor that made a future; ``None`` for anything else."""
    return future.executor if isinstance(future, DataClayFuture) else None
