"""A page of the Dask dashboard: which worker has which partitions, and what it is doing with them.

A scheduler that is running gets it by :func:`add_page`; one that is about to be started, by
``dask scheduler --preload spliter_backends.dask.dashboard``. The page reads what the scheduler
knows anyway: the lists of blocks that Splits have sent to the workers, and the tasks that are
annotated as being on a partition. It sends nothing to any worker. Partitions of at most 64 blocks
travel with their tasks and are seen as tasks only.
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
from spliter_backends.dask.internals import add_dashboard_page

PAGE: Final = "/spliter"
"""Where the page is, below the address of the dashboard."""

PREFIX: Final = "spliter-partition"
"""What the names of partitions at workers begin with."""

_UNFINISHED_STATES: Final = frozenset({"waiting", "queued", "no-worker", "processing"})
_INTERVAL_MS: Final = 500
_ROW_HEIGHT: Final = 26


@dataclass(frozen=True)
class WorkerPartitions:
    """What one worker has of all Splits, at one moment.

    Parameters
    ----------
    address : str
        The worker.
    partitions : int
        Partitions that are there, or on their way there.
    tasks : int
        Tasks on them that have been submitted and are not finished.
    threads : int
        Threads of the worker.
    """

    address: str
    partitions: int
    tasks: int
    threads: int


class PartitionTracker(SchedulerPlugin):
    """Keeps the names of partitions and of tasks on them, which the scheduler has among all others.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        Where it is a plugin.
    """

    name = "spliter-partitions"

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._partitions: set[Key] = set()
        self._tasks: set[Key] = set()
        for task in scheduler.tasks.values():
            self._track(task)

    def transition(self, key: Key, start: Any, finish: Any, *args: Any, **kwargs: Any) -> None:
        """Take note of what came, went on or went (called by the scheduler)."""
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
        """Count partitions, and tasks under way on them, at each worker.

        Returns
        -------
        list of WorkerPartitions
            One for each worker, by address.
        """
        partitions, tasks = (
            Counter(at for key in keys for at in _places(self._scheduler.tasks[key]))
            for keys in (self._partitions, self._tasks)
        )
        return [
            WorkerPartitions(address, partitions[address], tasks[address], worker.nthreads)
            for address, worker in sorted(self._scheduler.workers.items())
        ]


def _places(task: TaskState) -> Collection[str]:
    """Workers that have a task's result or are at it; before that, those it is pinned to."""
    if task.who_has:
        return [worker.address for worker in task.who_has]
    if task.processing_on is not None:
        return [task.processing_on.address]
    return task.worker_restrictions or ()


def add_page(client: Client) -> str:
    """Add the page to the dashboard of a client's scheduler; a second time is no harm.

    Parameters
    ----------
    client : distributed.Client
        Of a scheduler beside which SplIter and bokeh are installed.

    Returns
    -------
    str
        Address of the page.

    Raises
    ------
    BackendNotUsableError
        If bokeh, which draws the dashboard, is not installed beside the scheduler.
    BlockTimeoutError
        If the scheduler does not answer.
    """
    if not call_client(client, client.run_on_scheduler, dask_setup):
        raise BackendNotUsableError(
            "the scheduler has no dashboard to add a page to: install bokeh beside it "
            "(pip install 'dask[diagnostics]') and start it again"
        )
    address, _, _ = str(client.dashboard_link).rpartition("/status")
    return address + PAGE


def dask_setup(dask_scheduler: Scheduler) -> bool:
    """Add the page, on the scheduler; the name is the one that ``--preload`` calls.

    Parameters
    ----------
    dask_scheduler : distributed.Scheduler
        Whose dashboard it is.

    Returns
    -------
    bool
        Whether that could be done; not without bokeh.
    """
    if PartitionTracker.name in dask_scheduler.plugins:
        return True
    seen = PartitionTracker(dask_scheduler)
    if not add_dashboard_page(dask_scheduler, PAGE, functools.partial(_page, seen)):
        return False
    dask_scheduler.add_plugin(seen)
    return True


def _page(seen: PartitionTracker, scheduler: Scheduler, extra: Any, doc: Any) -> None:
    """Fill a document of bokeh, in the scheduler's process; ask again twice a second."""
    from bokeh.models import ColumnDataSource, HoverTool
    from bokeh.plotting import figure

    def state() -> dict[str, list[Any]]:
        found = seen.at_workers()[::-1]  # bokeh counts from below
        return {
            "worker": [one.address for one in found],
            "threads": [one.threads for one in found],
            "partitions": [one.partitions for one in found],
            "tasks": [one.tasks for one in found],
        }

    source = ColumnDataSource(state())
    plot = figure(
        title="Partitions of SplIter at the workers, and tasks under way on them",
        y_range=source.data["worker"] or ["no workers"],
        sizing_mode="stretch_width",
        tools="",
    )
    plot.hbar(
        y="worker",
        right="partitions",
        height=0.8,
        source=source,
        color="#56b4e9",
        legend_label="partitions there",
    )
    plot.hbar(
        y="worker",
        right="tasks",
        height=0.4,
        source=source,
        color="#d55e00",
        legend_label="tasks under way",
    )
    plot.add_tools(
        HoverTool(
            tooltips=[(name, f"@{name}") for name in ("worker", "threads", "partitions", "tasks")]
        )
    )
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
