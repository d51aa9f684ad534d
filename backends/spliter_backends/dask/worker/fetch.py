"""Read blocks that are at other Dask workers, from within a task."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dask.sizeof import sizeof
from dask.typing import Key
from distributed import Worker
from distributed.protocol.pickle import dumps
from distributed.utils_comm import gather_from_workers

from spliter import BlockLostError
from spliter_backends.dask.worker.memory import can_take


async def gather_from_holders(
    worker: Worker, holders: Mapping[Key, Sequence[str]]
) -> tuple[dict[Key, Any], list[Key]]:
    """Read keys, on the event loop: those held here from memory, the others from peers.

    Parameters
    ----------
    worker : distributed.Worker
        The one that this runs on.
    holders : mapping of key to sequence of str
        Addresses of the workers that are said to have each.

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
    """
    data = {key: worker.data[key] for key in holders if key in worker.data}
    remote: dict[Key, Collection[str]] = {
        key: [address for address in held if address != worker.address]
        for key, held in holders.items()
        if key not in data
    }
    remote = {key: held for key, held in remote.items() if held}
    found, _, failed, silent = await gather_from_workers(remote, rpc=worker.rpc, who=worker.address)
    if failed:
        raise BlockLostError(f"blocks {failed} could not be deserialized on {worker.address}")
    claimed: dict[str, list[Key]] = {}
    for key in holders.keys() - data.keys() - found.keys():
        for address in holders[key]:
            claimed.setdefault(address, []).append(key)
    for address in claimed.keys() - set(silent):
        await _disown(worker, address, claimed[address])
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
    if not data or not can_take(worker, sum(map(sizeof, data.values()))):
        return
    worker.update_data(dict(data))
    stimulus = f"spliter-keep-{time.time()}"
    worker.batched_send({"op": "add-keys", "keys": list(data), "stimulus_id": stimulus})


async def _disown(worker: Worker, address: str, keys: list[Key]) -> None:
    """Have a worker tell the scheduler that it does not have keys it is listed for.

    ``replicate`` and ``rebalance`` beside the active memory manager leave such entries
    behind (distributed 2026.8): the worker has dropped the key, the scheduler still adds
    it as a holder. Nothing in Dask corrects them, and a lost key is only made again once
    no holder is listed.
    """
    if address == worker.address:
        say_not_here(keys, worker)
        return
    try:
        await worker.rpc(address).run(function=dumps(say_not_here), kwargs=dumps({"keys": keys}))
    except OSError:  # it is gone; the scheduler will find out by itself
        return


def say_not_here(keys: Sequence[Key], dask_worker: Worker) -> None:
    """Run on a worker's event loop: disown those of `keys` that it does not have.

    Parameters
    ----------
    keys : sequence of key
        Keys the scheduler lists this worker for.
    dask_worker : distributed.Worker
        Given by Dask.
    """
    for key in keys:
        if key not in dask_worker.data:
            dask_worker.batched_send(
                {
                    "op": "release-worker-data",
                    "key": key,
                    "stimulus_id": f"spliter-not-here-{time.time()}",
                }
            )
