"""Count the tasks and the bytes that a way costs on Dask.

Both are counted by plugins, as results appear: tasks on the scheduler, and on each worker the bytes
of results that it fetched from another one (Dask's own counter of incoming transfers has no bytes).
What the scheduler and the client fetch is not counted. What a P2P shuffle sends past the workers'
tasks would not be either, but no way here has Dask do one (see
:func:`.dask_steps.rechunk_to_cores`).
"""

from __future__ import annotations

import uuid
from types import TracebackType
from typing import Any

from distributed import Client, Scheduler, SchedulerPlugin, Worker, WorkerPlugin

from spliter_experiments.harness.errors import ClusterError
from spliter_experiments.harness.runner import Reading


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
