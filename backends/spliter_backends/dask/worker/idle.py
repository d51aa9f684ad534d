"""Threads of a worker that a task may use in addition to its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dask.typing import Key
from distributed import Worker, get_worker

from spliter.backend import name_of


@dataclass(frozen=True)
class OnIdleThreads:
    """The body of a task: calls ``fn(cores, *args)``; `cores()` threads are its to use."""

    fn: Callable[..., Any]
    threads: int

    @property
    def __name__(self) -> str:
        """Name of the function, for errors and Dask's dashboard."""
        return name_of(self.fn)

    def __call__(self, *args: Any) -> Any:
        """Call the function."""
        worker = get_worker()
        key = worker.get_current_task()
        return self.fn(functools.partial(idle_threads, worker, key, self.threads), *args)


def idle_threads(worker: Worker, key: Key, threads: int) -> int:
    """Return how many threads a running task may use now.

    At least the thread of the task itself, and those that run no other task; 0 once the task has
    been cancelled.
    """
    state, task = worker.state, wanted_task(worker, key)
    if task is None:
        return 0
    others = state.executing_count - (task in state.executing)  # not there once it has seceded
    return max(min(threads, state.nthreads - others), 1)


def wanted_task(worker: Worker, key: Key) -> Any:
    """Return the state of a task that runs, or ``None`` once it has been cancelled."""
    task = worker.state.tasks.get(key)
    return None if task is None or task.state == "cancelled" else task
