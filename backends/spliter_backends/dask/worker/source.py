"""What runs on a Dask worker: find a partition's blocks in its memory and iterate.

A partition arrives here once, as the value of a small task of its own, and later tasks
name that value; if it is short, the first tasks have it with them. A task that gets a
partition starts in :func:`run_at_location`, which checks that the blocks are still in this
worker's memory::

    all here ──────────────────────────────> run
    some not in any memory ─> leave the thread pool, wait until Dask has made them again
                              (or BlockLostError if nobody can)
    more of them elsewhere ─> re-pin this task there, Reschedule, tell the client
    a few elsewhere ────────> run; read those from the peer when their turn comes,
                              count them, tell the client

The client plans again before its next pass (see ``dask.blocks``); the future that the
user holds is the one Dask made for this task, whatever happens in between. Blocks are
never made dependencies of the task: that would cost an edge per block and pass, and
would need all of them in memory at once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from dask.sizeof import sizeof
from dask.typing import Key
from distributed import Reschedule, Worker, get_worker

from spliter import (
    BlockLostError,
    BlockTimeoutError,
    Partition,
    PartitionNotLocalError,
)
from spliter.backend import BlockSource, IntArray, check_rows, concatenate, log_event
from spliter_backends.dask.internals import call_scheduler
from spliter_backends.dask.worker.fetch import fetch, leave_thread_pool
from spliter_backends.dask.worker.materialize import limit_time, materialize_here
from spliter_backends.dask.worker.memory import (
    MISSING,
    holds_all,
    memory_for,
    nbytes_of,
    read_local,
)

FETCH_BATCH_NBYTES: Final = 32 * 2**20
"""Blocks read from a peer ahead of their turn: enough to pay for the round trip of many
small blocks, little enough not to matter in a worker's memory."""

MAX_MOVES: Final = 2
"""Times that one worker sends the same task elsewhere. Two workers that each see more of
a partition at the other (blocks in motion) would otherwise pass it on for ever."""

_moves: Counter[Key] = Counter()
_MAX_RECORDED_MOVES: Final = 10_000


class View(Protocol):
    """What tasks see in place of a partition's bare blocks; small to pickle."""

    def blocks(self, bare: Iterator[Any]) -> Iterator[Any]:
        """Yield what stands for each block, or for each tuple of aligned blocks."""
        ...

    def join(self, blocks: Iterator[Any]) -> Any:
        """Return such blocks as one."""
        ...


@dataclass(frozen=True, eq=False)
class WorkerSource:
    """The blocks of one partition, by their keys. This is what gets pickled.

    Parameters
    ----------
    members : tuple of tuple
        For each aligned collection the keys of its blocks, in the partition's order.
    nbytes : ndarray of int64, shape (n,)
        Bytes of each block of the first collection.
    positions : ndarray of int64, shape (n,)
        C-order position of each block in the first collection, for messages.
    grid_shape : tuple of int
        Blocks of that collection along each axis.
    topic, token : str
        Where, and as whom, to report drift to the client.
    client : str
        The client's name at the scheduler.
    materialized_key : str
        Key of the blocks as one, where a task asks for them by itself.
    timeout : float
        Seconds to wait for blocks without any progress.
    view : View, optional
        What tasks see in place of the blocks.
    """

    members: tuple[tuple[Key, ...], ...]
    nbytes: IntArray
    positions: IntArray
    grid_shape: tuple[int, ...]
    topic: str
    token: str
    client: str
    materialized_key: str
    timeout: float
    view: View | None = None

    def read(self) -> Iterator[Any]:
        """Yield the blocks if they are in the memory of the worker this runs on."""
        return self._reader().read()

    def materialized(self) -> Any:
        """Return the blocks as one if they are in the memory of the worker this runs on."""
        return self._reader().materialized()

    def materialize_blocks(self) -> Any:
        """Return the blocks as one, made anew; the body of a task."""
        worker = get_worker()
        reading = _PartitionReader(worker, self, fetch=True)
        reading.ensure_local(planned=worker.address)
        return reading.concatenated()

    def index(self, at: int) -> tuple[int, ...]:
        """Return the block index of one of the blocks."""
        return tuple(map(int, np.unravel_index(int(self.positions[at]), self.grid_shape)))

    def _reader(self) -> _PartitionReader:
        try:
            worker = get_worker()
        except ValueError:
            raise PartitionNotLocalError(
                "a partition can be iterated at its location only; give it to a function "
                "decorated with spliter.task, or to partition.submit(fn)"
            ) from None
        return _PartitionReader(worker, self, fetch=False)


@dataclass(frozen=True, eq=False)
class Materialized:
    """A partition and its blocks as one, on their way to a task.

    Parameters
    ----------
    partition : object
        The partition, or what stands for it.
    block : object
        Its blocks as one, or what stands for them.
    """

    partition: Any
    block: Any


def run_at_location(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a task function at a worker, its partitions bound to the worker's memory.

    Parameters
    ----------
    fn : callable
        The user's function.
    args, kwargs
        Its arguments.

    Returns
    -------
    object
        Whatever it returns; whatever it raises is raised.
    """
    worker = get_worker()
    bound = {name: _bind_argument(worker, value) for name, value in kwargs.items()}
    return fn(*[_bind_argument(worker, value) for value in args], **bound)


class _MaterializedSource:
    """A source whose blocks as one are there."""

    def __init__(self, source: BlockSource, block: Any) -> None:
        self._source = source
        self._block = block

    def read(self) -> Iterator[Any]:
        """Yield the blocks."""
        yield from self._source.read()

    def materialized(self) -> Any:
        """Return the blocks as one."""
        return self._block


def _bind_argument(worker: Worker, value: Any) -> Any:
    if isinstance(value, Materialized):
        partition = _bind(worker, value.partition, is_one=True)
        return partition.at_location(_MaterializedSource(partition.source, value.block))
    return _bind(worker, value) if isinstance(value, Partition) else value


def _bind(worker: Worker, partition: Partition, *, is_one: bool = False) -> Partition:
    source = partition.source
    if not isinstance(source, WorkerSource):
        return partition
    reading = _PartitionReader(worker, source, fetch=True)
    if not is_one:
        reading.ensure_local(planned=partition.location)
    elif worker.address != partition.location:
        reading.report()
    return partition.at_location(reading)


class _PartitionReader:
    """One task's view of a partition's blocks at one worker."""

    def __init__(self, worker: Worker, source: WorkerSource, *, fetch: bool) -> None:
        self._worker = worker
        self._source = source
        self._fetch_allowed = fetch

    def read(self) -> Iterator[Any]:
        """Yield the blocks in order, tuples where collections are aligned."""
        view = self._source.view
        return self._bare() if view is None else view.blocks(self._bare())

    def _bare(self) -> Iterator[Any]:
        source = self._source
        fetched: dict[Key, Any] = {}
        if len(source.members) == 1:
            for at, key in enumerate(source.members[0]):
                # Not held here: a block that has been used may go before the next one comes.
                yield self._block(at, key, fetched)
            return
        for at, keys in enumerate(zip(*source.members, strict=True)):
            yield self._row(at, keys, fetched)

    def _row(self, at: int, keys: Sequence[Key], fetched: dict[Key, Any]) -> tuple[Any, ...]:
        """Read the aligned blocks that go together."""
        blocks = tuple(self._block(at, key, fetched) for key in keys)
        if self._source.view is None:  # which knows itself what goes with what
            check_rows(blocks, self._source.index(at))
        return blocks

    def _block(self, at: int, key: Key, fetched: dict[Key, Any]) -> Any:
        block = read_local(self._worker, key)
        return self._read_remote(at, key, fetched) if block is MISSING else block

    def materialized(self) -> Any:
        """Return the blocks as one, made once for all tasks at this worker."""
        if len(self._source.nbytes) == 1:  # not kept a second time
            return self.concatenated()
        try:
            get_worker()
        except ValueError:  # a thread of the function's own: its task would hold the pool's thread
            return self.concatenated()
        return materialize_here(self._worker, self._source)

    def concatenated(self) -> Any:
        """Put the blocks into one."""
        source = self._source
        nbytes = sum(
            nbytes_of(self._worker, key) or int(source.nbytes[at]) for at, key in self._keys()
        )
        with memory_for(self._worker, nbytes):
            return (concatenate if source.view is None else source.view.join)(self.read())

    def _read_remote(self, at: int, key: Key, fetched: dict[Key, Any]) -> Any:
        """Read a block from another worker, a batch of those that follow with it."""
        if not self._fetch_allowed:
            raise PartitionNotLocalError(
                f"block {self._source.index(at)} is not in the memory of "
                f"{self._worker.address}; start the task with spliter.task or "
                "partition.submit, which run it where the partition's blocks are"
            )
        if key not in fetched:
            wanted = self._missing(start=at, most=FETCH_BATCH_NBYTES) or [key]
            if key not in wanted:
                wanted.insert(0, key)
            fetched.update(self._fetch(wanted))
        return fetched.pop(key)

    def _keys(self, start: int = 0) -> Iterator[tuple[int, Key]]:
        for at in range(start, len(self._source.nbytes)):
            for member in self._source.members:
                yield at, member[at]

    def _missing(self, start: int = 0, most: float = float("inf")) -> list[Key]:
        """Keys from a block on that are not in this worker's memory, up to some bytes."""
        data = self._worker.data
        found: list[Key] = []
        nbytes = 0
        for at, key in self._keys(start):
            if key not in data:
                found.append(key)
                nbytes += int(self._source.nbytes[at])
                if nbytes >= most:
                    break
        return found

    def ensure_local(self, planned: str) -> None:
        """Make sure, before the user's code starts, that this is the place to run it."""
        missing = not all(holds_all(self._worker, keys) for keys in self._source.members)
        if missing or self._worker.address != planned:
            self.report()
        if not missing:
            return
        keys = [key for _, key in self._keys()]
        holders = self._wait_in_memory(keys)
        here = self._worker.address
        running = {here, *self._query("ncores_running")}
        bytes_at: Counter[str] = Counter({here: 0})
        for at, key in self._keys():
            for address in holders[key]:
                if address in running:
                    bytes_at[address] += max(int(self._source.nbytes[at]), 1)
        best = min(bytes_at, key=lambda address: (-bytes_at[address], address != here, address))
        if best != here:
            self._move_task(best)

    def _move_task(self, address: str) -> None:
        """Have the scheduler start this task again at another worker.

        Should that worker go meanwhile, the client has the task released from the pin.
        """
        key = self._worker.get_current_task()
        if _moves[key] >= MAX_MOVES:
            return
        if len(_moves) > _MAX_RECORDED_MOVES:  # keys of tasks that never came back
            _moves.clear()
        _moves[key] += 1
        try:
            self._query("set_restrictions", worker={key: [address]})
        except KeyError:  # the task was cancelled meanwhile
            return
        log_event(
            "retry",
            "task %(task)s starts again at %(location)s, where its blocks are now",
            engine="dask",
            task=key,
            location=address,
            attempt=_moves[key],
        )
        raise Reschedule

    def _fetch(self, keys: list[Key]) -> dict[Key, Any]:
        """Read blocks from whoever has them, and count and report it."""
        deadline = time.monotonic() + self._source.timeout
        data: dict[Key, Any] = {}
        remote: list[Key] = []
        pause = 0.01
        while wanted := [key for key in keys if key not in data]:
            if time.monotonic() > deadline:
                raise self._timed_out(wanted)
            holders = self._wait_in_memory(wanted)
            with limit_time(self._source.timeout, self._worker):
                found, from_peers = fetch(self._worker, holders, self._source.timeout)
            data.update(found)
            remote += from_peers
            if len(found) < len(wanted):
                time.sleep(pause)
                pause = min(pause * 2, 0.5)
        if remote:
            self.report(len(remote), sum(sizeof(data[key]) for key in remote))
        return data

    def _wait_in_memory(self, keys: Collection[Key]) -> dict[Key, Sequence[str]]:
        """Wait until every key is in some worker's memory; return the holders.

        Leaves the worker's thread pool while waiting, so that the tasks that make lost
        blocks again can have the thread.
        """
        keys = list(keys)
        waited = False
        pause = 0.02
        fewest = len(keys) + 1
        deadline = 0.0
        while True:
            holders = self._query("who_has", keys=keys)
            absent = [key for key in keys if not holders.get(key)]
            if not absent:
                return {key: tuple(holders[key]) for key in keys}
            self._check_not_lost(absent)
            if len(absent) < fewest:
                fewest = len(absent)
                deadline = time.monotonic() + self._source.timeout
            elif time.monotonic() > deadline:
                raise self._timed_out(absent)
            if not waited:
                waited = True
                leave_thread_pool()
            time.sleep(pause)
            pause = min(pause * 1.5, 0.5)

    def _check_not_lost(self, keys: Sequence[Key]) -> None:
        states = self._query("get_task_status", keys=keys)
        gone = [key for key in keys if states[key] in (None, "forgotten")]
        erred = [key for key in keys if states[key] == "erred"]
        if gone:
            raise self._lost(
                gone,
                "are no longer known to the scheduler: they were cancelled, "
                "or scattered to a worker that has died. Make the collection and split it again",
            )
        if erred:
            raise self._lost(
                erred,
                "were lost with a worker, and making them again failed; "
                "client.recreate_error_locally on the collection shows the error",
            )

    def _query(self, what: str, **question: Any) -> dict[Key, Any]:
        """Ask the scheduler, from a task's thread."""
        timeout = self._source.timeout
        with limit_time(timeout, self._worker):
            answer: dict[Key, Any] = call_scheduler(self._worker, what, timeout, **question)
        return answer

    def _indexes_of(self, keys: Collection[Key]) -> tuple[tuple[int, ...], ...]:
        wanted = set(keys)
        found = {self._source.index(at): None for at, key in self._keys() if key in wanted}
        return tuple(found)

    def _lost(self, keys: Collection[Key], why: str) -> BlockLostError:
        blocks = self._indexes_of(keys)
        return BlockLostError(f"{_name(blocks)} {why}", blocks)

    def _timed_out(self, keys: Collection[Key]) -> BlockTimeoutError:
        states = sorted(set(self._query("get_task_status", keys=list(keys)).values()))
        return BlockTimeoutError(
            f"{_name(self._indexes_of(keys))} did not get into any worker's memory within "
            f"{self._source.timeout:g} s without progress (the scheduler has them as "
            f"{', '.join(states)}); the limit is the Dask setting spliter.block-timeout"
        )

    def report(self, blocks: int = 0, nbytes: int = 0) -> None:
        """Tell the client that the plan is out of date, and what had to be moved.

        Goes the same way as the message that the task has finished, and before it: by
        the time the user has the result, the client has the count.
        """
        self._worker.log_event(
            self._source.topic,
            {"split": self._source.token, "blocks": blocks, "nbytes": nbytes},
        )


def _name(blocks: tuple[tuple[int, ...], ...], most: int = 5) -> str:
    shown = ", ".join(map(str, blocks[:most])) + (", ..." if len(blocks) > most else "")
    return f"{len(blocks)} block(s) ({shown})"
