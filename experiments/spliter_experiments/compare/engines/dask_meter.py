"""Count the tasks and bytes that a way costs on Dask, and wait until it has left no trace.

Tasks and bytes are counted by plugins, as results appear: tasks on the scheduler, and on each
worker the bytes of results that it fetched from another one (Dask's own counter of incoming
transfers has no bytes). What the scheduler and the client fetch is not counted. What a P2P shuffle
sends past the workers' tasks would not be either, but no way here has Dask do one (see
:func:`.dask.rechunk_to_cores`).
"""

from __future__ import annotations

import gc
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple

from distributed import Client, Future, Scheduler, SchedulerPlugin, Worker, WorkerPlugin

from spliter_experiments.harness.errors import ClusterError
from spliter_experiments.harness.runner import Reading

REST_SECONDS = 60.0
POLL_SECONDS = 0.03

UNFINISHED = frozenset({"waiting", "processing", "queued", "no-worker"})
"""States of a task on the scheduler that keep workers busy, or may do so any moment."""

STIMULUS = "spliter-experiments-put-back"


class Load(NamedTuple):
    """What there is on the cluster at one moment."""

    unfinished: int
    """Tasks and transfers to come or going on."""
    tasks: int
    """Tasks that the scheduler remembers."""
    copies: int
    """Results in the memory of workers, each copy counted."""


@dataclass(frozen=True)
class Rest:
    """A state of the cluster to come back to: nothing runs, and so much is held, there.

    Tasks that read blocks from another worker leave copies of them there, and Dask's active memory
    manager drops surplus copies wherever there is less memory, the original as well as the copy.
    After a few rounds of rechunking, blocks would lie where a rechunk wants them, and rechunking
    would cost nothing. So blocks are sent back to the worker that held them first.
    """

    client: Client
    load: Load
    homes: Mapping[Any, str]

    @classmethod
    def now(cls, client: Client, blocks: Sequence[Future[Any]] = ()) -> Rest:
        """Take what is held now, and where blocks are."""
        held = client.who_has(list(blocks)) if blocks else {}
        return cls(client, current_load(client), {key: min(held[key]) for key in held})

    def wait(self, timeout: float = REST_SECONDS) -> None:
        """Wait until nothing runs, no more is held than there was, and blocks are at home.

        Raises
        ------
        ClusterError
            If that takes longer than `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            load = current_load(self.client)
            away = 0
            if load.unfinished == 0:
                away = self.client.run_on_scheduler(put_back, homes=dict(self.homes))
                if not away and load.tasks <= self.load.tasks and load.copies <= self.load.copies:
                    return
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"the cluster is not at rest after {timeout:g} s: {load.unfinished} tasks "
                    f"unfinished, {load.tasks} tasks remembered (before: {self.load.tasks}), "
                    f"{load.copies} results held (before: {self.load.copies}), {away} blocks away "
                    "from where they were; did a worker die, or does someone else use the cluster?"
                )
            gc.collect()  # futures in reference cycles hold results
            time.sleep(POLL_SECONDS)


def current_load(client: Client) -> Load:
    """Ask the scheduler and all workers."""
    unfinished, tasks = client.run_on_scheduler(read_tasks)
    workers = client.run(read_worker).values()
    busy = sum(running for running, _ in workers)
    return Load(unfinished + busy, tasks, sum(copies for _, copies in workers))


def read_tasks(dask_scheduler: Scheduler) -> tuple[int, int]:
    """Return unfinished and all tasks; runs on the scheduler."""
    tasks = dask_scheduler.tasks.values()
    return sum(task.state in UNFINISHED for task in tasks), len(tasks)


def read_worker(dask_worker: Worker) -> tuple[int, int]:
    """Return running tasks and transfers, and results held; runs on a worker."""
    state = dask_worker.state
    running = state.executing_count + state.in_flight_tasks_count
    return running, len(dask_worker.data)


def put_back(dask_scheduler: Scheduler, homes: Mapping[Any, str]) -> int:
    """Ask workers to fetch or drop copies until each result is at home only; runs on the scheduler.

    Returns
    -------
    int
        How many were not.
    """
    away = 0
    for key, home in homes.items():
        task = dask_scheduler.tasks.get(key)
        holders = {worker.address for worker in task.who_has or ()} if task else set()
        if holders == {home}:
            continue
        away += 1
        if not holders or home not in dask_scheduler.workers:
            continue
        if home not in holders:
            dask_scheduler.request_acquire_replicas(home, [key], stimulus_id=STIMULUS)
            continue
        for holder in holders - {home}:
            dask_scheduler.request_remove_replicas(holder, [key], stimulus_id=STIMULUS)
    return away


class TaskCounter(SchedulerPlugin):
    """Counts the tasks that a cluster has finished."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.finished = 0

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Count a task whose result has been computed."""
        if start == "processing" and finish == "memory":
            self.finished += 1


class ByteCounter(WorkerPlugin):
    """Counts the bytes of the results that a worker has fetched from other workers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.moved = 0

    def setup(self, worker: Worker) -> None:
        """Keep the worker: a transition names the key only."""
        self._worker = worker

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        """Count a result that has been fetched."""
        if start == "flight" and finish == "memory":
            self.moved += self._worker.state.tasks[key].get_nbytes()


class ClusterMeter:
    """Counters of one cluster, for the time of a context."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._name = f"spliter-meter-{uuid.uuid4().hex}"

    def __enter__(self) -> ClusterMeter:
        try:
            self._client.register_plugin(TaskCounter(self._name))
            self._client.register_plugin(ByteCounter(self._name))
        except ModuleNotFoundError as error:
            raise ClusterError(
                f"the cluster's environment lacks {error.name}; install "
                "SplIter with its extra [experiments] where the scheduler and the workers run"
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._client.unregister_scheduler_plugin(self._name)
        self._client.unregister_worker_plugin(self._name)

    def reading(self) -> Reading:
        """Read the counters."""
        finished = self._client.run_on_scheduler(read_finished, name=self._name)
        moved = self._client.run(read_moved, name=self._name)
        return Reading(finished, sum(moved.values()))


def read_finished(dask_scheduler: Scheduler, name: str) -> int:
    """Return how many tasks have been counted; runs on the scheduler."""
    counter = dask_scheduler.plugins[name]
    assert isinstance(counter, TaskCounter)
    return counter.finished


def read_moved(dask_worker: Worker, name: str) -> int:
    """Return the bytes moved between workers so far; runs on a worker."""
    counter = dask_worker.plugins[name]
    assert isinstance(counter, ByteCounter)
    return counter.moved
