"""Source of a partition at a Dask worker: find its blocks in memory and iterate over them.

A task on a partition starts in ``worker.binding``, which has it checked that the blocks are in this
worker's memory::

    all here ──────────────────────────────> run
    some in no worker's memory ────────────> leave the thread pool, wait until Dask has recomputed
                                             them (BlockLostError if it cannot)
    most at another worker ────────────────> pin this task there, Reschedule, report to the client
    a few at another worker ───────────────> run, read those from the peer in batches, report

After a report, the client plans again before its next pass (``dask.blocks``). The user's future
stays the same. Blocks are not dependencies of the task: that would cost an edge per block and pass,
and would need all of them in memory at once.
"""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from dask.sizeof import sizeof
from dask.typing import Key
from distributed import Reschedule, Worker, get_worker

from spliter import BlockLostError, BlockTimeoutError
from spliter.backend import (
    BlockSource,
    Fetches,
    IntArray,
    Prefetch,
    blocks_of,
    check_rows,
    concatenate,
    log_event,
    not_local_error,
)
from spliter_backends._shared.block_names import name_blocks
from spliter_backends.dask.internals.worker import call_scheduler, has_spilled, in_memory
from spliter_backends.dask.waiting import Progress
from spliter_backends.dask.worker.fetch import fetch, leave_thread_pool
from spliter_backends.dask.worker.materialize import limit_time, materialize_here
from spliter_backends.dask.worker.memory import (
    MISSING,
    has_memory_to_spare,
    holds_all,
    memory_for,
    nbytes_of,
    read_local,
)

FETCH_BATCH_NBYTES: Final = 32 * 2**20
"""Bytes read from a peer at once: large compared with the cost of a round trip, small compared with
a worker's memory."""

MAX_MOVES: Final = 2
"""Maximum number of times that one worker moves the same task. While blocks move, two workers could
otherwise send it back and forth forever."""

_moves: Counter[Key] = Counter()
_MAX_RECORDED_MOVES: Final = 10_000


class View(Protocol):
    """Converts a partition's plain blocks to what its tasks yield; small to pickle."""

    def block(self, at: int, chunks: Sequence[Any]) -> Any:
        """Return the converted block for the partition's block `at` and those aligned with it."""
        ...

    def join(self, blocks: Iterator[Any]) -> Any:
        """Concatenate converted blocks."""
        ...


@dataclass(frozen=True, eq=False)
class WorkerSource(BlockSource):
    """Source of one partition, by the keys of its blocks; sent to the tasks.

    Parameters
    ----------
    members : tuple of tuple
        For each aligned collection the keys of its blocks, in the partition's order.
    nbytes : ndarray of int64, shape (n,)
        Bytes of each block of the first collection.
    positions : ndarray of int64, shape (n,)
        C-order position of each block in the first collection, for errors.
    grid_shape : tuple of int
        Number of blocks of that collection along each axis.
    topic, token : str
        Topic of drift reports, and the Split's token in them.
    client : str
        Id of the client at the scheduler.
    materialized_key : str
        Key of the concatenated blocks if a task requests them.
    timeout : float
        Maximum wait for blocks without progress, in seconds.
    view : View, optional
        Converts the blocks to what tasks yield.
    shared : bool, default False
        Whether several workers hold the blocks, and any of them may run the tasks.
    prefetch : "auto", False or int
        How many spilled blocks to read ahead.
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
    shared: bool = False
    prefetch: Prefetch = "auto"

    def read(self) -> Iterator[Any]:
        """Return an iterator over the blocks, which must be in this worker's memory."""
        return self._reader().read()

    def materialized(self) -> Any:
        """Return the concatenated blocks, which must be in this worker's memory."""
        return self._reader().materialized()

    def materialize_blocks(self) -> Any:
        """Concatenate the blocks; the body of a task."""
        worker = get_worker()
        reader = PartitionReader(worker, self, fetch=True)
        reader.ensure_local(planned=worker.address)
        return reader.concatenated()

    def index(self, at: int) -> tuple[int, ...]:
        """Return the block index of one of the blocks."""
        return tuple(map(int, np.unravel_index(int(self.positions[at]), self.grid_shape)))

    def _reader(self) -> PartitionReader:
        try:
            worker = get_worker()
        except ValueError:
            raise not_local_error("in the memory of a Dask worker") from None
        return PartitionReader(worker, self, fetch=False)


class PartitionReader(BlockSource):
    """Reads the blocks of a partition for one task at one worker."""

    def __init__(self, worker: Worker, source: WorkerSource, *, fetch: bool) -> None:
        self._worker = worker
        self._source = source
        self._fetch_allowed = fetch

    def read(self) -> Iterator[Any]:
        """Yield the blocks in order, tuples where collections are aligned."""
        fetched: dict[Key, Any] = {}
        for at in range(len(self._source.nbytes)):
            # No reference is kept: a used block may be released before the next one is read.
            yield self._finish(fetched, at, self._read_local(at))

    def fetches(self) -> Fetches | None:
        """Return the reads of the blocks; None if all of them are in memory."""
        source, memory = self._source, in_memory(self._worker)
        # In most passes nothing is on disk: then no time is spent on every block.
        if source.prefetch is False or not has_spilled(self._worker):
            return None
        if all(all(map(memory.__contains__, keys)) for keys in source.members):
            return None
        return Fetches(
            self._read_local,
            [
                sum(0 if key in memory else nbytes_of(self._worker, key) for key in keys)
                for keys in zip(*source.members, strict=True)
            ],
            source.prefetch,
            self._worker.address,
            functools.partial(has_memory_to_spare, self._worker),
            finish=functools.partial(self._finish, {}),
        )

    def _read_local(self, at: int) -> tuple[Any, ...]:
        """Read a block of each collection from this worker's memory or disk, as far as it is there.

        Runs in any thread.
        """
        return tuple(read_local(self._worker, member[at]) for member in self._source.members)

    def _finish(self, fetched: dict[Key, Any], at: int, blocks: tuple[Any, ...]) -> Any:
        """Return what the loop gets; blocks that are elsewhere are fetched with those after."""
        source = self._source
        if any(block is MISSING for block in blocks):
            blocks = tuple(
                self._read_remote(at, member[at], fetched) if block is MISSING else block
                for block, member in zip(blocks, source.members, strict=True)
            )
        if source.view is not None:
            return source.view.block(at, blocks)
        if len(blocks) == 1:
            return blocks[0]
        check_rows(blocks, source.index(at))
        return blocks

    def materialized(self) -> Any:
        """Return the concatenated blocks, made once for all tasks at this worker."""
        # No copy is kept of one block, nor at a worker that may not run the next task.
        if len(self._source.nbytes) == 1 or self._source.shared:
            return self.concatenated()
        try:
            self._worker.get_current_task()
        except KeyError:  # another thread: waiting here would occupy the task's own one
            return self.concatenated()
        return materialize_here(self._worker, self._source)

    def concatenated(self) -> Any:
        """Concatenate the blocks."""
        source = self._source
        nbytes = sum(
            nbytes_of(self._worker, key) or int(source.nbytes[at]) for at, key in self._keys()
        )
        with memory_for(self._worker, nbytes):
            return (concatenate if source.view is None else source.view.join)(blocks_of(self))

    def _read_remote(self, at: int, key: Key, fetched: dict[Key, Any]) -> Any:
        """Read a block from another worker, with a batch of the blocks after it."""
        if not self._fetch_allowed:
            raise not_local_error("partly at another Dask worker")
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
        """Return keys from a block on that are not in this worker's memory, up to some bytes."""
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
        """Move the task to another worker if that has more of the blocks; runs before user code."""
        missing = not all(holds_all(self._worker, keys) for keys in self._source.members)
        if missing or (self._worker.address != planned and not self._source.shared):
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
        """Make the scheduler restart this task at another worker.

        If that worker leaves, the scheduler plugin removes the pin.
        """
        key = self._worker.get_current_task()
        if _moves[key] >= MAX_MOVES:
            return
        if len(_moves) > _MAX_RECORDED_MOVES:  # keys of tasks that ran elsewhere
            _moves.clear()
        _moves[key] += 1
        try:
            self._query("set_restrictions", worker={key: [address]})
        except KeyError:  # the task was cancelled
            return
        log_event(
            "retry",
            "task %(task)s restarts at %(location)s, where its blocks are now",
            engine="dask",
            task=key,
            location=address,
            attempt=_moves[key],
        )
        raise Reschedule

    def _fetch(self, keys: list[Key]) -> dict[Key, Any]:
        """Read blocks from any worker, and report those that were transferred."""
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

        Leaves the worker's thread pool while waiting, so that tasks that recompute lost blocks can
        use the thread.
        """
        keys = list(keys)
        progress = Progress(self._source.timeout)
        while True:
            holders = self._query("who_has", keys=keys)
            absent = [key for key in keys if not holders.get(key)]
            if not absent:
                return {key: tuple(holders[key]) for key in keys}
            self._check_not_lost(absent)
            leave_thread_pool()
            if not progress.pause(len(absent)):
                raise self._timed_out(absent)

    def _check_not_lost(self, keys: Sequence[Key]) -> None:
        states = self._query("get_task_status", keys=keys)
        forgotten = [key for key in keys if states[key] in (None, "forgotten")]
        erred = [key for key in keys if states[key] == "erred"]
        if forgotten:
            raise self._lost(
                forgotten,
                "were cancelled, or lost with the worker they were scattered to; make the "
                "collection again and split it",
            )
        if erred:
            raise self._lost(
                erred,
                "were lost with a worker, and recomputing them failed; call "
                "client.recreate_error_locally on the collection to see the error",
            )

    def _query(self, what: str, **question: Any) -> dict[Key, Any]:
        """Query the scheduler from a task's thread."""
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
        return BlockLostError(f"{name_blocks(blocks)} {why}", blocks)

    def _timed_out(self, keys: Collection[Key]) -> BlockTimeoutError:
        states = sorted(set(self._query("get_task_status", keys=list(keys)).values()))
        return BlockTimeoutError(
            f"{name_blocks(self._indexes_of(keys))} not available: none became ready in "
            f"{self._source.timeout:g} s (states: {', '.join(states)}); see Dask's dashboard for "
            "the reason, or raise the Dask setting spliter.block-timeout"
        )

    def report(self, blocks: int = 0, nbytes: int = 0) -> None:
        """Report to the client that the plan is outdated, and what was transferred.

        Uses the connection of the message that the task has finished, and is sent before it: the
        client has the count before the user has the result.
        """
        self._worker.log_event(
            self._source.topic,
            {"split": self._source.token, "blocks": blocks, "nbytes": nbytes},
        )
