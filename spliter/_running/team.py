"""Run a function on the partitions of one location with a team of threads, in one task.

The threads take partitions from queues until all have been run::

    central     0 1 2 3 4 5           one queue for all threads
    group       0 2 4   1 3 5         one queue for the threads of each NUMA node
    core        0 4   1 5   2   3     one queue for each thread

A thread whose queue is empty takes from the tail of another one, of its own group first. The
results are combined in the order of the collection, so they do not depend on which thread ran what.
"""

from __future__ import annotations

import contextvars
import functools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from spliter._checks import check_choice, check_count, check_task_function, name_of
from spliter._errors import InvalidArgumentError
from spliter._partition import Partition
from spliter._plan import Plan, first_block
from spliter._planning.planner import Location
from spliter._reading.pace import FOLLOWING, Pace
from spliter._running.results import reduce
from spliter.metrics._records import STOLEN

Queues: TypeAlias = Literal["central", "core", "group"]

NUMA_NODES: Final = Path("/sys/devices/system/node")

RETRY_SECONDS: Final = 0.05
"""Seconds until a thread without a core asks for one again."""

MAX_THREADS: Final = 1024
"""Threads of all teams in a process: more than the cores of any machine. If there were none left, a
team would run with fewer."""

_threads = ThreadPoolExecutor(MAX_THREADS, "spliter-team")


@dataclass(frozen=True)
class Team:
    """The body of a task in which threads run a function on the partitions of a location."""

    fn: Callable[..., Any]
    combine: Callable[[Any, Any], Any]
    threads: int
    queues: Queues
    partitions: int

    @property
    def __name__(self) -> str:
        """Name of the function, for errors and the tools of the engine."""
        return name_of(self.fn)

    def __call__(self, cores: Callable[[], int], /, *given: Any) -> Any:
        """Run the function on the partitions among what is given, and return the combined result.

        `cores` returns how many threads may run now; 0 if the task was cancelled, which raises
        `CancelledError`. Raises the error of the first partition, in the order of the collection,
        that has failed; once one has failed no other begins.
        """
        return _TeamTask(self, given[: self.partitions], given[self.partitions :], cores).run()


def team_size(threads: int | None, location: Location, cores: int) -> int:
    """Return the number of threads at a location: as requested, or one per core."""
    if threads is None:
        return cores
    check_count("threads", threads, instead="None or ")
    if threads > cores:
        raise InvalidArgumentError(
            f"threads is {threads}, and {location} has {cores}; pass at most {cores}, or start "
            "the engine with more"
        )
    return int(threads)


def map_reduce(
    plan: Plan,
    fn: Callable[..., Any],
    combine: Callable[[Any, Any], Any],
    args: Sequence[Any],
    threads: int | None,
    queues: Queues,
) -> Any:
    """Start a team at each location, as :meth:`spliter.Split.map_reduce`; return the future."""
    check_task_function(fn)
    check_task_function(combine, "combine, the second argument of map_reduce,")
    check_choice("queues", queues, "central", "core", "group")
    here: dict[Location, list[Partition]] = {}
    for partition in plan.begin_pass():
        here.setdefault(partition.location, []).append(partition)
    futures = []
    for location in sorted(here, key=lambda location: first_block(here[location])):
        partitions = here[location]
        size = team_size(threads, location, plan.capacities[location])
        team = Team(fn, combine, size, queues, len(partitions))
        futures.append(plan.executor.submit_team(team, (*partitions, *args), location, size))
    return reduce(combine, futures)


class _TeamTask:
    """One call of a team: the partitions left, and the results combined so far."""

    def __init__(
        self,
        team: Team,
        partitions: Sequence[Partition],
        arguments: Sequence[Any],
        cores: Callable[[], int],
    ) -> None:
        self._team = team
        self._partitions = partitions
        self._arguments = arguments
        self._cores = cores
        self._waiting = WorkQueues.of(team, numa_nodes())
        self._order = sorted(range(len(partitions)), key=self._first_block)
        self._ended = threading.Event()
        self._started: deque[Future[None]] = deque()
        self._lock = threading.Lock()
        self._taking = threading.Lock()
        self._combined = 0
        self._results: dict[int, Any] = {}
        self._errors: dict[int, BaseException] = {}

    def _first_block(self, number: int) -> int:
        return int(self._partitions[number].indexes.positions[0])

    def run(self) -> Any:
        """Run all partitions, and return the combined result."""
        try:
            contextvars.copy_context().run(self._work, 0)
        finally:
            self._ended.set()  # nothing is left to begin, or this thread was interrupted
            while self._started:
                thread = self._started.popleft()
                if not thread.cancel():
                    thread.result()
            for partition in self._partitions:
                partition._blocks.drop_begun()
        return self._result()

    def _start(self, thread: int) -> None:
        """Start a thread if partitions wait for it.

        Its context tells functions of the engine which task they belong to.
        """
        if thread < self._team.threads and self._waiting:
            context = contextvars.copy_context()
            self._started.append(_threads.submit(context.run, self._work, thread))

    def _work(self, thread: int) -> None:
        """Run partitions until none is left, one has failed, or the task was cancelled."""
        # Each thread starts two others: a short pass ends before most have been started.
        self._start(2 * thread + 1)
        self._start(2 * thread + 2)
        FOLLOWING.set(functools.partial(self._read_ahead, thread))
        while not self._ended.is_set():
            cores = self._cores()
            if not cores:
                return
            if thread >= cores:  # this core runs another task at the moment
                self._ended.wait(RETRY_SECONDS)
                continue
            with self._taking:
                taken = self._waiting.take(thread)
            if taken is None:
                return
            number, is_stolen = taken
            is_stolen_here = STOLEN.set(is_stolen)
            try:
                result = self._team.fn(self._partitions[number], *self._arguments)
                self._add(number, result)
            except BaseException as error:  # noqa: BLE001 -- raised by the task's thread
                self._errors[number] = error
                self._ended.set()
            finally:
                STOLEN.reset(is_stolen_here)

    def _read_ahead(self, thread: int, pace: Pace, depth: int) -> None:
        """Read blocks of the partitions that a thread will take next."""
        with self._taking:  # one that has been taken reads its blocks itself
            for number in self._waiting.queue_of(thread):
                if depth <= 0 or self._ended.is_set():
                    return
                depth -= self._partitions[number]._blocks.begin(pace, depth)

    def _add(self, number: int, result: Any) -> None:
        """Combine a result with those before it, as soon as all of them are there."""
        with self._lock:
            self._results[number] = result
            while self._combined < len(self._order):
                following = self._order[self._combined]
                if following not in self._results:
                    return
                first = self._order[0]
                if self._combined:
                    so_far, more = self._results[first], self._results.pop(following)
                    self._results[first] = self._team.combine(so_far, more)
                self._combined += 1

    def _result(self) -> Any:
        """Return the combined result, or raise the first error in the order of the collection."""
        try:
            for number in self._order:
                if number in self._errors:
                    raise self._errors[number]
            if self._combined < len(self._order):
                raise CancelledError("the task was cancelled between two partitions")
            return self._results[self._order[0]]
        finally:
            # The traceback of an error refers to this object.
            self._errors, self._results = {}, {}


class WorkQueues:
    """Numbers of the partitions that have not begun, in queues from head to tail.

    `order` has for each thread the queues that it takes from, its own one first.

    Examples
    --------
    >>> waiting = WorkQueues([[0, 2], [1, 3]], order=[[0, 1], [1, 0]])
    >>> [waiting.take(0) for _ in range(5)]
    [(0, False), (2, False), (3, True), (1, True), None]
    """

    def __init__(self, queues: Sequence[Sequence[int]], order: Sequence[Sequence[int]]) -> None:
        self._queues = [deque(queue) for queue in queues]
        self._order = order

    @classmethod
    def of(cls, team: Team, nodes: int) -> WorkQueues:
        """Distribute partitions in turn, for a machine with so many NUMA nodes."""
        threads = team.threads
        count = {"central": 1, "core": threads, "group": min(nodes, threads)}[team.queues]
        own = [thread * count // threads for thread in range(threads)]
        group = [queue * nodes // count for queue in range(count)]
        order = [
            sorted(
                range(count), key=lambda queue: (group[queue] != group[at], (queue - at) % count)
            )
            for at in own
        ]
        return cls([range(queue, team.partitions, count) for queue in range(count)], order)

    def __bool__(self) -> bool:
        """Whether a number is left."""
        return any(self._queues)

    def queue_of(self, thread: int) -> Iterator[int]:
        """Return an iterator over the numbers of a thread's own queue; no other may take any."""
        return iter(self._queues[self._order[thread][0]])

    def take(self, thread: int) -> tuple[int, bool] | None:
        """Remove and return the next number for a thread, and whether it was in another queue."""
        own, *others = self._order[thread]
        try:
            return self._queues[own].popleft(), False
        except IndexError:
            pass
        for other in others:
            try:
                return self._queues[other].pop(), True
            except IndexError:
                continue
        return None


@functools.cache
def numa_nodes() -> int:
    """Return the number of NUMA nodes of this machine; 1 where the system does not tell."""
    return max(len(list(NUMA_NODES.glob("node[0-9]*"))), 1)
