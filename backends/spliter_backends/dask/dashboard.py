"""A page of the Dask dashboard with the number of partitions and their tasks at each worker.

Add it to a running scheduler by :func:`add_page`, or start the scheduler by
``dask scheduler --preload spliter_backends.dask.dashboard``. The page uses the scheduler's records
of partitions sent to workers, and of tasks annotated as tasks on partitions; it queries no worker.
Partitions of at most 64 blocks are sent with their tasks, and only the tasks are counted.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from dask.typing import Key
from distributed import Client, Scheduler, SchedulerPlugin
from distributed.scheduler import TaskState

from spliter import BackendNotUsableError
from spliter_backends.dask.client.batch import ON_PARTITION
from spliter_backends.dask.client.scheduler_calls import call_client
from spliter_backends.dask.internals.scheduler import add_dashboard_page

PAGE: Final = "/spliter"
"""Path of the page on the dashboard."""

PREFIX: Final = "spliter-partition"
"""Prefix of the keys of partitions at workers."""

_UNFINISHED_STATES: Final = frozenset({"waiting", "queued", "no-worker", "processing"})
_INTERVAL_MS: Final = 500
_ROW_HEIGHT: Final = 26
_SHOWN: Final = ("worker", "threads", "partitions", "tasks")


@dataclass(frozen=True)
class WorkerPartitions:
    """Numbers of partitions and tasks of one worker.

    partitions: Partitions at the worker or being sent to it.
    tasks: Unfinished tasks on them.
    """

    worker: str
    partitions: int
    tasks: int
    threads: int


class PartitionTracker(SchedulerPlugin):
    """Keeps the keys of partitions and of unfinished tasks on them, in the scheduler."""

    name = "spliter-partitions"

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._partitions: set[Key] = set()
        self._tasks: set[Key] = set()
        for task in scheduler.tasks.values():
            self._track(task)

    def transition(self, key: Key, start: Any, finish: Any, *args: Any, **kwargs: Any) -> None:
        """Update the keys (called by the scheduler)."""
        self._partitions.discard(key)
        self._tasks.discard(key)
        if finish != "forgotten":
            self._track(self._scheduler.tasks[key])

    def _track(self, task: TaskState) -> None:
        if isinstance(task.key, str) and task.key.startswith(PREFIX):
            self._partitions.add(task.key)
        elif task.state in _UNFINISHED_STATES and ON_PARTITION in (task.annotations or {}):
            self._tasks.add(task.key)

    def at_workers(self) -> list[WorkerPartitions]:
        """Count partitions, and unfinished tasks on them, at each worker, sorted by address."""
        partitions, tasks = (
            Counter(at for key in keys for at in _places(self._scheduler.tasks[key]))
            for keys in (self._partitions, self._tasks)
        )
        return [
            WorkerPartitions(address, partitions[address], tasks[address], worker.nthreads)
            for address, worker in sorted(self._scheduler.workers.items())
        ]


def _places(task: TaskState) -> Collection[str]:
    """Return workers that have a task's result or run it; else those it is pinned to."""
    if task.who_has:
        return [worker.address for worker in task.who_has]
    if task.processing_on is not None:
        return [task.processing_on.address]
    return task.worker_restrictions or ()


def add_page(client: Client) -> str:
    """Add the page to the dashboard of a client's scheduler; idempotent.

    Parameters
    ----------
    client : distributed.Client
        Client of a scheduler with SplIter and bokeh installed.

    Returns
    -------
    str
        Address of the page.

    Raises
    ------
    BackendNotUsableError
        If bokeh, which draws the dashboard, is not installed at the scheduler, or the dashboard
        of its version of Dask is unknown.
    BlockTimeoutError
        If the scheduler does not answer.
    """
    if not call_client(client, client.run_on_scheduler, dask_setup):
        raise BackendNotUsableError(
            "the scheduler has no dashboard: install bokeh in its environment "
            "(pip install 'dask[diagnostics]') and restart it; or its Dask is of an unknown "
            "version, which its log then says"
        )
    address, _, _ = str(client.dashboard_link).rpartition("/status")
    return address + PAGE


def dask_setup(dask_scheduler: Scheduler) -> bool:
    """Add the page, except without bokeh; runs on the scheduler, and is called by ``--preload``.

    Returns whether there is a page.
    """
    if PartitionTracker.name in dask_scheduler.plugins:
        return True
    tracker = PartitionTracker(dask_scheduler)
    if not add_dashboard_page(dask_scheduler, PAGE, functools.partial(_page, tracker)):
        return False
    dask_scheduler.add_plugin(tracker)
    return True


def _page(tracker: PartitionTracker, scheduler: Scheduler, extra: Any, doc: Any) -> None:
    """Fill a bokeh document in the scheduler's process, and update it twice a second."""
    from bokeh.models import ColumnDataSource, HoverTool
    from bokeh.plotting import figure

    def state() -> dict[str, list[Any]]:
        found = tracker.at_workers()[::-1]  # bokeh's axis starts at the bottom
        return {name: [getattr(one, name) for one in found] for name in _SHOWN}

    source = ColumnDataSource(state())
    plot = figure(
        title="Partitions of SplIter at the workers, and unfinished tasks on them",
        y_range=source.data["worker"] or ["no workers"],
        sizing_mode="stretch_width",
        tools="",
    )
    for kind, legend, height, color in (
        ("partitions", "partitions", 0.8, "#56b4e9"),
        ("tasks", "unfinished tasks", 0.4, "#d55e00"),
    ):
        bar: dict[str, Any] = {"height": height, "color": color, "legend_label": legend}
        plot.hbar(y="worker", right=kind, source=source, **bar)
    plot.add_tools(HoverTool(tooltips=[(name, f"@{name}") for name in _SHOWN]))
    plot.x_range.start = 0
    plot.xaxis.minor_tick_line_color = None
    plot.xaxis.ticker.min_interval = 1
    plot.add_layout(plot.legend[0], "below")
    plot.legend.orientation = "horizontal"

    def update() -> None:
        now = state()
        plot.y_range.factors = now["worker"] or ["no workers"]
        plot.height = 160 + _ROW_HEIGHT * max(len(now["worker"]), 1)
        source.data = now

    update()
    doc.title = "SplIter"
    doc.add_root(plot)
    doc.add_periodic_callback(update, _INTERVAL_MS)
