"""Undocumented Dask in workers: threads, memory, and reads from other workers."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import dask
from dask.typing import Key
from distributed import Worker, get_client
from distributed.protocol.pickle import dumps
from distributed.spill import SpillBuffer
from distributed.utils import sync

from spliter_backends.dask.features import Feature, takes


def _pool_threads_are_known() -> bool:
    from distributed.threadpoolexecutor import ThreadPoolExecutor, thread_state

    with ThreadPoolExecutor(1) as pool:
        return bool(pool.submit(lambda: thread_state.proceed is True).result())


pool_threads = Feature(
    "pool threads",
    "a task that calls split() without worker_client() may deadlock",
    _pool_threads_are_known,
)


def holds_pool_thread() -> bool:
    """Return whether this thread runs a task and has not left the worker's pool."""
    if not pool_threads.usable():
        return False
    from distributed.threadpoolexecutor import thread_state

    return bool(getattr(thread_state, "proceed", False))


# --- a worker's memory ---------------------------------------------------------------------


def _spill_buffer_is_known(worker: Any) -> bool:
    data, fast = worker.data, worker.data.fast
    return (
        isinstance(fast.d, dict)
        and isinstance(fast.total_weight + fast.n, int | float)
        and isinstance(data.slow.data.weight_by_key, dict)
        and worker.monitor.get_process_memory() > 0
    )


spill_buffer = Feature("spill buffer", "spilled blocks return to memory", _spill_buffer_is_known)


def _has_known_buffer(worker: Worker) -> bool:
    return isinstance(worker.data, SpillBuffer) and spill_buffer.usable(worker)


def in_memory(worker: Worker) -> Any:
    """Return the fastest mapping of the values in a worker's memory.

    The spill buffer measures accesses and is 8 times slower than its `fast` mapping, which tracks
    the order of use, for when values may be spilled, and is 10 times slower than its dictionary.
    """
    if not _has_known_buffer(worker):
        return worker.data
    fast = worker.data.fast  # type: ignore[attr-defined]
    return fast.d if 2 * fast.total_weight < fast.n else fast


def has_spilled(worker: Worker) -> bool:
    """Return whether values of a worker are on disk, as far as its buffer is known."""
    return _has_known_buffer(worker) and len(worker.data.slow) > 0  # type: ignore[attr-defined]


def read_spilled(worker: Worker, key: Key) -> Any:
    """Read a value that may be on disk; return it to memory only if there is room."""
    data: Any = worker.data
    if not _has_known_buffer(worker):
        return data[key]
    nbytes: int = data.slow.data.weight_by_key[key].memory
    has_room = data.fast.total_weight + nbytes <= data.fast.n and is_below_target(worker, nbytes)
    return data[key] if has_room else data.slow[key]


memory_limits = Feature(
    "memory limits",
    "Dask kills workers that run out of memory",
    lambda manager: (
        {"memory_limit", *(f"memory_{name}_fraction" for name in ("target", "spill", "pause"))}
        <= vars(manager).keys()
    ),
)


def is_below_target(worker: Worker, nbytes: int = 0) -> bool:
    """Return whether a worker's process with so many bytes more stays below its memory target.

    Dask also counts memory that it does not manage, and spills down to the target.
    """
    manager: Any = getattr(worker, "memory_manager", None)
    if not memory_limits.usable(manager) or not manager.memory_limit:
        return True
    most = manager.memory_target_fraction or manager.memory_spill_fraction or 1
    return bool(worker.monitor.get_process_memory() + nbytes <= manager.memory_limit * most)


def memory_limit(worker: Worker) -> float | None:
    """Return the bytes of memory above which Dask pauses or kills a worker."""
    manager: Any = getattr(worker, "memory_manager", None)
    if not memory_limits.usable(manager) or not manager.memory_limit:
        return None
    ended = dask.config.get("distributed.worker.memory.terminate")
    return float(manager.memory_limit * (manager.memory_pause_fraction or ended or 1))


# --- a worker and the others ---------------------------------------------------------------


def _scheduler_calls_are_known(worker: Any) -> bool:
    from distributed.core import PooledRPCCall

    return isinstance(worker.scheduler, PooledRPCCall)


scheduler_calls = Feature(
    "scheduler calls",
    "tasks query the scheduler through the worker's client",
    _scheduler_calls_are_known,
)


def call_scheduler(worker: Worker, name: str, timeout: float, /, **arguments: Any) -> Any:
    """Call a method of the scheduler, by its name in messages, in a task's thread."""
    if scheduler_calls.usable(worker):
        call = getattr(worker.scheduler, name)
        return sync(worker.loop, call, callback_timeout=timeout, **arguments)
    client, options = get_client(), {"asynchronous": False, "callback_timeout": timeout}
    return client.sync(client.run_on_scheduler, _call_method, name, arguments, **options)


def _call_method(name: str, arguments: Mapping[str, Any], dask_scheduler: Any) -> Any:
    """Call a method by name; runs on the scheduler."""
    method = getattr(dask_scheduler, name, None) or getattr(dask_scheduler, f"get_{name}")
    return method(**arguments)


def _peer_reads_are_known(worker: Any) -> bool:
    from distributed.utils_comm import gather_from_workers

    return (
        takes(gather_from_workers, "who_has", "rpc", "who")
        and inspect.iscoroutinefunction(gather_from_workers)
        and callable(worker.rpc)
        and callable(worker.handlers["run"])
        and isinstance(
            worker.transfer_outgoing_count_total + worker.transfer_outgoing_bytes_total, int
        )
        and takes(worker.batched_send, "msg")
        and takes(worker.update_data, "data")
        and isinstance(worker.state.tasks, dict)
    )


peer_reads = Feature("peer reads", "a Dask task copies blocks", _peer_reads_are_known)


async def read_from_peers(
    worker: Any, holders: Mapping[Key, Collection[str]]
) -> tuple[dict[Key, Any], list[Key], list[str]]:
    """Read values from other workers; also return unreadable keys and silent workers."""
    from distributed.utils_comm import gather_from_workers

    found, _, failed, silent = await gather_from_workers(
        holders, rpc=worker.rpc, who=worker.address
    )
    return found, failed, silent


def register_copies(worker: Any, data: Mapping[Key, Any]) -> None:
    """Register copies of blocks as replicas at a worker; runs on its event loop."""
    worker.update_data(dict(data))
    worker.batched_send({"op": "add-keys", "keys": list(data), "stimulus_id": _stimulus("keep")})


async def run_at(worker: Any, address: str, fn: Callable[..., Any], **arguments: Any) -> Any:
    """Call a function on another worker's event loop; return None if it raises an error."""
    answer = await worker.rpc(address).run(function=dumps(fn), kwargs=dumps(arguments))
    return answer.get("result")


def count_transfer(worker: Any, nbytes: int) -> None:
    """Count a message to another worker in Dask's metrics, as Dask counts its own."""
    worker.transfer_outgoing_count_total += 1
    worker.transfer_outgoing_bytes_total += nbytes


def report_missing(keys: Sequence[Key], dask_worker: Any) -> None:
    """Report those of `keys` that a worker does not have; runs on its event loop."""
    message = {"op": "release-worker-data", "stimulus_id": _stimulus("not-here")}
    for key in keys:
        if key not in dask_worker.data:
            dask_worker.batched_send(message | {"key": key})


def _stimulus(name: str) -> str:
    return f"spliter-{name}-{time.time()}"
