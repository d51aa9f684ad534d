"""Read blocks that are at other Dask workers, from within a task."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import dask
from dask._task_spec import List, Task, TaskRef
from dask.sizeof import sizeof
from dask.typing import Key
from distributed import Client, Future, Worker, get_client, secede
from distributed.utils import sync

from spliter import BlockLostError
from spliter_backends.dask import internals
from spliter_backends.dask.worker.memory import can_take


def fetch(
    worker: Worker, holders: Mapping[Key, Sequence[str]], timeout: float
) -> tuple[dict[Key, Any], list[Key]]:
    """Read keys, in a task's thread: those held here from memory, the others from peers.

    Parameters
    ----------
    worker : distributed.Worker
        The one that this runs on.
    holders : mapping of key to sequence of str
        Addresses of the workers that are said to have each.
    timeout : float
        Seconds.

    Returns
    -------
    data : dict of key to object
        What was got. What could not be got is left out; the caller asks again who has it.
    remote : list of key
        Which of it came from peers.

    Raises
    ------
    BlockLostError
        If one of them arrived and cannot be read.
    TimeoutError
        If it takes longer.
    """
    if not internals.peer_reads.usable(worker):
        return _copied_by_a_task(worker, list(holders), timeout)
    read: tuple[dict[Key, Any], list[Key]] = sync(
        worker.loop, _gather, worker, holders, callback_timeout=timeout
    )
    return read


def _copied_by_a_task(
    worker: Worker, keys: list[Key], timeout: float
) -> tuple[dict[Key, Any], list[Key]]:
    """Have Dask copy blocks, as it does with what a task needs."""
    leave_thread_pool()  # the task needs the thread
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
    except Exception:  # noqa: BLE001 - of a block that is lost: the caller finds out which
        return {}, []


def local_result(client: Client, future: Future[Any], timeout: float) -> Any:
    """Wait for a task at this worker; return its result, the very object that the worker has.

    Parameters
    ----------
    client : distributed.Client
        The worker's own.
    future : distributed.Future
        Of the task.
    timeout : float
        Seconds.

    Returns
    -------
    object
        The result; an error of the task is raised.
    """
    error = future.exception(timeout)
    if error is not None:
        raise error
    return client.gather(future)  # unlike `result` it looks into the worker's memory first


def leave_thread_pool() -> None:
    """Give this task's thread back, if it has not been given back already."""
    # A thread that is not the pool's own: without worker or pool, or no longer one of its threads.
    with suppress(AttributeError, KeyError, ValueError):
        secede()


def identity(value: Any) -> Any:
    """Return the argument; run where a block is wanted, it leaves a copy there."""
    return value


async def _gather(
    worker: Worker, holders: Mapping[Key, Sequence[str]]
) -> tuple[dict[Key, Any], list[Key]]:
    data = {key: worker.data[key] for key in holders if key in worker.data}
    remote: dict[Key, Collection[str]] = {
        key: [address for address in held if address != worker.address]
        for key, held in holders.items()
        if key not in data
    }
    remote = {key: held for key, held in remote.items() if held}
    found, failed, silent = await internals.read_from_peers(worker, remote)
    if failed:
        raise BlockLostError(f"blocks {failed} could not be deserialized on {worker.address}")
    claimed: dict[str, list[Key]] = {}
    for key in holders.keys() - data.keys() - found.keys():
        for address in holders[key]:
            claimed.setdefault(address, []).append(key)
    for address in claimed.keys() - set(silent):
        # `replicate` and `rebalance` beside the active memory manager leave such entries behind
        # (distributed 2026.8): the worker has dropped the key, the scheduler still adds it as a
        # holder. Nothing in Dask corrects them, and a lost key is only made again once no holder
        # is listed.
        await internals.report_missing_at(worker, address, claimed[address])
    if found:
        running = await worker.scheduler.ncores_running()
        _keep(worker, {key: found[key] for key in found if running.keys().isdisjoint(holders[key])})
    return {**data, **found}, list(found)


def _keep(worker: Worker, data: Mapping[Key, Any]) -> None:
    """Make copies of blocks a worker's own, on its event loop.

    Done with blocks that only paused workers hold, so that each is copied once and not in every
    pass. To Dask these are replicas; its memory manager removes those at paused workers first.
    """
    data = {key: value for key, value in data.items() if key not in worker.state.tasks}
    if data and can_take(worker, sum(map(sizeof, data.values()))):
        internals.register_copies(worker, data)
