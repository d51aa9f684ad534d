"""Scheduler plugin: run pinned tasks elsewhere if their worker leaves or stays paused.

SplIter pins a task strictly to the worker that holds its partition. A strictly pinned task would
hang if that worker left, and wait as long as the worker is paused. This plugin removes pins that
SplIter has set, and no others: immediately if the worker has left, after :data:`PAUSE_TOLERANCE`
if it is paused. If all workers stay paused for the block timeout, our tasks fail. It checks tasks
when they arrive, when a worker leaves (results lost with it may be needed much later, by tasks of
the user's own), and once a second while a worker is paused or a task has no worker.

It also pins the tasks that extract blocks from results (see :data:`EXTRACTED`). If few results have
many blocks, Dask takes these tasks for root tasks and spreads them over idle workers, each with a
copy of the whole result.

Departed workers are not recorded: a pin to the address of a new worker is honoured.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

from dask.typing import Key
from distributed.diagnostics.plugin import SchedulerPlugin
from tornado.ioloop import PeriodicCallback

from spliter import BlockTimeoutError
from spliter_backends.dask.internals.scheduler import fail_tasks
from spliter_backends.dask.scheduler.records import prune_records

PINNED: Final = "spliter-pinned"
"""Annotation of the tasks that SplIter has submitted or pinned: whether it has pinned them."""

EXTRACTED: Final = "spliter-blocks"
"""Prefix of tasks that extract a block from a result of SplIter's. They are part of the user's own
graphs, which lose annotations when Dask optimizes them."""

PAUSE_TOLERANCE: Final = 5.0
"""Seconds to wait for a paused worker before its tasks run elsewhere, which copies its blocks. Most
pauses are shorter."""

CHECK_INTERVAL: Final = 1.0
"""Seconds between checks for tasks that cannot run; on a healthy cluster a check compares two
numbers."""

NAME: Final = "spliter"
"""Name of the plugin."""

TOPIC: Final = "spliter-unavailable"
"""Topic of events that report workers whose pins were removed."""


class PinPlugin(SchedulerPlugin):
    """Sets and removes pins of SplIter, for all clients."""

    name = NAME
    idempotent = True

    def __init__(self) -> None:
        self._scheduler: Any = None
        self._checks: PeriodicCallback | None = None
        self._paused_since: dict[Any, float] = {}
        self._timeout = float("inf")

    async def start(self, scheduler: Any) -> None:
        """Start checking, including tasks that already exist."""
        self._scheduler = scheduler
        self._checks = PeriodicCallback(self.check, CHECK_INTERVAL * 1000)
        self._checks.start()
        self._remove_pins(scheduler.tasks.values())
        self.check()

    async def close(self) -> None:
        """Stop checking when the scheduler closes."""
        if self._checks is not None:
            self._checks.stop()

    def update_graph(
        self,
        scheduler: Any,
        *,
        tasks: Sequence[Key],
        annotations: dict[str, dict[Key, Any]],
        **kwargs: Any,
    ) -> None:
        """Check tasks that have arrived, before they are assigned to workers."""
        self._remove_pins(scheduler.tasks[key] for key in annotations.get(PINNED, ()))
        prefix = scheduler.task_prefixes.get(EXTRACTED)
        # Most graphs have no such task, and may have very many others.
        if prefix is not None and prefix.states.get("released"):
            arrived = [scheduler.tasks[key] for key in tasks]
            extracted = [task for task in arrived if task.prefix is prefix]
            for task in extracted:
                _pin_to_result(task)
            self._remove_pins(extracted)
        prune_records(scheduler)

    def remove_worker(
        self, scheduler: Any, worker: str, *, stimulus_id: str, **kwargs: Any
    ) -> None:
        """Remove the pins to a worker that has died, left or been retired."""
        tasks = scheduler.tasks.values()
        pinned = [task for task in tasks if worker in (task.worker_restrictions or ())]
        self._report(self._remove_pins(pinned))
        self.check()

    def available_workers(self, timeout: float) -> dict[str, int]:
        """Return the threads of each available worker, of all workers if none is available.

        Available are running workers, and those paused for less than :data:`PAUSE_TOLERANCE`.
        `timeout` is the block timeout of the client that has called this last: the seconds after
        which tasks fail if all workers are paused.
        """
        self._timeout = timeout
        workers = self._scheduler.workers
        available = {at: one.nthreads for at, one in workers.items() if self._is_available(at)}
        return available or {at: one.nthreads for at, one in workers.items()}

    def check(self) -> None:
        """Restart tasks that cannot run at their worker."""
        scheduler = self._scheduler
        running = scheduler.running
        if len(running) == len(scheduler.workers) and not scheduler.unrunnable:
            self._paused_since.clear()
            return
        paused = [worker for worker in scheduler.workers.values() if worker not in running]
        self._paused_since = {worker: self._since(worker) for worker in paused}
        if not running:
            self._give_up()
            return
        wake: dict[Key, str] = {}
        unpinned: set[str] = set()
        for task in scheduler.unrunnable:
            unpinned |= self._remove_pin(task)
            if _is_ours(task) or _is_stuck(task):
                wake[task.key] = "processing"  # no effect while no worker can run it
        for worker in paused:
            if self._is_available(worker.address):
                continue
            waiting = _waiting_at(worker)
            unpinned |= self._remove_pins(waiting)
            wake.update((task.key, "released") for task in waiting)
        if wake:
            scheduler.transitions(wake, stimulus_id=f"spliter-check-{time.time()}")
        self._report(unpinned)

    def _give_up(self) -> None:
        """Fail tasks if all workers have been paused for the timeout; not if there are none."""
        since = max(self._paused_since.values(), default=float("inf"))
        if time.monotonic() - since < self._timeout:
            return
        scheduler, stimulus = self._scheduler, f"spliter-give-up-{time.time()}"
        error = BlockTimeoutError(
            f"all {len(self._paused_since)} workers have been paused for {self._timeout:g} s, as "
            "Dask does if their memory is nearly full; free memory or add workers, or raise the "
            "Dask setting spliter.block-timeout"
        )
        unassigned = [*scheduler.unrunnable, *scheduler.queued]
        fail_tasks(scheduler, [task for task in unassigned if _is_ours(task)], error, stimulus)
        # Those that wait at a worker have none after this, and fail at the next check.
        waiting = [task for worker in self._paused_since for task in _waiting_at(worker)]
        scheduler.transitions({task.key: "released" for task in waiting}, stimulus_id=stimulus)

    def _since(self, worker: Any) -> float:
        """Return the time since which a worker is known to be paused."""
        return self._paused_since.setdefault(worker, time.monotonic())

    def _is_available(self, address: str) -> bool:
        """Return whether a worker is running or was paused recently."""
        worker = self._scheduler.workers.get(address)
        if worker is None or worker in self._scheduler.running:
            return worker is not None
        return time.monotonic() - self._since(worker) < PAUSE_TOLERANCE

    def _remove_pins(self, tasks: Iterable[Any]) -> set[str]:
        """Remove the tasks' pins to unavailable workers; return these workers."""
        return {address for task in tasks for address in self._remove_pin(task)}

    def _remove_pin(self, task: Any) -> set[str]:
        """Remove a task's pin if SplIter has set it and none of its workers is available."""
        pin: set[str] = task.worker_restrictions or set()
        if not _is_pinned_by_us(task) or any(map(self._is_available, pin)):
            return set()
        task.worker_restrictions = None
        return pin

    def _report(self, addresses: Iterable[str]) -> None:
        """Report workers whose pins were removed, for the clients' logs."""
        for address in sorted(addresses):
            worker = self._scheduler.workers.get(address)
            status = "lost" if worker is None else worker.status.name
            self._scheduler.log_event(TOPIC, {"location": address, "status": status})


def available_workers(timeout: float, dask_scheduler: Any) -> dict[str, int] | None:
    """Return the workers to plan with, ``None`` without the plugin; runs on the scheduler."""
    plugin: PinPlugin | None = dask_scheduler.plugins.get(NAME)
    return None if plugin is None else plugin.available_workers(timeout)


def _pin_to_result(task: Any) -> None:
    """Pin the extraction of a block to the workers of the result, unless the user has pinned it."""
    if task.worker_restrictions or task.host_restrictions or task.resource_restrictions:
        return
    if len(task.dependencies) != 1:  # fused with other tasks
        return
    (result,) = task.dependencies
    holders = {worker.address for worker in result.who_has or ()}
    task.worker_restrictions = holders or set(result.worker_restrictions or ()) or None
    task.annotations = {**(task.annotations or {}), PINNED: bool(task.worker_restrictions)}


def _waiting_at(worker: Any) -> list[Any]:
    """Return our tasks that are assigned to a worker, and that it has not started."""
    started = {*worker.executing, *worker.long_running}
    return [task for task in worker.processing if _is_ours(task) and task not in started]


def _is_ours(task: Any) -> bool:
    """Return whether SplIter has submitted a task, or the task extracts a block of a result."""
    return bool(task.annotations) and PINNED in task.annotations


def _is_pinned_by_us(task: Any) -> bool:
    """Return whether SplIter has pinned a task; pins of the user are never removed."""
    return bool(task.annotations) and bool(task.annotations.get(PINNED))


def _is_stuck(task: Any) -> bool:
    """Return whether a loosely pinned task is without a worker because of a bug in Dask.

    ``Scheduler.bulk_schedule_unrunnable_after_adding_worker`` ignores loose pins (distributed
    2026.8): such a task, which may recompute lost blocks, stays in ``no-worker`` although there are
    workers. Its pin is kept.
    """
    return bool(task.loose_restrictions) and not task.resource_restrictions
