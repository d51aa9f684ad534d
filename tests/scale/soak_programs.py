"""Programs of the soak test: uses of Splits one after the other, and the same without SplIter."""

from __future__ import annotations

import itertools
import operator
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import dask.array as da
from distributed import Client, wait

from spliter import Partition, reduce, split

ROWS = 10
"""Rows of a block."""

LONGEST_WAIT = 60
"""Maximum wait in seconds until the tasks of a burst are forgotten."""

_leaked: list[bytes] = []
"""Objects leaked on purpose."""


class Program(Protocol):
    """Uses of a cluster, each of which returns the number of started tasks."""

    ways: Sequence[Callable[[], int]]


def rows_of(partition: Partition) -> int:
    return sum(len(block if not isinstance(block, tuple) else block[0]) for block in partition)


def squares(block: Any) -> Any:
    return block**2


def plant(pieces: int) -> None:
    """Leak objects of 1 kB in this process."""
    _leaked.extend(bytes(1000) for _ in range(pieces))


class WithSplits:
    """Uses of Splits of a collection: made, iterated in several ways, and dropped."""

    def __init__(self, client: Client, blocks: int) -> None:
        self.client = client
        self.rows = blocks * ROWS
        self.x = da.ones((self.rows, 4), chunks=(ROWS, 4)).persist()
        self.y = da.ones((self.rows, 1), chunks=(ROWS, 1)).persist()
        wait([self.x, self.y])
        self.lasting = split(self.x)
        self.ways: Sequence[Callable[[], int]] = [
            self.one_pass,
            self.never_used,
            self.several_passes_together,
            self.materialized,
            self.aligned,
            self.mapped,
            self.reduced,
            self.dropped_under_way,
            self.pass_over_a_lasting_one,
        ]

    def check(self, rows: Sequence[int]) -> int:
        """Check a result; return the number of its tasks."""
        if sum(rows) != self.rows:
            raise RuntimeError(f"{sum(rows)} rows instead of {self.rows}")
        return len(rows)

    def one_pass(self) -> int:
        """Split, iterate, close."""
        with split(self.x) as parts:
            return 2 * self.check(self.client.gather(parts.map(rows_of)))

    def never_used(self) -> int:
        """Split and drop."""
        split(self.x)
        return 0

    def several_passes_together(self) -> int:
        """Send tasks of two passes in one message, and drop the Split."""
        parts = split(self.x)
        futures = [part.submit(rows_of) for _ in range(2) for part in parts]
        rows = self.client.gather(futures)
        return self.check(rows[: len(parts)]) + self.check(rows[len(parts) :]) + len(parts)

    def materialized(self) -> int:
        """Materialize each partition and use it twice."""
        with split(self.x, materialize=True) as parts:
            return sum(self.check(self.client.gather(parts.map(rows_of))) for _ in range(2)) + 2

    def aligned(self) -> int:
        """Split two collections."""
        parts = split(self.x, self.y)
        return 2 * self.check(self.client.gather(parts.map(rows_of)))

    def mapped(self) -> int:
        """Make a collection of the results, and drop it."""
        parts = split(self.x)
        made = parts.map_blocks(squares, dtype=float, trailing_shape=(4,))
        if made.shape != self.x.shape:
            raise RuntimeError(f"shape {made.shape}")
        return 2 * len(parts)

    def reduced(self) -> int:
        """Keep the future of a reduction only."""
        parts = split(self.x)
        total = reduce(operator.add, parts.map(rows_of))
        tasks = 2 * len(parts) + 1
        del parts
        self.check([total.result()])
        return tasks

    def dropped_under_way(self) -> int:
        """Drop the Split and the futures of tasks that are running."""
        parts = split(self.x)
        parts.map(rows_of)
        return 2 * len(parts)

    def pass_over_a_lasting_one(self) -> int:
        """Use a Split that was created at the start."""
        return self.check(self.client.gather(self.lasting.map(rows_of)))


class WithoutSplits:
    """Plain Dask: four tasks in two layers, gathered and dropped.

    The next four start when these are forgotten. Otherwise Dask sometimes merges many bursts into
    one, and keeps one record for all.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.ways: Sequence[Callable[[], int]] = [self.two_layers]

    def two_layers(self) -> int:
        """Start two tasks, and two that take their results."""
        first = self.client.map(abs, range(2), pure=False)
        second = self.client.map(operator.neg, first, pure=False)
        if self.client.gather(second) != [0, -1]:
            raise RuntimeError("wrong results")
        tasks = len(first) + len(second)
        del first, second
        cluster: Any = self.client.cluster
        deadline = time.monotonic() + LONGEST_WAIT
        while cluster.scheduler.tasks:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(cluster.scheduler.tasks)} tasks are not forgotten")
            time.sleep(0.001)
        return tasks


class Leaky:
    """The uses of another program, each followed by a leak of objects in every process."""

    def __init__(self, program: Program, client: Client, pieces: int) -> None:
        self.client = client
        self.pieces = pieces
        self.ways: Sequence[Callable[[], int]] = [
            lambda way=way: self.leaking(way)  # type: ignore[misc]
            for way in program.ways
        ]

    def leaking(self, way: Callable[[], int]) -> int:
        """Run one use, and leak objects."""
        started = way()
        plant(self.pieces)
        self.client.run(plant, self.pieces)
        return started


def run_tasks(program: Program, tasks: int) -> tuple[int, int]:
    """Start about `tasks` tasks; return the numbers of started tasks and of uses."""
    started = 0
    for used, way in enumerate(itertools.cycle(program.ways), start=1):
        started += way()
        if started >= tasks:
            return started, used
    raise AssertionError("unreachable")
