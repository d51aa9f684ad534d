"""Pins are let go of at the scheduler: those to workers that are gone, and that nobody serves.

A task of ours is pinned to one worker, strictly. Dask keeps what it would need to run it again,
the pin included, for as long as somebody wants its result: if that is lost with the worker, the
task waits for a worker of that address, which never comes. It may be wanted long after the task
has ended, and by work that is not ours: by a Dask array over results, or a future of the user's
own that came of them. Nobody watches those, so the scheduler itself acts at the moment when the
worker goes. Of tasks under way the client asks (``dask_executor``): a worker may also be paused.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from dask.typing import Key
from distributed.diagnostics.plugin import SchedulerPlugin

from spliter_backends._dask_records import keep_short

MARK: Final = "spliter-pinned"
"""The annotation of tasks whose pin is ours; users' own pins are theirs to keep."""

NAME: Final = "spliter-pins"
"""Of the plugin."""


class PinsOfTheGone(SchedulerPlugin):
    """Lets go of pins to a worker when that is removed."""

    name = NAME

    def remove_worker(
        self, scheduler: Any, worker: str, *, stimulus_id: str, **kwargs: Any
    ) -> None:
        """Run when a worker has died, left or been retired."""
        let_go(scheduler)


def is_ours(task: Any) -> bool:
    """Whether a task at the scheduler has been pinned by us.

    Parameters
    ----------
    task : distributed.scheduler.TaskState
        Any.

    Returns
    -------
    bool
        By its annotation.
    """
    return bool(task.annotations) and MARK in task.annotations


def let_go_of_the_gone(dask_scheduler: Any) -> None:
    """Run on the scheduler: have pins to workers that go let go of, from now on.

    Parameters
    ----------
    dask_scheduler : distributed.Scheduler
        Given by Dask.
    """
    if NAME not in dask_scheduler.plugins:
        dask_scheduler.add_plugin(PinsOfTheGone(), name=NAME)
        let_go(dask_scheduler)  # of those that went before


def let_go(scheduler: Any) -> None:
    """Let go of all pins to workers that are not there, and start what waits for them.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        On its event loop.
    """
    wake: dict[Any, str] = {}
    for task in scheduler.tasks.values():
        pins = task.worker_restrictions
        if pins and is_ours(task) and pins.isdisjoint(scheduler.workers):
            task.worker_restrictions = None
            if task.state == "no-worker" and scheduler.running:
                wake[task.key] = "processing"
    if wake:
        scheduler.transitions(wake, stimulus_id=f"spliter-let-go-{time.time()}")


def release_pins(ages: Mapping[Key, float], patience: float, dask_scheduler: Any) -> dict[str, Any]:
    """Run on the scheduler: release tasks from pins to workers that will not serve them.

    From the first call on the scheduler lets go of pins to workers that are removed by itself
    (:class:`PinsOfTheGone`), and keeps its records of our tasks short (``_dask_records``).

    What these tasks wait for is treated likewise: a task's result that was lost is to be made
    again by a task with the same pin.

    Also wakes any task that is pinned *loosely* and was left in ``no-worker`` although
    there are workers: ``Scheduler.bulk_schedule_unrunnable_after_adding_worker`` looks at
    pins without regard to looseness (distributed 2026.8), and blocks to be made again may
    be among those.

    Parameters
    ----------
    ages : mapping of key to float
        Tasks under way and for how many seconds.
    patience : float
        Seconds to wait for a worker that is there but paused.
    dask_scheduler : distributed.Scheduler
        Given by Dask.

    Returns
    -------
    dict
        ``states``: the state of each of the tasks, ``None`` where it is not known any
        more; ``gone``: workers that tasks were pinned to and that no longer exist.
    """
    let_go_of_the_gone(dask_scheduler)
    keep_short(dask_scheduler)
    tasks, running = dask_scheduler.tasks, dask_scheduler.running
    ours = {tasks[key] for key in ages if key in tasks}
    unrunnable = set(dask_scheduler.unrunnable)
    ours |= {task for task in unrunnable if str(task.key).startswith("spliter-")}
    # Results of ours that later tasks wait for, and that were lost with their worker.
    waiting = list(ours)
    while waiting:
        more = set(waiting.pop().waiting_on or ()) - ours
        ours |= more
        waiting.extend(more)
    wake: dict[Key, str] = {}
    gone: set[str] = set()
    for task in (ours | unrunnable) if running else ():
        lost = {at for at in task.worker_restrictions or () if at not in dask_scheduler.workers}
        overdue = ages.get(task.key, patience) >= patience
        if task.state == "no-worker" and (task.loose_restrictions or task in ours):
            if task.loose_restrictions or lost or overdue:
                gone |= lost
                task.worker_restrictions = None
                wake[task.key] = "processing"
        elif task.state == "processing" and overdue:
            worker = task.processing_on
            started = task in worker.executing or task in worker.long_running
            if worker not in running and not started:
                task.worker_restrictions = None
                wake[task.key] = "released"
    if wake:
        dask_scheduler.transitions(wake, stimulus_id=f"spliter-release-pins-{time.time()}")
    states = {key: tasks[key].state if key in tasks else None for key in ages}
    return {"states": states, "gone": sorted(gone)}
