"""Inject faults into a Dask cluster, from the fault injector's thread."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from distributed import Client, Future
from distributed.core import Status

from tests.chaos.cases import Fault
from tests.chaos.dask_workers import WorkerHandle
from tests.chaos.proxy import Proxy
from tests.chaos.runner import NoTargetError, pick

if TYPE_CHECKING:
    from tests.chaos.dask_cluster import DaskCluster

FAULT_SECONDS: Final = 5.0
"""For one fault to be done; the worker that it needs may be gone, or frozen."""

COPY_SECONDS: Final = 1.0
"""For values to be copied; those that take longer stay where they were."""

LINK_DELAY: Final = 0.1
"""Seconds by which slow links delay each chunk."""


class DaskFaults:
    """One method per kind of fault; for lasting ones it registers how to recover."""

    def __init__(self, cluster: DaskCluster) -> None:
        self._cluster = cluster
        # Not the program's client: its connection is one of the things that break.
        self._own: Any = Client(cluster.cluster.scheduler_address, set_as_default=False, timeout=30)
        self._recoveries: dict[int, Callable[[], object]] = {}

    def inject(self, fault: Fault) -> str:
        return str(getattr(self, f"_{fault.kind.replace('-', '_')}")(fault))

    def recover(self, fault: Fault) -> None:
        end = self._recoveries.pop(id(fault), None)
        # The worker may be gone by now.
        with contextlib.suppress(OSError, TimeoutError):
            if end is not None:
                end()

    def at_workers(self) -> str:
        """Return the unfinished tasks and the stacks of each worker."""
        lines = []
        for address in sorted(self._cluster.scheduler.workers):
            try:
                lines.append(f"{address}: {self._run(address, unfinished)[address]}")
            except (OSError, TimeoutError) as error:
                lines.append(f"{address}: {error!r}")
        return "\n".join(lines)

    def close(self) -> None:
        for end in self._recoveries.values():
            with contextlib.suppress(OSError, TimeoutError):
                end()
        self._own.close(timeout=5)

    # --- workers ---

    def _worker(self, fault: Fault) -> tuple[WorkerHandle, str]:
        running = [worker for worker in self._cluster.workers if worker.pid is not None]
        there = {worker.address: worker for worker in running if worker.address is not None}
        address = pick(fault, sorted(there.keys() & set(self._cluster.scheduler.workers)))
        return there[address], address

    def _keep_one(self) -> None:
        """Start another worker before the last one goes, unless a nanny does it."""
        if not self._cluster.nannies and len(self._cluster.scheduler.workers) < 2:
            self._sync(self._cluster.start_worker)

    def _kill(self, fault: Fault) -> str:
        self._keep_one()
        worker, address = self._worker(fault)
        worker.signal(signal.SIGKILL)
        return address

    def _freeze(self, fault: Fault) -> str:
        worker, address = self._worker(fault)
        worker.signal(signal.SIGSTOP)
        self._recoveries[id(fault)] = functools.partial(worker.signal, signal.SIGCONT)
        return address

    def _pause(self, fault: Fault) -> str:
        _, address = self._worker(fault)
        self._run(address, set_status, "paused")
        self._recoveries[id(fault)] = functools.partial(self._run, address, set_status, "running")
        return address

    def _spill(self, fault: Fault) -> str:
        _, address = self._worker(fault)
        self._run(address, spill_all)
        return address

    def _retire(self, fault: Fault) -> str:
        self._keep_one()
        _, address = self._worker(fault)
        retire = self._cluster.scheduler.retire_workers
        self._sync(functools.partial(retire, [address], close_workers=True, remove=True))
        return address

    def _add(self, fault: Fault) -> Any:
        return self._sync(self._cluster.start_worker).address

    # --- blocks ---

    def _rebalance(self, fault: Fault) -> Any:
        scheduler = self._cluster.scheduler
        return self._sync(functools.partial(scheduler.rebalance, self._cluster.keys))

    def _replicate(self, fault: Fault) -> Any:
        scheduler = self._cluster.scheduler
        return self._sync(functools.partial(scheduler.replicate, self._cluster.keys, n=2))

    def _move(self, fault: Fault) -> str:
        workers = sorted(self._cluster.scheduler.workers)
        if len(workers) < 2:
            raise NoTargetError("there is only one worker")
        source = pick(fault, workers)
        target = workers[(workers.index(source) + 1) % len(workers)]
        moved = self._sync(functools.partial(move_all, self._cluster.scheduler, source, target))
        return f"{moved} values from {source} to {target}"

    def _cancel_blocks(self, fault: Fault) -> str:
        keys = self._cluster.keys
        chosen = {pick(fault, keys), keys[fault.target // 7 % len(keys)]}
        return self._cancel([key for key in keys if key in chosen])

    def _cancel_tasks(self, fault: Fault) -> str:
        deadline = time.monotonic() + 2.0
        while time.monotonic() < deadline:
            with contextlib.suppress(RuntimeError):  # the set changes meanwhile
                others = set(self._cluster.client.futures) - set(self._cluster.keys)
                if others:
                    return self._cancel([pick(fault, sorted(others, key=str))])
        raise NoTargetError("there is no task")

    def _cancel(self, keys: list[Any]) -> str:
        client = self._cluster.client
        futures: list[Any] = [Future(key, client) for key in list(client.futures) if key in keys]
        if not futures:
            raise NoTargetError("the program holds none of them")
        client.cancel(futures, asynchronous=False)
        return ", ".join(map(str, keys))

    # --- connections ---

    def _cut_client(self, fault: Fault) -> Any:
        client = self._cluster.client
        client.loop.add_callback(client.scheduler_comm.comm.abort)
        return client.id

    def _slow_links(self, fault: Fault) -> str:
        with self._proxy(fault) as (proxy, address):
            proxy.delay = LINK_DELAY
        return address

    def _cut_links(self, fault: Fault) -> str:
        with self._proxy(fault) as (proxy, address):
            self._sync_now(proxy.cut)
        return address

    @contextlib.contextmanager
    def _proxy(self, fault: Fault) -> Iterator[tuple[Proxy, str]]:
        worker, address = self._worker(fault)
        assert worker.proxy is not None, "cases with nannies have no such fault"
        yield worker.proxy, address
        self._recoveries[id(fault)] = functools.partial(self._sync_now, worker.proxy.mend)

    # --- calls ---

    def _sync(self, coroutine: Callable[[], Awaitable[Any]]) -> Any:
        """Run a coroutine on the scheduler's event loop, for at most FAULT_SECONDS."""

        async def bounded() -> Any:
            return await asyncio.wait_for(coroutine(), FAULT_SECONDS)

        return self._cluster.cluster.sync(bounded)

    def _sync_now(self, fn: Callable[[], None]) -> None:
        async def call() -> None:
            fn()

        self._sync(call)

    def _run(self, address: str, fn: Callable[..., Any], *args: Any) -> Any:
        own = self._own
        return own.sync(
            functools.partial(own._run, fn, *args, workers=[address]),
            asynchronous=False,
            callback_timeout=FAULT_SECONDS,
        )


def set_status(status: str, dask_worker: Any) -> None:
    """Pause or resume a worker, unless it is closing."""
    if dask_worker.status in {Status.running, Status.paused}:
        dask_worker.status = Status[status]


def spill_all(dask_worker: Any) -> None:
    """Write all data of a worker to disk."""
    data = dask_worker.data
    while len(data.fast) and data.evict() != -1:
        pass


def unfinished(dask_worker: Any) -> str:
    tasks = [
        f"{it.key} {it.state} (needs {[f'{d.key} {d.state}' for d in it.waiting_for_data][:3]})"
        for it in dask_worker.state.tasks.values()
        if it.state not in {"memory", "released"}
    ]
    stacks = dask_worker.get_call_stack()
    return f"{dask_worker.status.name}, {tasks}, {stacks}"


async def move_all(scheduler: Any, source: str, target: str) -> int:
    """Move all data of a worker to another, as the active memory manager does with some.

    Returns how many values were copied, and dropped at the source.
    """
    worker = scheduler.workers[source]
    tasks = [it for it in worker.has_what if not _is_needed(it, worker)]
    scheduler.request_acquire_replicas(target, [it.key for it in tasks], stimulus_id="chaos-move")
    deadline = time.monotonic() + COPY_SECONDS
    moved = 0
    while tasks and time.monotonic() < deadline:
        await asyncio.sleep(0.002)
        there, here = scheduler.workers.get(source), scheduler.workers.get(target)
        copied = {it for it in tasks if it.who_has and {there, here} <= it.who_has}
        if copied:  # at once: the memory manager would drop one or the other
            keys = [it.key for it in copied if not _is_needed(it, there)]
            scheduler.request_remove_replicas(source, keys, stimulus_id="chaos-move")
            moved += len(keys)
        tasks = [it for it in tasks if it not in copied and there in (it.who_has or ())]
    return moved


def _is_needed(task: Any, worker: Any) -> bool:
    """Whether a worker runs a task that uses a value: Dask never drops such a value there."""
    return any(waiter.processing_on is worker for waiter in task.waiters or ())
