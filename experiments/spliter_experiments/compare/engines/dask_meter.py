"""Count tasks and bytes on Dask, and restore the cluster's initial state between runs.

Plugins count finished tasks on the scheduler and, on each worker, the bytes of results fetched from
other workers (Dask's own counter of incoming transfers has no bytes). Data fetched by the scheduler
or the client is not counted. Neither is P2P shuffle traffic, but no way here makes Dask shuffle
(see :func:`.dask.rechunk_to_cores`).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple

from distributed import Client, Future, Scheduler, SchedulerPlugin, Worker, WorkerPlugin

from spliter_experiments.compare.engines.engine import REST_SECONDS, wait_until_idle
from spliter_experiments.harness.errors import ClusterError
from spliter_experiments.harness.runner import Reading

UNFINISHED = frozenset({"waiting", "processing", "queued", "no-worker"})
"""Scheduler states of tasks that occupy workers, or may do so at any moment."""

STIMULUS = "spliter-experiments-put-back"


class Load(NamedTuple):
    """Load of the cluster at one moment."""

    unfinished: int
    """Pending or running tasks and transfers."""
    tasks: int
    """Tasks known to the scheduler."""
    copies: int
    """Results in the memory of workers, counting each copy."""


@dataclass(frozen=True)
class DaskIdle:
    """Initial state of the cluster: nothing runs, memory holds the same, blocks are in place.

    Tasks that read blocks from another worker leave copies there, and Dask's active memory manager
    drops surplus copies at the fullest worker, originals included. After a few rechunking rounds
    the blocks would already lie where a rechunk wants them, and rechunking would be free. So blocks
    are sent back to the worker that held them first.
    """

    client: Client
    load: Load
    homes: Mapping[Any, str]

    @classmethod
    def now(cls, client: Client, blocks: Sequence[Future[Any]] = ()) -> DaskIdle:
        held = client.who_has(list(blocks)) if blocks else {}
        return cls(client, current_load(client), {key: min(held[key]) for key in held})

    def wait(self, timeout: float = REST_SECONDS) -> None:
        """Wait until nothing runs, no more is held than at first, and blocks are in place."""
        wait_until_idle(self._found, timeout)

    def _found(self) -> str:
        load = current_load(self.client)
        away = 0
        if load.unfinished == 0:
            away = self.client.run_on_scheduler(put_back, homes=dict(self.homes))
            if not away and load.tasks <= self.load.tasks and load.copies <= self.load.copies:
                return ""
        return (
            f"{load.unfinished} tasks unfinished, {load.tasks} tasks remembered (before: "
            f"{self.load.tasks}), {load.copies} results held (before: {self.load.copies}), {away} "
            "blocks away from where they were"
        )


def current_load(client: Client) -> Load:
    unfinished, tasks = client.run_on_scheduler(read_tasks)
    workers = client.run(read_worker).values()
    busy = sum(running for running, _ in workers)
    return Load(unfinished + busy, tasks, sum(copies for _, copies in workers))


def read_tasks(dask_scheduler: Scheduler) -> tuple[int, int]:
    """Return the numbers of unfinished and of all tasks; runs on the scheduler."""
    tasks = dask_scheduler.tasks.values()
    return sum(task.state in UNFINISHED for task in tasks), len(tasks)


def read_worker(dask_worker: Worker) -> tuple[int, int]:
    """Return the numbers of running tasks and transfers, and of results; runs on a worker."""
    state = dask_worker.state
    running = state.executing_count + state.in_flight_tasks_count
    return running, len(dask_worker.data)


def put_back(dask_scheduler: Scheduler, homes: Mapping[Any, str]) -> int:
    """Make workers fetch or drop copies until each block is only at its first worker.

    Runs on the scheduler. Returns the number of blocks that were elsewhere.
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
    """Counts the finished tasks of a cluster."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.finished = 0

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        if start == "processing" and finish == "memory":
            self.finished += 1


class ByteCounter(WorkerPlugin):
    """Counts the bytes of results that a worker has fetched from other workers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.moved = 0

    def setup(self, worker: Worker) -> None:
        """Store the worker: a transition has only the key."""
        self._worker = worker

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        if start == "flight" and finish == "memory":
            self.moved += self._worker.state.tasks[key].get_nbytes()


class ClusterMeter:
    """Counters of one cluster while the context is open."""

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
        finished = self._client.run_on_scheduler(read_finished, name=self._name)
        moved = self._client.run(read_moved, name=self._name)
        return Reading(finished, sum(moved.values()))


def read_finished(dask_scheduler: Scheduler, name: str) -> int:
    counter = dask_scheduler.plugins[name]
    assert isinstance(counter, TaskCounter)
    return counter.finished


def read_moved(dask_worker: Worker, name: str) -> int:
    counter = dask_worker.plugins[name]
    assert isinstance(counter, ByteCounter)
    return counter.moved
