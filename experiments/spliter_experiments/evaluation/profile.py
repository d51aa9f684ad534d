"""Profile a Dask program and predict whether SplIter would make it faster.

A scheduler plugin records for each task the stored results (blocks) it read, its compute time, and
the bytes sent to its worker. Tasks are grouped into *passes*, one task per block of a collection,
and the time of each pass with one task per core is predicted:

>>> from distributed import Client, LocalCluster
>>> from spliter_experiments.evaluation.profile import profiled
>>> with LocalCluster(
...     n_workers=1, threads_per_worker=2, dashboard_address="127.0.0.1:0"
... ) as cluster:
...     with Client(cluster) as client, profiled(client) as profile:
...         blocks = client.scatter(list(range(40)), hash=False)
...         sums = client.gather(client.map(float, blocks, pure=False))
>>> (found,) = profile.passes()
>>> found.name, found.tasks, profile.blocks, profile.nbytes
('float', 40, 40, 0)
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from distributed import Client, Scheduler, SchedulerPlugin

WORTH = 1.25
"""Minimum speed-up at which splitting is recommended."""

LEAST_SECONDS = 0.02
"""Seconds of a pass without work, measured with two to eight workers and one task each."""

FEWEST_TASKS = 2
"""Minimum tasks per core for a pass to be split."""


@dataclass(frozen=True)
class Seen:
    """A finished task.

    Parameters
    ----------
    name : str
        Dask's name of the kind of task (key prefix).
    start, stop : float
        Unix time at which computing started and stopped.
    blocks : tuple
        Keys of the results that it read.
    nbytes : int
        Bytes sent to its worker for it.
    """

    name: str
    start: float
    stop: float
    blocks: tuple[Any, ...]
    nbytes: int

    @property
    def seconds(self) -> float:
        """Compute time."""
        return self.stop - self.start


@dataclass(frozen=True)
class Pass:
    """Tasks of one name, each of which reads a different block.

    Parameters
    ----------
    name : str
        Dask's name of the tasks (key prefix).
    tasks, cores : int
        Number of tasks, and of tasks that run at the same time.
    busy, span : float
        Total compute seconds, and seconds from the first start to the last stop.
    nbytes : int
        Bytes sent to workers for these tasks.
    """

    name: str
    tasks: int
    cores: int
    busy: float
    span: float
    nbytes: int

    @property
    def work(self) -> float:
        """Seconds of the computation alone, on all cores."""
        return self.busy / self.cores

    @property
    def split(self) -> float:
        """Predicted seconds with one task per core.

        The time beyond the computation is divided evenly among the tasks; a pass takes at least
        `LEAST_SECONDS` of it, however few tasks there are.
        """
        beyond = max(self.span - self.work, 0.0)
        least = beyond / self.tasks * min(self.tasks, self.cores)
        return self.work + max(least, min(beyond, LEAST_SECONDS))

    @property
    def gain(self) -> float:
        """Predicted speed-up."""
        return self.span / self.split if self.split > 0 else 1.0

    @property
    def can_be_split(self) -> bool:
        """Whether there are at least `FEWEST_TASKS` tasks per core."""
        return self.tasks >= FEWEST_TASKS * self.cores


@dataclass
class Profile:
    """Recorded tasks of a program.

    Parameters
    ----------
    tasks : list of Seen
        In the order in which they finished.
    cores : int
        Number of tasks that the cluster runs at the same time.
    """

    tasks: list[Seen] = field(default_factory=list)
    cores: int = 0

    @property
    def blocks(self) -> int:
        """Number of distinct results read by tasks."""
        return len({block for task in self.tasks for block in task.blocks})

    @property
    def nbytes(self) -> int:
        """Bytes sent to workers."""
        return sum(task.nbytes for task in self.tasks)

    def passes(self) -> list[Pass]:
        """Return the passes, grouped by name and in execution order."""
        named: dict[str, list[Seen]] = {}
        for task in self.tasks:  # by start, short passes would mix: the workers' clocks differ
            if task.blocks:
                named.setdefault(task.name, []).append(task)
        return [_pass(group, self.cores) for tasks in named.values() for group in _rounds(tasks)]

    def verdict(self) -> str:
        """Return a sentence on whether splitting would help."""
        passes = [found for found in self.passes() if found.can_be_split]
        if not passes:
            return (
                "Splitting would not help: nowhere are there several tasks for each of the "
                f"{self.cores} cores."
            )
        now, then = sum(p.span for p in passes), sum(p.split for p in passes)
        gain = now / then if then > 0 else 1.0
        tasks, fewer = sum(p.tasks for p in passes), sum(p.cores for p in passes)
        told = (
            f"{tasks} tasks in {len(passes)} passes took {now:.3g} s, {fewer} tasks are predicted "
            f"to take {then:.3g} s ({gain:.2f} times as fast)"
        )
        if gain >= WORTH:
            return f"Splitting would help: {told}."
        return f"Splitting would not help much: {told}; the work itself takes the time."


def _rounds(tasks: Sequence[Seen]) -> Iterator[list[Seen]]:
    """Start a new pass whenever a task reads a block that the current pass has already read."""
    group: list[Seen] = []
    seen: set[Any] = set()
    for task in tasks:
        # Results that all tasks read, such as centres, are last in `blocks`: compare the first.
        own = task.blocks[0]
        if own in seen:
            yield group
            group, seen = [], set()
        group.append(task)
        seen.add(own)
    if group:
        yield group


def _pass(tasks: Sequence[Seen], cores: int) -> Pass:
    return Pass(
        name=tasks[0].name,
        tasks=len(tasks),
        cores=cores,
        busy=sum(task.seconds for task in tasks),
        span=max(task.stop for task in tasks) - min(task.start for task in tasks),
        nbytes=sum(task.nbytes for task in tasks),
    )


class TaskWatcher(SchedulerPlugin):
    """Records the tasks of a scheduler."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: list[tuple[str, float, float, tuple[Any, ...], int]] = []

    async def start(self, scheduler: Scheduler) -> None:
        """Store the scheduler: a transition has only the key."""
        self._scheduler = scheduler
        self._sent: set[tuple[Any, str]] = set()
        self._waiting: dict[Any, tuple[tuple[Any, ...], int]] = {}

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Record the inputs of a task sent to a worker, and its times once it has finished."""
        if finish == "processing":
            self._waiting[key] = self._inputs(key)
        elif start == "processing":
            blocks, nbytes = self._waiting.pop(key, ((), 0))
            computed = [s for s in kwargs.get("startstops", ()) if s["action"] == "compute"]
            if finish == "memory" and computed:
                name = self._scheduler.tasks[key].prefix.name
                first, last = computed[0]["start"], computed[-1]["stop"]
                self.seen.append((name, first, last, blocks, nbytes))

    def _inputs(self, key: Any) -> tuple[tuple[Any, ...], int]:
        task = self._scheduler.tasks[key]
        worker = task.processing_on
        missing = 0
        assert worker is not None, "a task is processed by a worker"
        for block in task.dependencies:
            # A worker caches what it has received, for later tasks.
            there = worker in (block.who_has or ())
            if not there and (block.key, worker.address) not in self._sent:
                self._sent.add((block.key, worker.address))
                missing += max(block.nbytes, 0)
        # The block read by the fewest other tasks comes first: it is the task's own.
        blocks = sorted(task.dependencies, key=lambda block: len(block.dependents))
        return tuple(block.key for block in blocks), missing


def read_seen(dask_scheduler: Scheduler, name: str) -> tuple[list[tuple[Any, ...]], int]:
    """Return the recorded tasks, and the number of threads; runs on the scheduler."""
    watcher = dask_scheduler.plugins[name]
    assert isinstance(watcher, TaskWatcher)
    return list(watcher.seen), sum(worker.nthreads for worker in dask_scheduler.workers.values())


@contextmanager
def profiled(client: Client) -> Iterator[Profile]:
    """Record the tasks of a cluster while the context is open.

    Parameters
    ----------
    client : Client
        A synchronous client of the cluster.

    Yields
    ------
    Profile
        Filled when the context ends.
    """
    name = f"spliter-profile-{uuid.uuid4().hex}"
    client.register_plugin(TaskWatcher(name))
    found = Profile()
    try:
        yield found
    finally:
        seen, cores = client.run_on_scheduler(read_seen, name=name)
        fill(found, seen, cores)
        client.unregister_scheduler_plugin(name)


def fill(profile: Profile, seen: Sequence[tuple[Any, ...]], cores: int) -> None:
    """Add the tasks recorded by a scheduler."""
    profile.tasks += [Seen(*entry) for entry in seen]
    profile.cores = max(profile.cores, cores)
