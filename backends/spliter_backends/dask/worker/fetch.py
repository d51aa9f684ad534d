"""Read blocks from other Dask workers inside a task."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import dask
from dask._task_spec import List, Task, TaskRef
from dask.sizeof import sizeof
from dask.typing import Key
from distributed import Client, Future, Worker, get_client, secede
from distributed.utils import sync

from spliter import BlockLostError
from spliter_backends.dask.internals import worker as internals
from spliter_backends.dask.worker.memory import can_take
from spliter_backends.dask.worker.packing import read_packed


def fetch(
    worker: Worker, holders: Mapping[Key, Sequence[str]], timeout: float
) -> tuple[dict[Key, Any], list[Key]]:
    """Read keys in a task's thread: local ones from memory, others from the peers that hold them.

    Returns the values, without those that could not be read (query their holders again), and the
    keys that were at peers. Raises `BlockLostError` if a value cannot be deserialized.
    """
    if not internals.peer_reads.usable(worker):
        return _copy_by_task(worker, list(holders), timeout)
    read: tuple[dict[Key, Any], list[Key]] = sync(
        worker.loop, _gather, worker, holders, callback_timeout=timeout
    )
    return read


def _copy_by_task(
    worker: Worker, keys: list[Key], timeout: float
) -> tuple[dict[Key, Any], list[Key]]:
    """Make Dask copy blocks, as dependencies of a task."""
    leave_thread_pool()  # the copying task needs a thread
    remote = [key for key in keys if key not in worker.data]
    name = f"spliter-fetched-{uuid.uuid4().hex}"
    graph = {name: Task(name, identity, List(*map(TaskRef, keys)))}
    client = get_client()
    with dask.annotate(workers=[worker.address], allow_other_workers=True):
        future = client.get(graph, name, sync=False)
    try:
        return dict(zip(keys, local_result(client, future, timeout), strict=True)), remote
    except TimeoutError:
        raise
    except Exception:  # noqa: BLE001 - a block is lost; the caller finds out which
        return {}, []


def local_result(client: Client, future: Future[Any], timeout: float) -> Any:
    """Wait for a task at this worker; return its result, the worker's own object."""
    error = future.exception(timeout)
    if error is not None:
        raise error
    return client.gather(future)  # unlike `result`, it reads the worker's memory first


def leave_thread_pool() -> None:
    """Return this task's thread to the worker's pool, unless that has been done."""
    # Raised in threads that do not belong to a pool, or no longer do.
    with suppress(AttributeError, KeyError, ValueError):
        secede()


def identity(value: Any) -> Any:
    """Return the argument; as a task at another worker, it makes a copy there."""
    return value


async def _gather(
    worker: Worker, holders: Mapping[Key, Sequence[str]]
) -> tuple[dict[Key, Any], list[Key]]:
    data = {key: worker.data[key] for key in holders if key in worker.data}
    remote = {
        key: [address for address in held if address != worker.address]
        for key, held in holders.items()
        if key not in data
    }
    remote = {key: held for key, held in remote.items() if held}
    found, silent = await read_packed(worker, remote)
    rest = {key: set(held) - silent for key, held in remote.items() if key not in found}
    others, failed, silent_too = await internals.read_from_peers(worker, rest)
    found |= others
    if failed:
        raise BlockLostError(f"blocks {failed} could not be deserialized on {worker.address}")
    claimed: dict[str, list[Key]] = {}
    for key in holders.keys() - data.keys() - found.keys():
        for address in holders[key]:
            claimed.setdefault(address, []).append(key)
    for address in claimed.keys() - silent.union(silent_too):
        # `replicate` and `rebalance` may leave wrong holders behind if the active memory manager
        # runs (distributed 2026.8): the worker has dropped the key, but the scheduler lists it.
        # Dask never corrects this, and recomputes a lost key only when it has no holder.
        if address == worker.address:
            internals.report_missing(claimed[address], worker)
            continue
        with suppress(OSError):  # it has left, which the scheduler finds out by itself
            await internals.run_at(worker, address, internals.report_missing, keys=claimed[address])
    if found:
        running = await worker.scheduler.ncores_running()
        _keep(worker, {key: found[key] for key in found if running.keys().isdisjoint(holders[key])})
    return {**data, **found}, list(found)


def _keep(worker: Worker, data: Mapping[Key, Any]) -> None:
    """Register copies of blocks at a worker; runs on its event loop.

    Used for blocks that only paused workers hold, so that each is copied once and not in every
    pass. Dask's memory manager removes the replicas at paused workers first.
    """
    data = {key: value for key, value in data.items() if key not in worker.state.tasks}
    if data and can_take(worker, sum(map(sizeof, data.values()))):
        internals.register_copies(worker, data)
