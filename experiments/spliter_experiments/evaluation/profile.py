"""See what a program of one's own does on Dask, and whether SplIter would help it.

While it runs, a plugin of the scheduler notes every task: which stored results (blocks) it read,
how long it computed, and how much had to be sent to its worker. From that follow the *passes*, a
task for each block of a collection, and what they would take with one task per core:

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
from pathlib import Path
from typing import Any

from distributed import Client, Scheduler, SchedulerPlugin
from matplotlib.figure import Figure

from spliter_experiments.harness.plot import save

WORTH = 1.25
"""From what gain on splitting is said to help."""

LEAST_SECONDS = 0.02
"""Of a pass without work: measured with two to eight workers, one task each."""

FEWEST_TASKS = 2
"""Tasks per core from which on there is something to put together."""


@dataclass(frozen=True)
class Seen:
    """A task that has run.

    Parameters
    ----------
    name : str
        What Dask calls tasks like it.
    start, stop : float
        When it computed.
    blocks : tuple
        The results that it read, by key.
    nbytes : int
        Sent to its worker for it.
    """

    name: str
    start: float
    stop: float
    blocks: tuple[Any, ...]
    nbytes: int

    @property
    def seconds(self) -> float:
        """How long it computed."""
        return self.stop - self.start


@dataclass(frozen=True)
class Pass:
    """Tasks of one name that read each block once.

    Parameters
    ----------
    name : str
        What Dask calls the tasks.
    tasks, cores : int
        How many there were, and how many run at once.
    busy, span : float
        Seconds that all of them computed, and from the first to the last.
    nbytes : int
        Sent to workers for them.
    """

    name: str
    tasks: int
    cores: int
    busy: float
    span: float
    nbytes: int

    @property
    def work(self) -> float:
        """Seconds that the work alone takes, on all cores."""
        return self.busy / self.cores

    @property
    def split(self) -> float:
        """Seconds it is predicted to take with one task per core.

        What it took beyond the work is put down to its tasks, each the same share; what is told,
        run and answered takes a moment however few tasks there are.
        """
        beyond = max(self.span - self.work, 0.0)
        least = beyond / self.tasks * min(self.tasks, self.cores)
        return self.work + max(least, min(beyond, LEAST_SECONDS))

    @property
    def gain(self) -> float:
        """How many times as fast it would be."""
        return self.span / self.split if self.split > 0 else 1.0

    @property
    def can_be_split(self) -> bool:
        """Whether there are several tasks for each core."""
        return self.tasks >= FEWEST_TASKS * self.cores


@dataclass
class Profile:
    """What a program did.

    Parameters
    ----------
    tasks : list of Seen
        All of its tasks, as they finished.
    cores : int
        Tasks that the cluster runs at once.
    """

    tasks: list[Seen] = field(default_factory=list)
    cores: int = 0

    @property
    def blocks(self) -> int:
        """How many results were read by tasks."""
        return len({block for task in self.tasks for block in task.blocks})

    @property
    def nbytes(self) -> int:
        """Bytes sent to workers."""
        return sum(task.nbytes for task in self.tasks)

    def passes(self) -> list[Pass]:
        """Return the passes, those of a name in a row in the order in which they ran."""
        names = dict.fromkeys(task.name for task in self.tasks if task.blocks)
        found = []
        for name in names:
            mine = sorted(
                (task for task in self.tasks if task.name == name and task.blocks),
                key=lambda task: task.start,
            )
            found += [_pass(group, self.cores) for group in _rounds(mine)]
        return found

    def verdict(self) -> str:
        """Say in a sentence whether splitting would help."""
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
    """Cut tasks where one reads a block that the ones before have read: another pass begins."""
    group: list[Seen] = []
    seen: set[Any] = set()
    for task in tasks:
        # What all of them read, such as the centres of an iteration, is no block of a collection.
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
    """Notes the tasks of a scheduler."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: list[tuple[str, float, float, tuple[Any, ...], int]] = []

    async def start(self, scheduler: Scheduler) -> None:
        """Keep the scheduler: a transition names the key only."""
        self._scheduler = scheduler
        self._sent: set[tuple[Any, str]] = set()
        self._waiting: dict[Any, tuple[tuple[Any, ...], int]] = {}

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Note what a task that is given to a worker will read, and when it has computed."""
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
            # A worker keeps what it has been sent, for the next one that asks for it.
            there = worker in (block.who_has or ())
            if not there and (block.key, worker.address) not in self._sent:
                self._sent.add((block.key, worker.address))
                missing += max(block.nbytes, 0)
        # The one that the fewest others read comes first: it is the task's own.
        blocks = sorted(task.dependencies, key=lambda block: len(block.dependents))
        return tuple(block.key for block in blocks), missing


def read_seen(dask_scheduler: Scheduler, name: str) -> tuple[list[tuple[Any, ...]], int]:
    """Return what has been noted, and how many tasks run at once; runs on the scheduler."""
    watcher = dask_scheduler.plugins[name]
    assert isinstance(watcher, TaskWatcher)
    return list(watcher.seen), sum(worker.nthreads for worker in dask_scheduler.workers.values())


@contextmanager
def profiled(client: Client) -> Iterator[Profile]:
    """Note what is done on a cluster for the time of a context.

    Parameters
    ----------
    client : Client
        Synchronous client of the cluster.

    Yields
    ------
    Profile
        Filled in when the context ends.
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
    """Add what a scheduler has noted."""
    profile.tasks += [Seen(*entry) for entry in seen]
    profile.cores = max(profile.cores, cores)


def write_profile_figure(profile: Profile, folder: Path) -> list[Path]:
    """Draw what passes took and would take into ``profile.png`` and ``profile.svg``.

    Raises
    ------
    ResultsError
        If they cannot be written.
    """
    return save(draw_profile(profile), folder, "profile")


def draw_profile(profile: Profile) -> Figure:
    """Return the figure: passes of a name together, work and what the tasks add to it."""
    figure = Figure(figsize=(8, 1.6 + 0.9 * max(len(_by_name(profile)), 1)), layout="constrained")
    axes = figure.subplots()
    labels: list[str] = []
    for name, passes in _by_name(profile).items():
        work = sum(found.work for found in passes)
        rows = (
            (f"{name}, now", sum(found.span for found in passes), "#d55e00"),
            (f"{name}, split (predicted)", sum(found.split for found in passes), "#0072b2"),
        )
        for label, seconds, colour in rows:
            place = len(labels)
            axes.barh(place, work, color="#bbbbbb")
            axes.barh(place, max(seconds - work, 0.0), left=work, color=colour)
            labels.append(label)
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xlabel("seconds (grey: the work on all cores; colour: what the tasks add)")
    axes.set_title(profile.verdict(), fontsize=9, loc="left", wrap=True, parse_math=False)
    for side in "top", "right":
        axes.spines[side].set_visible(False)
    return figure


def _by_name(profile: Profile) -> dict[str, list[Pass]]:
    found: dict[str, list[Pass]] = {}
    for one in profile.passes():
        if one.can_be_split:
            found.setdefault(one.name, []).append(one)
    return found
