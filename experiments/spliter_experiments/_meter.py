"""Count the tasks and the bytes that a way costs, and wait until it has left no trace.

Both are counted by plugins, as results appear: tasks on the scheduler, and on each worker the bytes
of results that it fetched from another one (Dask's own counter of incoming transfers has no bytes).
What the scheduler and the client fetch is not counted. P2P sends data outside of all this, so the
way that uses it reports its bytes itself.
"""

from __future__ import annotations

import gc
import time
import uuid
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple

from distributed import Client, Scheduler, SchedulerPlugin, Worker, WorkerPlugin

from spliter_experiments._errors import ClusterError

REST_SECONDS = 30.0
POLL_SECONDS = 0.02

UNFINISHED = frozenset({"waiting", "processing", "queued", "no-worker"})
"""States of a task on the scheduler that keep workers busy, or may do so any moment."""


class Reading(NamedTuple):
    """What the counters say; the difference of two readings is what happened in between."""

    tasks: int
    nbytes: int

    def since(self, earlier: Reading) -> Reading:
        """Return what was counted after `earlier`."""
        return Reading(self.tasks - earlier.tasks, self.nbytes - earlier.nbytes)


class Load(NamedTuple):
    """What there is on the cluster at one moment."""

    unfinished: int
    """Tasks that are to be run or being run."""
    tasks: int
    """Tasks that the scheduler remembers."""
    copies: int
    """Results in the memory of workers, replicas counted."""


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
        self.fetched = 0

    def setup(self, worker: Worker) -> None:
        """Remember the worker: a transition names the key only."""
        self._worker = worker

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        """Count a result that has arrived."""
        if start == "flight" and finish == "memory":
            self.fetched += self._worker.state.tasks[key].get_nbytes()


class ClusterMeter:
    """Counters of one cluster, for the time of a context.

    Parameters
    ----------
    client : Client
        Synchronous client of the cluster.
    """

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
                '"spliter[experiments]" where the scheduler and the workers run'
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
        fetched = self._client.run(read_fetched, name=self._name)
        return Reading(finished, sum(fetched.values()))


@dataclass(frozen=True)
class Rest:
    """A state of the cluster to come back to: nothing runs, and so much is held.

    Parameters
    ----------
    client : Client
        Synchronous client of the cluster.
    load : Load
        What was held.
    """

    client: Client
    load: Load

    @classmethod
    def now(cls, client: Client) -> Rest:
        """Take what is held now."""
        return cls(client, current_load(client))

    def wait(self, timeout: float = REST_SECONDS) -> None:
        """Wait until nothing runs and no more is held than there was.

        Replicas that a way left are dropped by Dask's active memory manager, asked to do so now
        rather than in its own time.

        Raises
        ------
        ClusterError
            If that takes longer than `timeout` seconds.
        """
        gc.collect()  # futures in reference cycles hold results
        deadline = time.monotonic() + timeout
        while not self._is_reached(load := current_load(self.client)):
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"the cluster is not at rest after {timeout:g} s: {load.unfinished} tasks "
                    f"unfinished, {load.tasks} tasks remembered (before: {self.load.tasks}), "
                    f"{load.copies} results held (before: {self.load.copies}); "
                    "does someone else use it?"
                )
            self.client.amm.run_once()
            time.sleep(POLL_SECONDS)

    def _is_reached(self, load: Load) -> bool:
        return (
            load.unfinished == 0
            and load.tasks <= self.load.tasks
            and load.copies <= self.load.copies
        )


def current_load(client: Client) -> Load:
    """Ask the scheduler and all workers."""
    unfinished, tasks = client.run_on_scheduler(read_tasks)
    workers = client.run(read_worker).values()
    busy = sum(running for running, _ in workers)
    return Load(unfinished + busy, tasks, sum(copies for _, copies in workers))


def read_finished(dask_scheduler: Scheduler, name: str) -> int:
    """Return how many tasks have been counted; runs on the scheduler."""
    counter = dask_scheduler.plugins[name]
    assert isinstance(counter, TaskCounter)
    return counter.finished


def read_tasks(dask_scheduler: Scheduler) -> tuple[int, int]:
    """Return unfinished and all tasks; runs on the scheduler."""
    tasks = dask_scheduler.tasks.values()
    return sum(task.state in UNFINISHED for task in tasks), len(tasks)


def read_fetched(dask_worker: Worker, name: str) -> int:
    """Return the bytes fetched from other workers so far; runs on a worker."""
    counter = dask_worker.plugins[name]
    assert isinstance(counter, ByteCounter)
    return counter.fetched


def read_worker(dask_worker: Worker) -> tuple[int, int]:
    """Return running tasks and transfers, and results held; runs on a worker."""
    state = dask_worker.state
    running = state.executing_count + state.in_flight_tasks_count
    return running, len(dask_worker.data)
