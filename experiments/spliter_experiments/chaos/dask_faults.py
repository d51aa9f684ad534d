"""The faults that a Dask cluster suffers, from the adversary's thread."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from distributed import Client
from distributed.core import Status

from spliter_experiments.chaos.arena import NothingToStrikeError, pick
from spliter_experiments.chaos.cases import Fault
from spliter_experiments.chaos.dask_workers import Member

if TYPE_CHECKING:
    from spliter_experiments.chaos.dask_arena import DaskArena

FAULT_SECONDS: Final = 5.0
"""For one fault to be done; what it asks may be gone, or frozen."""

COPY_SECONDS: Final = 1.0
"""For copies of values to be made; what takes longer stays where it was."""

DELAY: Final = 0.1
"""Seconds by which slow links hold back each piece."""


class DaskFaults:
    """Does faults to the cluster of an arena.

    Parameters
    ----------
    arena : DaskArena
        The cluster.
    """

    def __init__(self, arena: DaskArena) -> None:
        self._arena = arena
        # Not the program's: its connection is one of the things that break.
        self._own: Any = Client(arena.cluster.scheduler_address, set_as_default=False, timeout=30)
        self._lasting: dict[int, Callable[[], object]] = {}
        self._kinds: dict[str, Callable[[Fault], str]] = {
            "kill": self._kill,
            "freeze": self._freeze,
            "pause": self._pause,
            "spill": self._spill,
            "retire": self._retire,
            "add": self._add,
            "rebalance": self._rebalance,
            "replicate": self._replicate,
            "move": self._move,
            "cancel-blocks": self._cancel_blocks,
            "cancel-tasks": self._cancel_tasks,
            "cut-client": self._cut_client,
            "slow-links": self._slow_links,
            "cut-links": self._cut_links,
        }

    def strike(self, fault: Fault) -> str:
        """Do a fault; return to whom."""
        return self._kinds[fault.kind](fault)

    def relent(self, fault: Fault) -> None:
        """End a fault that lasts."""
        end = self._lasting.pop(id(fault), None)
        if end is not None:
            # Whom it was done to may be gone.
            with contextlib.suppress(ProcessLookupError, OSError, TimeoutError):
                end()

    def at_workers(self) -> str:
        """Return what each worker says it is at."""
        told = []
        for address in sorted(self._arena.scheduler.workers):
            try:
                told.append(f"{address}: {self._run(address, under_way)[address]}")
            except (OSError, TimeoutError) as error:
                told.append(f"{address}: {error!r}")
        return "\n".join(told)

    def close(self) -> None:
        """End what lasts, and disconnect."""
        for end in self._lasting.values():
            with contextlib.suppress(ProcessLookupError, OSError, TimeoutError):
                end()
        self._own.close(timeout=5)

    # --- workers ---

    def _member(self, fault: Fault) -> Member:
        there = {it.address: it for it in self._arena.members if it.pid is not None and it.address}
        known = sorted(there.keys() & set(self._arena.scheduler.workers))
        member: Member = there[pick(fault, known)]
        return member

    def _keep_one(self) -> None:
        """Have another worker come before the last one goes, if no nanny does it."""
        if not self._arena.nannies and len(self._arena.scheduler.workers) < 2:
            self._sync(self._arena.start_worker)

    def _kill(self, fault: Fault) -> str:
        self._keep_one()
        member = self._member(fault)
        address = member.address
        member.signal(signal.SIGKILL)
        return str(address)

    def _freeze(self, fault: Fault) -> str:
        member = self._member(fault)
        address = member.address
        member.signal(signal.SIGSTOP)
        self._lasting[id(fault)] = functools.partial(member.signal, signal.SIGCONT)
        return str(address)

    def _pause(self, fault: Fault) -> str:
        address = str(self._member(fault).address)
        self._run(address, set_status, "paused")
        self._lasting[id(fault)] = functools.partial(self._run, address, set_status, "running")
        return address

    def _spill(self, fault: Fault) -> str:
        address = str(self._member(fault).address)
        self._run(address, spill_all)
        return address

    def _retire(self, fault: Fault) -> str:
        self._keep_one()
        address = self._member(fault).address
        retire = self._arena.scheduler.retire_workers
        self._sync(functools.partial(retire, [address], close_workers=True, remove=True))
        return str(address)

    def _add(self, fault: Fault) -> str:
        return str(self._sync(self._arena.start_worker).address)

    # --- blocks ---

    def _rebalance(self, fault: Fault) -> str:
        return str(self._sync(functools.partial(self._arena.scheduler.rebalance, self._arena.keys)))

    def _replicate(self, fault: Fault) -> str:
        keys = self._arena.keys
        return str(self._sync(functools.partial(self._arena.scheduler.replicate, keys, n=2)))

    def _move(self, fault: Fault) -> str:
        workers = sorted(self._arena.scheduler.workers)
        if len(workers) < 2:
            raise NothingToStrikeError("there is only one worker")
        source = pick(fault, workers)
        target = workers[(workers.index(source) + 1) % len(workers)]
        moved = self._sync(functools.partial(move_all, self._arena.scheduler, source, target))
        return f"{moved} values from {source} to {target}"

    def _cancel_blocks(self, fault: Fault) -> str:
        keys = self._arena.keys
        chosen = {pick(fault, keys), keys[fault.target // 7 % len(keys)]}
        return self._cancel([key for key in keys if key in chosen])

    def _cancel_tasks(self, fault: Fault) -> str:
        deadline = time.monotonic() + 2.0
        while time.monotonic() < deadline:
            with contextlib.suppress(RuntimeError):  # it changes meanwhile
                others = set(self._arena.client.futures) - set(self._arena.keys)
                if others:
                    return self._cancel([pick(fault, sorted(others, key=str))])
        raise NothingToStrikeError("there is no task")

    def _cancel(self, keys: list[Any]) -> str:
        client = self._arena.client
        futures = {future.key: future for future in list(_futures(client))}
        chosen = [futures[key] for key in keys if key in futures]
        if not chosen:
            raise NothingToStrikeError("the program holds none of them")
        client.cancel(chosen, asynchronous=False)
        return ", ".join(map(str, keys))

    # --- connections ---

    def _cut_client(self, fault: Fault) -> str:
        client = self._arena.client
        client.loop.add_callback(client.scheduler_comm.comm.abort)
        return str(client.id)

    def _slow_links(self, fault: Fault) -> str:
        member = self._member(fault)
        assert member.link is not None, "cases with nannies have no such fault"
        member.link.delay = DELAY
        self._lasting[id(fault)] = functools.partial(self._sync_now, member.link.mend)
        return str(member.address)

    def _cut_links(self, fault: Fault) -> str:
        member = self._member(fault)
        assert member.link is not None, "cases with nannies have no such fault"
        self._sync_now(member.link.cut)
        self._lasting[id(fault)] = functools.partial(self._sync_now, member.link.mend)
        return str(member.address)

    # --- how ---

    def _sync(self, coroutine: Callable[[], Awaitable[Any]]) -> Any:
        """Run something on the scheduler's event loop, within bounds."""

        async def bounded() -> Any:
            return await asyncio.wait_for(coroutine(), FAULT_SECONDS)

        return self._arena.cluster.sync(bounded)

    def _sync_now(self, fn: Callable[[], None]) -> None:
        async def call() -> None:
            fn()

        self._sync(call)

    def _run(self, address: str, fn: Callable[..., Any], *args: Any) -> Any:
        """Run a function at a worker."""
        own = self._own
        return own.sync(
            functools.partial(own._run, fn, *args, workers=[address]),
            asynchronous=False,
            callback_timeout=FAULT_SECONDS,
        )


def _futures(client: Any) -> Any:
    """Yield a future for each key that a program holds."""
    from distributed import Future

    for key in list(client.futures):
        yield Future(key, client)


def set_status(status: str, dask_worker: Any) -> None:
    """Run at a worker: be paused, or go on.

    Parameters
    ----------
    status : str
        Name of the new one.
    dask_worker : distributed.Worker
        Given by Dask.
    """
    if dask_worker.status in {Status.running, Status.paused}:
        dask_worker.status = Status[status]


def spill_all(dask_worker: Any) -> int:
    """Run at a worker: write all data to disk.

    Parameters
    ----------
    dask_worker : distributed.Worker
        Given by Dask.

    Returns
    -------
    int
        How many values were written.
    """
    data = dask_worker.data
    written = 0
    while len(data.fast):
        if data.evict() == -1:
            break
        written += 1
    return written


def under_way(dask_worker: Any) -> str:
    """Run at a worker: what it is at, and where its threads are.

    Parameters
    ----------
    dask_worker : distributed.Worker
        Given by Dask.

    Returns
    -------
    str
        Several lines.
    """
    tasks = [
        f"{it.key} {it.state} (needs {[f'{d.key} {d.state}' for d in it.waiting_for_data][:3]})"
        for it in dask_worker.state.tasks.values()
        if it.state not in {"memory", "released"}
    ]
    stacks = dask_worker.get_call_stack()
    return f"{dask_worker.status.name}, {tasks}, {stacks}"


async def move_all(scheduler: Any, source: str, target: str) -> int:
    """Move all data of a worker to another one, as the active memory manager does with some.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        On its event loop.
    source, target : str
        Addresses.

    Returns
    -------
    int
        How many values were copied, and dropped at the source.
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
    """Whether a worker runs something that uses a value: Dask never takes that away from it."""
    return any(waiter.processing_on is worker for waiter in task.waiters or ())
