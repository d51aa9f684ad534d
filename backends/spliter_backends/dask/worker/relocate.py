"""Find the workers that hold a partition's blocks, and restart a task where most of them are.

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

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from dask.typing import Key
from distributed import Reschedule, Worker

from spliter import BlockLostError, BlockTimeoutError
from spliter.backend import IntArray, log_event
from spliter_backends._shared.collection_blocks import name_blocks
from spliter_backends._shared.waiting import Progress
from spliter_backends.dask.internals.worker import call_scheduler
from spliter_backends.dask.worker.fetch import leave_thread_pool
from spliter_backends.dask.worker.materialize import MaterializableSource, limit_time
from spliter_backends.dask.worker.memory import holds_all

MAX_MOVES: Final = 2
"""Maximum number of times that one worker moves the same task. While blocks move, two workers could
otherwise send it back and forth forever."""

_moves: Counter[Key] = Counter()
_MAX_RECORDED_MOVES: Final = 10_000


@dataclass(frozen=True, eq=False, kw_only=True)
class PartitionKeys(MaterializableSource):
    """The blocks of a partition by their keys; small to pickle.

    members: For each aligned collection the keys of its blocks, in the partition's order.
    nbytes (ndarray of int64, shape (n,)): Bytes of each block of the first collection.
    positions (ndarray of int64, shape (n,)): C-order position of each block in the first
        collection, for errors.
    grid_shape: Number of blocks of that collection along each axis.
    topic, token: Topic of drift reports, and the Split's token in them.
    """

    members: tuple[tuple[Key, ...], ...]
    nbytes: IntArray
    positions: IntArray
    grid_shape: tuple[int, ...]
    topic: str
    token: str

    def index(self, at: int) -> tuple[int, ...]:
        """Return the block index of one of the blocks."""
        return tuple(map(int, np.unravel_index(int(self.positions[at]), self.grid_shape)))

    def numbered_keys(self, start: int = 0) -> Iterator[tuple[int, Key]]:
        """Yield the number of each block from one on, with the keys of it and those aligned."""
        for at in range(start, len(self.nbytes)):
            for member in self.members:
                yield at, member[at]

    def indexes_of(self, keys: Collection[Key]) -> tuple[tuple[int, ...], ...]:
        """Return the block indexes of some keys, each once."""
        wanted = set(keys)
        return tuple({self.index(at): None for at, key in self.numbered_keys() if key in wanted})


def check_or_relocate(worker: Worker, blocks: PartitionKeys, planned: str) -> None:
    """Move the task, planned at a worker, to another one if that has more of the blocks.

    Runs before user code. Raises `Reschedule` if the task moves.
    """
    missing = not all(holds_all(worker, keys) for keys in blocks.members)
    if missing or (worker.address != planned and not blocks.shared):
        report(worker, blocks)
    if not missing:
        return
    holders = wait_in_memory(worker, blocks, [key for _, key in blocks.numbered_keys()])
    here = worker.address
    running = {here, *_query(worker, blocks, "ncores_running")}
    bytes_at: Counter[str] = Counter({here: 0})
    for at, key in blocks.numbered_keys():
        for address in holders[key]:
            if address in running:
                bytes_at[address] += max(int(blocks.nbytes[at]), 1)
    best = min(bytes_at, key=lambda address: (-bytes_at[address], address != here, address))
    if best != here:
        _restart_at(best, worker, blocks)


def _restart_at(address: str, worker: Worker, blocks: PartitionKeys) -> None:
    """Make the scheduler restart this task at another worker.

    If that worker leaves, the scheduler plugin removes the pin.
    """
    key = worker.get_current_task()
    if _moves[key] >= MAX_MOVES:
        return
    if len(_moves) > _MAX_RECORDED_MOVES:  # keys of tasks that ran elsewhere
        _moves.clear()
    _moves[key] += 1
    try:
        _query(worker, blocks, "set_restrictions", worker={key: [address]})
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


def wait_in_memory(
    worker: Worker, blocks: PartitionKeys, keys: Sequence[Key]
) -> dict[Key, Sequence[str]]:
    """Wait until every key is in some worker's memory; return the holders.

    Leaves the worker's thread pool while waiting, so that tasks that recompute lost blocks can use
    the thread. Raises `BlockLostError` or `BlockTimeoutError` if blocks are lost, or do not become
    ready in time.
    """
    progress = Progress(blocks.timeout)
    while True:
        holders = _query(worker, blocks, "who_has", keys=list(keys))
        absent = [key for key in keys if not holders.get(key)]
        if not absent:
            return {key: tuple(holders[key]) for key in keys}
        _check_not_lost(worker, blocks, absent)
        leave_thread_pool()
        if not progress.pause(len(absent)):
            raise timed_out(worker, blocks, absent)


def _check_not_lost(worker: Worker, blocks: PartitionKeys, keys: Sequence[Key]) -> None:
    states = _query(worker, blocks, "get_task_status", keys=keys)
    forgotten = [key for key in keys if states[key] in (None, "forgotten")]
    lost = forgotten or [key for key in keys if states[key] == "erred"]
    if lost:
        why = (
            "were cancelled, or lost with the worker they were scattered to; make the collection "
            "again and split it"
            if forgotten
            else "were lost with a worker, and recomputing them failed; call "
            "client.recreate_error_locally on the collection to see the error"
        )
        indexes = blocks.indexes_of(lost)
        raise BlockLostError(f"{name_blocks(indexes)} {why}", indexes)


def timed_out(worker: Worker, blocks: PartitionKeys, keys: Sequence[Key]) -> BlockTimeoutError:
    """Return the error for blocks that were not ready in time."""
    states = _query(worker, blocks, "get_task_status", keys=list(keys)).values()
    return BlockTimeoutError(
        f"{name_blocks(blocks.indexes_of(keys))} not available: none became ready in "
        f"{blocks.timeout:g} s (states: {', '.join(sorted(set(states)))}); see Dask's dashboard "
        "for the reason, or raise the Dask setting spliter.block-timeout"
    )


def _query(worker: Worker, blocks: PartitionKeys, what: str, /, **arguments: Any) -> dict[Key, Any]:
    """Query the scheduler from a task's thread."""
    with limit_time(blocks.timeout, worker):
        answer: dict[Key, Any] = call_scheduler(worker, what, blocks.timeout, **arguments)
    return answer


def report(worker: Worker, blocks: PartitionKeys, count: int = 0, nbytes: int = 0) -> None:
    """Report to the client that the plan is outdated, and how many blocks were transferred.

    Uses the connection of the message that the task has finished, and is sent before it: the
    client has the count before the user has the result.
    """
    worker.log_event(blocks.topic, {"split": blocks.token, "blocks": count, "nbytes": nbytes})
