"""Dask as locator: which worker holds each block of a persisted collection.

``who_has`` is asked in batches, in the order of the collection, once per plan; sizes come
from the chunks where they tell, else from the scheduler. The opened blocks hold the
collection's futures, so the data stays alive however the program drops its own names.
"""

from __future__ import annotations

import functools
import threading
import time
import uuid
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import dask
import numpy as np
from dask.base import is_dask_collection
from dask.typing import Key
from dask.utils import parse_timedelta
from distributed import Client, Future, get_client, get_worker
from distributed.threadpoolexecutor import thread_state

from spliter import (
    BackendNotUsableError,
    BlockGrid,
    BlockLostError,
    BlockTimeoutError,
    LazyCollectionError,
    Movement,
    Partition,
    PartitionNotLocalError,
    Placement,
    PlannedPartition,
    UnsupportedCollectionError,
)
from spliter._grid import IntArray
from spliter_backends._dask_graph import belongs_to_cluster, block_values
from spliter_backends._dask_worker import WorkerSource, hold
from spliter_backends.dask_executor import DaskExecutor, executor_for_client

BATCH: Final = 10_000
"""Keys per question to the scheduler: bounds the message and how long the scheduler, which
has one thread, is kept from everybody else's work."""

WAKE_INTERVAL: Final = 1.0
"""Seconds between two looks, while waiting, for blocks that nobody would start to make."""

DEFAULT_TIMEOUT: Final = "5 minutes"

T = TypeVar("T")


def block_timeout() -> float:
    """Return the Dask setting ``spliter.block-timeout`` in seconds.

    The longest wait for blocks that are being made (again) without any of them getting
    ready; 5 minutes unless set.
    """
    return float(parse_timedelta(dask.config.get("spliter.block-timeout", DEFAULT_TIMEOUT)))


@dataclass(frozen=True, eq=False)
class _Member:
    """One of the collections that are split together."""

    grid: BlockGrid
    futures: Sequence[Future[Any]]
    nbytes: IntArray | None

    @property
    def keys(self) -> list[Key]:
        return [future.key for future in self.futures]


class DaskLocator:
    """Finds the blocks of collections persisted on a distributed cluster."""

    def recognises(self, collection: Any) -> bool:
        """Whether it is a Dask collection that is not held in this process' graph alone."""
        if isinstance(collection, Future):
            return False
        if isinstance(collection, list | tuple):
            return bool(collection) and all(
                isinstance(value, Future)
                or (is_dask_collection(value) and belongs_to_cluster(value))
                for value in collection
            )
        return is_dask_collection(collection) and belongs_to_cluster(collection)

    def open(self, collections: Sequence[Any]) -> DaskBlocks:
        """Open collections whose blocks are futures."""
        _refuse_task_thread()
        members = [_open(collection) for collection in collections]
        client = _client_of([future for member in members for future in member.futures])
        executor = executor_for_client(client)
        if not executor.blocking_call_allowed():
            raise BackendNotUsableError(
                "split() asks the scheduler and waits for the answer, which cannot be done on "
                "the client's own event loop; use await asyncio.to_thread(split, collection)"
            )
        return DaskBlocks(client, executor, members)

    def executor_for(self, blocks: Any) -> DaskExecutor:
        """Return the executor of the client that the blocks' futures belong to."""
        executor: DaskExecutor = blocks.executor
        return executor


def _open(collection: Any) -> _Member:
    """Look up the futures of one collection."""
    if isinstance(collection, list | tuple):
        parts = [_open_element(value) for value in collection]
        return _Member(BlockGrid.of_unknown_sizes(len(parts)), parts, None)
    if not is_dask_collection(collection):
        raise UnsupportedCollectionError(
            f"{type(collection).__name__} is not a Dask collection; collections that are split "
            "together must all be Dask's"
        )
    found = block_values(collection)
    if found.lazy:
        raise LazyCollectionError(
            f"this Dask {type(collection).__name__} has not been computed, so its blocks are "
            "nowhere yet; call x = x.persist() and split that"
        )
    if not all(isinstance(value, Future) for value in found.values):
        raise LazyCollectionError(
            "the blocks of this Dask collection are values in its graph, in this process and not "
            "on the cluster; call x = x.persist() and split that, or use backend='local'"
        )
    return _Member(found.grid, found.values, found.nbytes)


def _open_element(value: Any) -> Future[Any]:
    if isinstance(value, Future):
        return value
    if not is_dask_collection(value):
        raise UnsupportedCollectionError(
            f"a list of futures has an element of type {type(value).__name__}"
        )
    found = block_values(value)
    if len(found.values) != 1:
        raise UnsupportedCollectionError(
            f"a list of futures has a collection of {len(found.values)} blocks as an element; "
            "split collections themselves: split(x, y)"
        )
    if found.lazy:
        raise LazyCollectionError(
            "the list has delayed objects that have not been computed; call "
            "values = dask.persist(*values) and split that"
        )
    future: Future[Any] = found.values[0]
    return future


def _client_of(futures: Sequence[Future[Any]]) -> Client:
    """Return the one client of all futures, bound to this process' if they have none."""
    clients = {future.client for future in futures}
    if None in clients:
        for future in futures:
            if future.client is None:
                future.bind_client(get_client())
        clients = {future.client for future in futures}
    if len(clients) == 1:
        client: Client | None = clients.pop()
        assert client is not None
        return client
    if not clients:
        current: Client = get_client()
        return current
    raise UnsupportedCollectionError(
        f"the blocks belong to {len(clients)} different Dask clients; split collections of one "
        "client, or persist them all with the same one"
    )


def _refuse_task_thread() -> None:
    """Refuse to wait in a worker's thread that other tasks may need to finish first."""
    try:
        get_worker()
    except ValueError:
        return
    if getattr(thread_state, "proceed", False):
        raise BackendNotUsableError(
            "split() inside a task would hold the worker's thread while it waits for other "
            "tasks; do it under 'with distributed.worker_client() as client:'"
        )


class _ClientSource:
    """A partition's blocks as the client sees them: keys to send, nothing to read."""

    def __init__(self, blocks: DaskBlocks, sent: WorkerSource) -> None:
        self._blocks = blocks
        self._sent = sent
        self._shipped: tuple[Any, Future[Any]] | None = None
        self._lock = threading.Lock()

    def read(self) -> Any:
        """Refuse: the blocks are in the workers' memory."""
        raise PartitionNotLocalError(
            "this partition's blocks are in the memory of a Dask worker, not here; give it to "
            "a function decorated with spliter.task, or to partition.submit(fn)"
        )

    def shipped(self, executor: DaskExecutor, partition: Partition) -> Future[Any]:
        """Return the future of the partition at its location, sent there on first use."""
        with self._lock:
            if self._shipped is not None:
                indexes, future = self._shipped
                # Sent again if item indexes have become known since.
                if indexes is partition.indexes and future.status != "cancelled":
                    return future
            self._blocks.refuse_cancelled(partition)
            future = executor.ship(partition)
            self._shipped = (partition.indexes, future)
            return future

    def forget(self) -> None:
        """Let go of what was sent."""
        with self._lock:
            self._shipped = None

    def __reduce__(self) -> tuple[Any, ...]:
        sent = self._sent
        return WorkerSource, (
            sent.members,
            sent.nbytes,
            sent.indexes,
            sent.topic,
            sent.token,
            sent.timeout,
        )


class DaskBlocks:
    """The blocks of one or several aligned collections on a Dask cluster."""

    def __init__(self, client: Client, executor: DaskExecutor, members: Sequence[_Member]) -> None:
        self.client = client
        self.executor = executor
        self._members = list(members)
        self._timeout = block_timeout()
        self._token = uuid.uuid4().hex
        self._topic = _listen(client, self._token, self)
        self._lock = threading.Lock()
        self._drifted = False
        self._movement = Movement()
        self._sources: weakref.WeakSet[_ClientSource] = weakref.WeakSet()
        self._aligned_holders: list[Mapping[Key, Sequence[str]]] = []
        self._copies: dict[tuple[int, int, str], Future[Any]] = {}

    @property
    def grids(self) -> Sequence[BlockGrid]:
        """One grid per collection."""
        return [member.grid for member in self._members]

    def locate(self) -> Placement:
        """Ask the scheduler where the blocks are; see :class:`spliter.Blocks`."""
        with self._lock:
            self._drifted = False
        first, *aligned = self._members
        holders = self._wait_located(first)
        self._aligned_holders = [self._wait_located(member) for member in aligned]
        keys = first.keys
        nbytes = self._sizes(first)
        return Placement.of([holders[key] for key in keys], nbytes)

    def _wait_located(self, member: _Member) -> Mapping[Key, Sequence[str]]:
        """Return the holders of every block, waiting while some are not in memory."""
        deadline = time.monotonic() + self._timeout
        fewest = len(member.futures) + 1
        pause = 0.01
        while True:
            self._wait_done(member.futures)
            holders = self._sync(self._ask, _scheduler(self.client).who_has, member.keys)
            absent = sum(not holders.get(key) for key in member.keys)
            if not absent:
                return holders
            # Moving, or lost with a worker whose death the client has not heard of yet.
            if absent < fewest:
                fewest = absent
                deadline = time.monotonic() + self._timeout
            if time.monotonic() > deadline:
                raise _timed_out(absent, self._timeout)
            time.sleep(pause)
            pause = min(pause * 1.5, 0.5)

    def _wait_done(self, futures: Sequence[Future[Any]]) -> None:
        """Wait for blocks under way; raise the error of one that failed."""
        pending = [future for future in futures if future.status in ("pending", "lost")]
        progress = asked = time.monotonic()
        pause = 0.005
        while pending:
            time.sleep(pause)
            pause = min(pause * 1.2, 0.1)
            left = [future for future in pending if future.status in ("pending", "lost")]
            now = time.monotonic()
            if len(left) < len(pending):
                progress = now
                pending = left
                self._refuse_failed(futures)
            elif now - progress > self._timeout:
                raise _timed_out(len(left), self._timeout)
            if now - asked > WAKE_INTERVAL:
                asked = now
                self._sync(self.executor.release_pins)
        self._refuse_failed(futures)

    def _refuse_failed(self, futures: Sequence[Future[Any]]) -> None:
        failed = next((future for future in futures if future.status == "error"), None)
        if failed is not None:
            self._sync(failed._result)  # raises the block's own error, with its traceback
        gone = [at for at, future in enumerate(futures) if future.status == "cancelled"]
        if gone:
            raise _gone(self._members[0].grid.indexes(np.asarray(gone)))

    def refuse_cancelled(self, partition: Partition) -> None:
        """Raise if blocks of a partition were cancelled behind the Split's back."""
        futures = self._members[0].futures
        if not futures:  # closed
            return
        gone = [at for at in partition.indexes.positions if futures[at].status == "cancelled"]
        if gone:
            raise _gone(self._members[0].grid.indexes(np.asarray(gone)))

    def _sizes(self, member: _Member) -> IntArray:
        if member.nbytes is not None:
            return member.nbytes

        ask_sizes = functools.partial(_scheduler(self.client).nbytes, summary=False)
        sizes = self._sync(self._ask, ask_sizes, member.keys)
        return np.asarray([sizes.get(key, 0) for key in member.keys], dtype=np.int64)

    async def _ask(
        self, question: Callable[..., Awaitable[Mapping[Key, T]]], keys: Sequence[Key]
    ) -> dict[Key, T]:
        """Ask the scheduler about many keys, a batch at a time."""
        answer: dict[Key, T] = {}
        for start in range(0, len(keys), BATCH):
            answer.update(await question(keys=keys[start : start + BATCH]))
        return answer

    def _sync(self, fn: Callable[..., Awaitable[T]], *args: Any) -> T:
        answer: T = self.client.sync(fn, *args, asynchronous=False)
        return answer

    def sources(self, planned: Sequence[PlannedPartition]) -> Sequence[_ClientSource]:
        """Return the sources of planned partitions; copies aligned blocks to them."""
        grid = self._members[0].grid
        columns = [grid.rows(part.positions).tolist() for part in planned]
        keys = self._members[0].keys
        self._bring_aligned(
            [
                (row, part.location)
                for part, rows in zip(planned, columns, strict=True)
                for row in rows
            ]
        )
        made = []
        for part, rows in zip(planned, columns, strict=True):
            own = tuple(keys[position] for position in part.positions.tolist())
            others = [
                tuple(self._aligned_key(number, row, part.location) for row in rows)
                for number in range(1, len(self._members))
            ]
            made.append(
                _ClientSource(
                    self,
                    WorkerSource(
                        members=(own, *others),
                        nbytes=tuple(part.nbytes.tolist()),
                        indexes=tuple(grid.indexes(part.positions)),
                        topic=self._topic,
                        token=self._token,
                        timeout=self._timeout,
                    ),
                )
            )
        self._sources.update(made)
        return made

    def _aligned_key(self, number: int, row: int, location: str) -> Key:
        copy = self._copies.get((number, row, location))
        key: Key = self._members[number].futures[row].key if copy is None else copy.key
        return key

    def _bring_aligned(self, wanted: Iterable[tuple[int, str]]) -> None:
        """Copy blocks of the further collections to where the first one's blocks are.

        A copy has a key of its own, so that neither Dask's memory manager, which drops
        surplus replicas, nor a rebalance takes it away again.
        """
        missing: dict[tuple[int, int, str], Future[Any]] = {}
        for row, location in wanted:
            for number, holders in enumerate(self._aligned_holders, start=1):
                future = self._members[number].futures[row]
                place = (number, row, location)
                if location not in holders[future.key] and place not in self._copies:
                    missing[place] = future
        if not missing:
            return
        for place, future in missing.items():
            self._copies[place] = self.client.submit(
                hold,
                future,
                key=f"spliter-aligned-{uuid.uuid4().hex}",
                workers=[place[2]],
                allow_other_workers=True,
                pure=False,
            )
        copies = [self._copies[place] for place in missing]
        self._wait_done(copies)
        keys = [copy.key for copy in copies]
        sizes = self._sizes(_Member(BlockGrid.of_unknown_sizes(len(keys)), copies, None))
        self._count(Movement(aligned_blocks=len(copies), aligned_nbytes=int(sizes.sum())))

    def _count(self, more: Movement) -> None:
        with self._lock:
            self._movement = Movement(
                self._movement.aligned_blocks + more.aligned_blocks,
                self._movement.aligned_nbytes + more.aligned_nbytes,
                self._movement.fetched_blocks + more.fetched_blocks,
                self._movement.fetched_nbytes + more.fetched_nbytes,
            )

    def drift_reported(self, blocks: int, nbytes: int) -> None:
        """Take a report from a task that blocks were not where the plan has them."""
        self._count(Movement(fetched_blocks=blocks, fetched_nbytes=nbytes))
        with self._lock:
            self._drifted = True

    def moved(self) -> Movement:
        """Return what has crossed the network."""
        with self._lock:
            return self._movement

    def has_drifted(self) -> bool:
        """Whether a task has reported drift since the last plan."""
        with self._lock:
            return self._drifted

    def close(self) -> None:
        """Let go of the futures of blocks, copies and block lists."""
        for source in self._sources:
            source.forget()
        self._members = [_Member(member.grid, (), member.nbytes) for member in self._members]
        self._copies.clear()


def _scheduler(client: Client) -> Any:
    """Return the scheduler's remote procedures; they are not typed."""
    return client.scheduler


def _gone(blocks: Sequence[tuple[int, ...]], most: int = 5) -> BlockLostError:
    named = ", ".join(map(str, blocks[:most])) + (", ..." if len(blocks) > most else "")
    return BlockLostError(
        f"{len(blocks)} block(s) ({named}) were cancelled, dropped by client.restart(), or lost "
        "with the worker they were scattered to; make the collection and split it again",
        tuple(blocks),
    )


def _timed_out(blocks: int, timeout: float) -> BlockTimeoutError:
    return BlockTimeoutError(
        f"{blocks} block(s) did not get into any worker's memory within {timeout:g} s without "
        "progress: look at the scheduler for what they wait for; the limit is the Dask setting "
        "spliter.block-timeout"
    )


_listeners: weakref.WeakKeyDictionary[Client, weakref.WeakValueDictionary[str, DaskBlocks]]
_listeners = weakref.WeakKeyDictionary()
_listeners_lock = threading.Lock()


def _listen(client: Client, token: str, blocks: DaskBlocks) -> str:
    """Have reports of drift brought to `blocks`; return the topic to report on.

    One subscription per client, for its whole life.
    """
    topic = f"spliter-drift-{client.id}"
    with _listeners_lock:
        if client not in _listeners:
            listening: weakref.WeakValueDictionary[str, DaskBlocks] = weakref.WeakValueDictionary()
            _listeners[client] = listening

            def receive(event: tuple[float, Mapping[str, Any]]) -> None:
                _, report = event
                found = listening.get(report["split"])
                if found is not None:
                    found.drift_reported(report["blocks"], report["nbytes"])

            client.subscribe_topic(topic, receive)
        _listeners[client][token] = blocks
    return topic
