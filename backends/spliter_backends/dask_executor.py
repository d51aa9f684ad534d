"""Dask as executor: tasks pinned to the worker that holds their partition.

The futures handed out are Dask's own. A task is pinned to one worker, strictly: a loose
pin (``allow_other_workers=True``) lets work stealing take tasks away from their blocks,
and the blocks would follow across the network. What a strict pin would do when its worker
dies, leaves or is paused, wait for ever, is prevented from here: once a second, and only
while tasks are under way, the scheduler is asked to let go of pins that nobody will
serve. Such a task then starts elsewhere and puts things right from there
(``_dask_worker``), so nothing has to be resolved behind the user's back, and ``gather``,
``as_completed``, ``progress`` and further ``submit`` calls see ordinary futures.

The same round keeps the blocks of tasks under way alive: a program may have dropped the
Split and hold nothing but the future of a reduction.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
import time
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy as shallow_copy
from dataclasses import dataclass, field
from typing import Any, Final

import dask
from dask.highlevelgraph import HighLevelGraph
from dask.typing import Key
from dask.utils import funcname, parse_timedelta
from distributed import Client, Future
from tornado.ioloop import PeriodicCallback

from spliter import (
    BlocksMade,
    BlockTimeoutError,
    Exchange,
    InvalidArgumentError,
    Location,
    Partition,
)
from spliter._events import tell
from spliter._grid import UNKNOWN, IntArray
from spliter_backends._dask_exchange import DaskExchange
from spliter_backends._dask_message import Message
from spliter_backends._dask_picked import PickedBlocks
from spliter_backends._dask_pins import release_pins
from spliter_backends._dask_worker import hold, run_at_location

WATCH_INTERVAL: Final = 1.0
"""Seconds between two looks at the tasks under way."""

RESCUE_AFTER: Final = 1.0
"""Seconds a task may be under way before the scheduler is asked what became of it."""

FLUSH_AFTER: Final = 0.001
"""Seconds in which the tasks of one pass are gathered into one message."""

PATIENCE: Final = 5.0
"""Seconds a task may wait for a worker that is paused before it is run elsewhere, which
means reading the blocks from the paused worker. Most pauses are over sooner."""


DEFAULT_TIMEOUT: Final = "5 minutes"


def block_timeout() -> float:
    """Return the Dask setting ``spliter.block-timeout`` in seconds.

    The longest wait for the scheduler's answer, and for blocks that are being made (again)
    without any of them getting ready; 5 minutes unless set.
    """
    return float(parse_timedelta(dask.config.get("spliter.block-timeout", DEFAULT_TIMEOUT)))


def ask(client: Client, fn: Callable[..., Any], *args: Any) -> Any:
    """Run a coroutine function on the client's event loop and wait for it, within bounds.

    Parameters
    ----------
    client : distributed.Client
        Its loop is used; not from that loop's own thread.
    fn : coroutine function
        Called with `args`.

    Returns
    -------
    object
        What it returns.

    Raises
    ------
    BlockTimeoutError
        If the scheduler does not answer within ``spliter.block-timeout``.
    """
    timeout = block_timeout()
    try:
        return client.sync(fn, *args, asynchronous=False, callback_timeout=timeout)
    except TimeoutError as error:
        raise BlockTimeoutError(
            f"the scheduler did not answer within {timeout:g} s; the limit is the Dask setting "
            "spliter.block-timeout"
        ) from error


@dataclass(eq=False)
class _UnderWay:
    """A task that has not been seen to finish, and what it needs kept alive."""

    future: weakref.ReferenceType[Future[Any]]
    keep: tuple[Any, ...]
    since: float = field(default_factory=time.monotonic)


class _Messages(threading.local):
    """The message that a thread is writing, if it is writing one."""

    open: Message | None = None


class DaskExecutor:
    """Runs functions on the workers of one client's cluster.

    Parameters
    ----------
    client : distributed.Client
        The client whose futures are handed out.
    """

    def __init__(self, client: Client) -> None:
        self._client = weakref.ref(client)
        self._lock = threading.Lock()
        self._under_way: dict[Key, _UnderWay] = {}
        self._locations: weakref.WeakKeyDictionary[Future[Any], Location] = (
            weakref.WeakKeyDictionary()
        )
        self._watch: PeriodicCallback | None = None
        self._has_looked = False
        self._gone: set[Location] = set()
        self._messages = _Messages()
        self._unsent: set[Message] = set()
        self._flush_planned = False

    @property
    def client(self) -> Client:
        """The client; closed clients raise on use, with Dask's own error."""
        client = self._client()
        if client is None:
            raise InvalidArgumentError("the Dask client of this Split no longer exists")
        return client

    def capacities(self, locations: Collection[Location]) -> Mapping[Location, int]:
        """Return the number of threads of each worker."""
        client = self.client
        scheduler: Any = client.scheduler
        threads = ask(client, scheduler.ncores)
        # A worker that has just gone still needs an entry; its tasks will run elsewhere.
        return {location: max(threads.get(location, 1), 1) for location in locations}

    def gather(self, futures: Sequence[Any]) -> list[Any]:
        """Wait for futures and return their results, fetched together."""
        try:
            results: list[Any] = self.client.gather(list(futures), asynchronous=False)
        except Exception as error:  # noqa: BLE001 - it is raised again
            raise _unbound(error) from error.__cause__
        return results

    def location_of(self, future: Any) -> Location | None:
        """Return the worker a future's task was pinned to, if this executor did it."""
        return self._locations.get(future)

    def blocking_call_allowed(self) -> bool:
        """Whether this thread is another one than the client's event loop."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return True
        loop: Any = self.client.loop
        return loop.asyncio_loop is not running

    def free_memory(self, locations: Collection[Location]) -> Mapping[Location, int | None]:
        """Return what each worker may still use before Dask starts to spill."""
        scheduler: Any = self.client.scheduler
        workers = ask(self.client, functools.partial(scheduler.identity, n_workers=-1))["workers"]
        target = dask.config.get("distributed.worker.memory.target") or 1.0
        return {location: _free(workers.get(location, {}), target) for location in locations}

    def assemble(self, results: Sequence[tuple[IntArray, Any]], made: BlocksMade) -> Any:
        """Return a Dask array over the blocks that tasks have made.

        The tasks run, or have run; picking the blocks out of their results is left to
        whoever computes (or persists) the array.
        """
        from dask.array import Array

        name = f"spliter-blocks-{uuid.uuid4().hex}"
        layer = PickedBlocks(name, results, len(made.trailing_shape), made.output)
        rows = tuple(float("nan") if count == UNKNOWN else count for count in made.rows)
        chunks = (rows, *((size,) for size in made.trailing_shape))
        graph = HighLevelGraph.from_collections(name, layer, dependencies=())
        return Array(graph, name, chunks=chunks, dtype=made.dtype)

    def submit(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        location: Location | None = None,
    ) -> Future[Any]:
        """Submit a task; see :class:`spliter.Executor`."""
        keep: list[Any] = []
        sent_args = tuple(self._as_sent(value, keep) for value in args)
        sent_kwargs = {name: self._as_sent(value, keep) for name, value in kwargs.items()}
        future = self._submit(
            f"{funcname(fn)}-{uuid.uuid4().hex}",
            location,
            run_at_location,
            fn,
            sent_args,
            sent_kwargs,
            on_partition=bool(keep),
        )
        if location is not None:
            self._locations[future] = location
        self._keep_an_eye_on(future, tuple(keep))
        return future

    def exchanges(self, locations: Sequence[Location]) -> list[Exchange] | None:
        """Return an exchange for each of some tasks; see :class:`spliter.LetsTasksExchange`."""
        at_each = Counter(locations)
        if self._gone & at_each.keys():
            return None
        if len(at_each) < len(locations):  # every worker runs one task at a time at least
            threads = self.capacities(at_each)
            if any(count > threads[location] for location, count in at_each.items()):
                return None
        name = uuid.uuid4().hex
        return [DaskExchange(name, number, locations) for number in range(len(locations))]

    @contextmanager
    def together(self) -> Iterator[None]:
        """Send what this thread submits meanwhile in one message; see `SubmitsTogether`."""
        if self._messages.open is not None:  # within a larger one
            yield
            return
        self._messages.open = message = Message(self.client)
        with self._lock:
            self._unsent.add(message)
        try:
            yield
            message.send()
        except BaseException:
            message.discard()
            raise
        finally:
            self._messages.open = None
            with self._lock:
                self._unsent.discard(message)
        if message.futures:
            loop: Any = self.client.loop
            loop.add_callback(self._flush)  # the message is whole: nothing to wait for

    def _submit(
        self,
        key: str,
        location: Location | None,
        fn: Callable[..., Any],
        *args: Any,
        on_partition: bool = False,
    ) -> Future[Any]:
        message = self._messages.open or Message(self.client)
        pin = None if location in self._gone else location
        future = message.add(key, pin, fn, args, on_partition=on_partition)
        if message is not self._messages.open:
            message.send()
        return future

    def _as_sent(self, value: Any, keep: list[Any]) -> Any:
        """Replace a partition by the future of its block list at its location."""
        if not isinstance(value, Partition) or value.executor is None:
            return value
        if value.executor is not self:
            raise InvalidArgumentError(
                "the partition belongs to another client (or backend) than the one the task "
                "is submitted to; pass a future of its result instead"
            )
        source: Any = value.source
        keep.extend(source.needed())
        return source.shipped(self, value)

    def ship(self, partition: Partition) -> Future[Any]:
        """Send a partition's block list to its location, to be named by later tasks."""
        key = f"spliter-partition-{uuid.uuid4().hex}"
        future = self._submit(key, partition.location, _receive, partition)
        self._keep_an_eye_on(future, ())
        return future

    def is_to_be_sent(self, future: Future[Any]) -> bool:
        """Whether a task is in the message that this thread is writing."""
        return self._messages.open is not None and future in self._messages.open

    def is_held_back(self, future: Future[Any]) -> bool:
        """Whether a task is in a message that another thread is writing: nobody can name it yet."""
        with self._lock:
            others = self._unsent - {self._messages.open}
        return any(future in message for message in others)

    def copy_to(self, blocks: Sequence[tuple[Location, Future[Any]]]) -> list[Future[Any]]:
        """Have blocks copied to workers, at once; return the copies, which are being made.

        The pins are strict: a loose one does not keep an idle worker from stealing the task.
        """
        message = Message(self.client)  # not one that is open: somebody is about to wait for this
        copies = []
        for location, block in blocks:
            pin = None if location in self._gone else location
            copies.append(message.add(f"spliter-aligned-{uuid.uuid4().hex}", pin, hold, (block,)))
        message.send()
        for copy in copies:
            self._keep_an_eye_on(copy, ())
        return copies

    def _keep_an_eye_on(self, future: Future[Any], keep: tuple[Any, ...]) -> None:
        with self._lock:
            self._under_way[future.key] = _UnderWay(weakref.ref(future), keep)
            loop: Any = self.client.loop
            if not self._flush_planned:
                self._flush_planned = True
                loop.add_callback(self._flush_soon)
            if self._watch is None:
                self._watch = PeriodicCallback(self._look, WATCH_INTERVAL * 1000)
                loop.add_callback(self._watch.start)

    async def _flush_soon(self) -> None:
        """Send what has been submitted now, not when the client's 10 ms are over.

        The client sends the first message of a burst at once and holds the others back to
        send them together, so every pass would wait 10 ms for nothing. Waiting for the
        rest of the burst here takes a tenth of that.
        """
        await asyncio.sleep(FLUSH_AFTER)
        with self._lock:
            self._flush_planned = False
        self._flush()

    def _flush(self) -> None:
        """Send what the client holds back."""
        stream: Any = getattr(self._client(), "scheduler_comm", None)
        if stream is not None and stream.buffer:
            stream.next_deadline = None
            stream.waker.set()

    def _forget_finished(self) -> None:
        for key, entry in list(self._under_way.items()):
            future = entry.future()
            if future is not None and (future.done() or future.status == "cancelled"):
                del self._under_way[key]

    async def _look(self) -> None:
        """Let go of what has finished; ask the scheduler about what is taking long."""
        client = self._client()
        with self._lock:
            self._forget_finished()
            if client is None or client.status in ("closing", "closed"):
                self._under_way.clear()
            if not self._under_way and self._watch is not None:
                self._watch.stop()
                self._watch = None
            now = time.monotonic()
            ages = {
                key: now - entry.since
                for key, entry in self._under_way.items()
                if now - entry.since > RESCUE_AFTER
            }
        if client is None or client.status in ("closing", "closed"):
            return
        if not ages and self._has_looked:
            return
        self._has_looked = True  # once in any case: the scheduler has to know of our pins
        states = await self.release_pins(ages)
        over = (None, "memory", "erred", "forgotten")
        with self._lock:
            for key, state in states.items():
                if state in over:
                    self._under_way.pop(key, None)

    async def release_pins(self, ages: Mapping[Key, float] | None = None) -> dict[Key, str | None]:
        """Have tasks started that nobody would start, see ``_dask_pins``.

        Parameters
        ----------
        ages : mapping of key to float, optional
            Tasks under way and for how many seconds.

        Returns
        -------
        dict
            The state of each of the tasks.
        """
        try:
            found = await self.client.run_on_scheduler(
                release_pins, ages=ages or {}, patience=PATIENCE
            )
        except OSError:  # the scheduler is gone; the client tells the user itself
            return {}
        with self._lock:
            news = set(found["gone"]) - self._gone
            self._gone |= news
        for location in sorted(news):
            tell(
                "location gone",
                "%(location)s is gone; its tasks run elsewhere",
                level=logging.WARNING,
                engine="dask",
                location=location,
            )
        states: dict[Key, str | None] = found["states"]
        return states


def _unbound(error: Exception) -> Exception:
    """Return an error that a failed future raises, but not the very one that the client keeps.

    The traceback of that one holds whatever the functions that it goes through hold, collections
    and futures, and with them their data on the cluster for as long as the client lives.
    """
    try:
        unbound = shallow_copy(error)
    except Exception:  # noqa: BLE001 - a class may ask for arguments that it does not keep
        return error
    unbound.args = error.args  # not made again: some classes write a message of what they are given
    traceback, error.__traceback__ = error.__traceback__, None
    return unbound.with_traceback(traceback)


def _free(worker: Mapping[str, Any], target: float) -> int | None:
    """Bytes that a worker (as the scheduler describes it) has free below its spill target."""
    limit = worker.get("memory_limit")
    metrics = worker.get("metrics", {})
    used = metrics.get("memory")
    if not limit or used is None:
        return None
    # What is on disk has to come back to be copied.
    spilled = metrics.get("spilled_bytes", {}).get("memory", 0)
    return int(limit * target) - int(used) - int(spilled)


def _receive(partition: Partition) -> Partition:
    """Run at a location: be the value that later tasks name."""
    return partition


_executors: weakref.WeakKeyDictionary[Client, DaskExecutor] = weakref.WeakKeyDictionary()
_executors_lock = threading.Lock()


def executor_for_client(client: Client) -> DaskExecutor:
    """Return the one executor of a client.

    Parameters
    ----------
    client : distributed.Client
        Any client.

    Returns
    -------
    DaskExecutor
        Made on first use.
    """
    with _executors_lock:
        if client not in _executors:
            _executors[client] = DaskExecutor(client)
        return _executors[client]


def executor_of_future(future: Any) -> DaskExecutor | None:
    """Return the executor of a Dask future's client; ``None`` for anything else."""
    if not isinstance(future, Future) or future.client is None:
        return None
    return executor_for_client(future.client)
