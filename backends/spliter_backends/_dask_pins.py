"""Pins to workers that are gone are let go of at the scheduler, at the moment the worker goes.

A task of ours is pinned to one worker, strictly. Dask keeps what it would need to run it again,
the pin included, for as long as somebody wants its result: if that is lost with the worker, the
task waits for a worker of that address, which never comes. It may be wanted long after the task
has ended, and by work that is not ours: by a Dask array over results, or a future of the user's
own that came of them. Nobody watches those, so the scheduler itself has to act.
"""

from __future__ import annotations

import time
from typing import Any, Final

from distributed.diagnostics.plugin import SchedulerPlugin

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
