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
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from distributed import Client, Scheduler, SchedulerPlugin

Times: TypeAlias = npt.NDArray[np.float64]
"""Starts and stops of tasks, of shape (ntasks, 2)."""

WORTH = 1.25
"""Minimum speed-up at which splitting is recommended."""

LEAST_SECONDS = 0.02
"""Seconds of a pass without work, measured with two to eight workers and one task each."""

FEWEST_TASKS = 2
"""Minimum tasks per core for a pass to be split."""


@dataclass(frozen=True)
class TaskRecord:
    """A finished task, by Dask's name of its kind (key prefix).

    It computed between two Unix times; `blocks` are the keys of the results that it read, `nbytes`
    were sent to its worker for it. `combined` intermediate results are read by this task alone: two
    or more in each step of a tree reduction.
    """

    name: str
    start: float
    stop: float
    blocks: tuple[Any, ...]
    nbytes: int
    combined: int = 0

    @property
    def seconds(self) -> float:
        """Compute time."""
        return self.stop - self.start


@dataclass(frozen=True)
class Pass:
    """Tasks of one name, each of which reads a different block.

    `cores` tasks run at the same time; `busy` are their compute seconds in all, `start` and `stop`
    the Unix times of the first start and the last stop. After splitting there are `split_tasks`.
    `others` are the tasks that ran in between, for `others_busy` compute seconds. Steps of a tree
    reduction have no blocks of their own.
    """

    name: str
    tasks: int
    cores: int
    busy: float
    start: float
    stop: float
    nbytes: int
    split_tasks: int
    others: int = 0
    others_busy: float = 0.0
    is_reduction: bool = False

    @property
    def span(self) -> float:
        """Seconds from the first start to the last stop."""
        return self.stop - self.start

    @property
    def work(self) -> float:
        """Seconds of the computation alone, on all cores."""
        return self.busy / self.cores

    @property
    def split(self) -> float:
        """Predicted seconds with one task per core.

        The time beyond the computation, that of other tasks included, is divided evenly among the
        tasks; a pass takes at least `LEAST_SECONDS` of it, however few tasks there are.
        """
        work = (self.busy + self.others_busy) / self.cores
        beyond = max(self.span - work, 0.0)
        left = (self.split_tasks + self.others) / (self.tasks + self.others)
        return work + max(beyond * left, min(beyond, LEAST_SECONDS))

    @property
    def gain(self) -> float:
        """Predicted speed-up."""
        return self.span / self.split if self.split > 0 else 1.0

    @property
    def can_be_split(self) -> bool:
        """Whether there are at least `FEWEST_TASKS` tasks per core, each with a block."""
        return self.tasks >= FEWEST_TASKS * self.cores and not self.is_reduction


@dataclass
class Profile:
    """Recorded tasks of a program, in the order in which they finished, and the cores they had."""

    tasks: list[TaskRecord] = field(default_factory=list)
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
        named: dict[str, list[TaskRecord]] = {}
        for task in self.tasks:  # by start, short passes would mix: the workers' clocks differ
            if task.blocks:
                named.setdefault(task.name, []).append(task)
        times = self._times()
        return [
            _pass(group, self.cores, times) for tasks in named.values() for group in _rounds(tasks)
        ]

    def _times(self) -> Times:
        return np.array([(task.start, task.stop) for task in self.tasks]).reshape(-1, 2)

    def verdict(self) -> str:
        """Return a sentence on whether splitting would help."""
        passes = [found for found in self.passes() if found.can_be_split]
        if not passes:
            return (
                "Splitting would not help: nowhere are there several tasks for each of the "
                f"{self.cores} cores."
            )
        groups = list(_merged(passes, self._times()))
        now, then = sum(g.span for g in groups), sum(g.split for g in groups)
        gain = now / then if then > 0 else 1.0
        tasks, fewer = sum(p.tasks for p in passes), sum(p.split_tasks for p in passes)
        found = (
            f"{_count(tasks, 'task')} in {_count(len(passes), 'pass', 'passes')} took {now:.3g} s, "
            f"{_count(fewer, 'task')} are predicted to take {then:.3g} s ({gain:.1f} times as fast)"
        )
        if gain >= WORTH:
            return f"Splitting would help: {found}."
        return f"Splitting would not help much: {found}; the work itself takes the time."


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _rounds(tasks: Sequence[TaskRecord]) -> Iterator[list[TaskRecord]]:
    """Start a new pass whenever a task reads a block that the current pass has already read."""
    group: list[TaskRecord] = []
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


def _pass(tasks: Sequence[TaskRecord], cores: int, times: Times) -> Pass:
    """Describe the tasks of a pass, given the start and stop of all tasks of the program."""
    found = Pass(
        name=tasks[0].name,
        tasks=len(tasks),
        cores=cores,
        busy=sum(task.seconds for task in tasks),
        start=min(task.start for task in tasks),
        stop=max(task.stop for task in tasks),
        nbytes=sum(task.nbytes for task in tasks),
        split_tasks=min(len(tasks), cores),
        is_reduction=sum(task.combined for task in tasks) > len(tasks),
    )
    return _with_others(found, times)


def _with_others(found: Pass, times: Times) -> Pass:
    """Count what else ran between the start and the stop of a pass."""
    within = np.minimum(times[:, 1], found.stop) - np.maximum(times[:, 0], found.start)
    within = within[within >= 0]
    return replace(
        found,
        others=len(within) - found.tasks,
        others_busy=max(float(within.sum()) - found.busy, 0.0),
    )


def _merged(passes: Sequence[Pass], times: Times) -> Iterator[Pass]:
    """Merge passes that run at the same time, so that no second counts twice."""
    groups: list[Pass] = []
    for one in sorted(passes, key=lambda found: found.start):
        if not groups or one.start >= groups[-1].stop:
            groups.append(one)
            continue
        last = groups[-1]
        groups[-1] = replace(
            last,
            tasks=last.tasks + one.tasks,
            busy=last.busy + one.busy,
            stop=max(last.stop, one.stop),
            split_tasks=last.split_tasks + one.split_tasks,
        )
    return (_with_others(group, times) for group in groups)


class TaskWatcher(SchedulerPlugin):
    """Records the tasks of a scheduler."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.records: list[tuple[str, float, float, tuple[Any, ...], int, int]] = []

    async def start(self, scheduler: Scheduler) -> None:
        """Store the scheduler: a transition has only the key."""
        self._scheduler = scheduler
        self._sent: set[tuple[Any, str]] = set()
        self._waiting: dict[Any, tuple[tuple[Any, ...], int, int]] = {}

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Record the inputs of a task sent to a worker, and its times once it has finished."""
        if finish == "processing":
            self._waiting[key] = self._inputs(key)
        elif start == "processing":
            inputs = self._waiting.pop(key, ((), 0, 0))
            computed = [s for s in kwargs.get("startstops", ()) if s["action"] == "compute"]
            if finish == "memory" and computed:
                name = self._scheduler.tasks[key].prefix.name
                first, last = computed[0]["start"], computed[-1]["stop"]
                self.records.append((name, first, last, *inputs))

    def _inputs(self, key: Any) -> tuple[tuple[Any, ...], int, int]:
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
        # Results that the program holds are blocks; a reduction combines some that nobody holds.
        combined = sum(len(block.dependents) == 1 and not block.who_wants for block in blocks)
        return tuple(block.key for block in blocks), missing, combined


def read_records(dask_scheduler: Scheduler, name: str) -> tuple[list[tuple[Any, ...]], int]:
    """Return the recorded tasks, and the number of threads; runs on the scheduler."""
    watcher = dask_scheduler.plugins[name]
    assert isinstance(watcher, TaskWatcher)
    return list(watcher.records), sum(worker.nthreads for worker in dask_scheduler.workers.values())


@contextmanager
def profiled(client: Client) -> Iterator[Profile]:
    """Record the tasks of the cluster of a synchronous client while the context is open.

    The profile is filled when the context ends.
    """
    name = f"spliter-profile-{uuid.uuid4().hex}"
    client.register_plugin(TaskWatcher(name))
    found = Profile()
    try:
        yield found
    finally:
        records, cores = client.run_on_scheduler(read_records, name=name)
        fill(found, records, cores)
        client.unregister_scheduler_plugin(name)


def fill(profile: Profile, records: Sequence[tuple[Any, ...]], cores: int) -> None:
    """Add the tasks recorded by a scheduler."""
    profile.tasks += [TaskRecord(*entry) for entry in records]
    profile.cores = max(profile.cores, cores)
