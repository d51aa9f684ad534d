"""See whether memory stays flat while one program starts task after task on Dask.

    python benchmarks/soak.py --tasks 100000

One embedded cluster of two worker processes; the scheduler is in this process, beside the client.
Splits are made, iterated in several ways and dropped, again and again. At intervals, once all is
quiet, it is counted what is left: tasks at the scheduler and the workers, futures at the client,
values in the workers' memory, SplIter's own objects anywhere. All of that has to be as before the
first task, or the command fails; what Dask's own logs hold is cleared away before. Objects and
bytes of the processes as a whole are shown beside that: Dask keeps a record of each burst of tasks,
and of its groups of tasks, for as long as the scheduler lives (``distributed.spans``).
``--without-spans`` runs a cluster that has no such records.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import operator
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import dask
import dask.array as da
import distributed.scheduler
import distributed.worker
import psutil
from distributed import Client, LocalCluster, wait

from spliter import Partition, reduce, split

BLOCKS = 40
SETTLE_SECONDS = 60.0

LOGGED = 10
"""Messages that Dask keeps of each connection, for people to look at; 1,000 unless set."""

EXTENSIONS = (distributed.scheduler.DEFAULT_EXTENSIONS, distributed.worker.DEFAULT_EXTENSIONS)


@dataclass(frozen=True)
class Census:
    """What there is in one program, its scheduler and its workers.

    Parameters
    ----------
    counts : dict of str to int
        What has to be the same again once all is quiet.
    own : Counter of str
        Objects of SplIter's classes by class, in all processes.
    objects : int
        Objects that Python's collector knows of, in all processes.
    here, workers : int
        Resident memory of this process (client and scheduler), and of both workers, in bytes.
    """

    counts: dict[str, int]
    own: Counter[str]
    objects: int
    here: int
    workers: int


def own_objects() -> Counter[str]:
    """Count the objects of SplIter's classes in this process."""
    gc.collect()
    names = (f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())
    return Counter(name for name in names if name.startswith(("spliter.", "spliter_backends.")))


def look_at_worker(dask_worker: Any) -> tuple[int, int, Counter[str], int, int]:
    """Run on a worker: values, tasks, SplIter's objects, all objects, bytes."""
    dask_worker.batched_stream.recent_message_log.clear()
    dask_worker.state.stimulus_log.clear()
    own = own_objects()
    return (
        len(dask_worker.data),
        len(dask_worker.state.tasks),
        own,
        len(gc.get_objects()),
        psutil.Process().memory_info().rss,
    )


def clear_logs(scheduler: Any) -> None:
    """Forget what the scheduler keeps of tasks that are gone, for people and for itself.

    The last messages of each connection are batches of tasks with their arguments. Work stealing
    remembers tasks of a function that it has no duration of until one of that function has ended.
    """
    for comms in (scheduler.stream_comms, scheduler.client_comms):
        for comm in comms.values():
            comm.recent_message_log.clear()
    for waiting in scheduler.extensions["stealing"].unknown_durations.values():
        waiting.intersection_update(scheduler.tasks.values())


def census(client: Client) -> Census:
    """Count everything once."""
    cluster: Any = client.cluster
    scheduler: Any = cluster.scheduler
    clear_logs(scheduler)
    workers = list(client.run(look_at_worker).values())
    own = sum((found for _, _, found, _, _ in workers), own_objects())
    # What stays for the life of a client: one executor, and the state of the modules.
    lasting = ("DaskExecutor", "_Messages", "_Room", "_Lazy")
    counts = {
        "tasks at the scheduler": len(scheduler.tasks),
        "keys that clients want": sum(
            len(state.wants_what) for state in scheduler.clients.values()
        ),
        "futures at the client": len(client.futures),
        "references to futures": sum(client.refcount.values()),
        "values at the workers": sum(values for values, *_ in workers),
        "tasks at the workers": sum(tasks for _, tasks, *_ in workers),
    }
    own = Counter({name: n for name, n in own.items() if not name.endswith(lasting)})
    objects = len(gc.get_objects()) + sum(found for *_, found, _ in workers)
    here = psutil.Process().memory_info().rss
    return Census(counts, own, objects, here, sum(found for *_, found in workers))


def settled(client: Client, start: Census | None = None) -> Census:
    """Count until nothing is left since `start`, or by default stays the same; a minute at most."""
    deadline = time.monotonic() + SETTLE_SECONDS
    found = census(client)
    while time.monotonic() < deadline:
        if start is not None and not left_since(start, found):
            break
        # Longer than the second after which SplIter looks what has become of its tasks.
        time.sleep(2.5 if start is None else 0.5)
        before, found = found, census(client)
        if start is None and (found.counts, found.own) == (before.counts, before.own):
            break
    return found


def left_since(start: Census, now: Census) -> int:
    """Return how many tasks, futures, values and objects are left that were not there before."""
    counts = sum(abs(now.counts[name] - start.counts[name]) for name in now.counts)
    return counts + max(now.own.total() - start.own.total(), 0)


def rows_of(partition: Partition) -> int:
    """Count the rows of a partition."""
    return sum(len(block if not isinstance(block, tuple) else block[0]) for block in partition)


def squares(block: Any) -> Any:
    """Square a block."""
    return block**2


class Program:
    """Ways to use a Split, each of which says how many tasks it has started."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.x = da.ones((BLOCKS * 10, 4), chunks=(10, 4)).persist()
        self.y = da.ones((BLOCKS * 10, 1), chunks=(10, 1)).persist()
        wait([self.x, self.y])
        self.lasting = split(self.x)
        self.ways: list[Callable[[], int]] = [
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
        """Check a result; return how many tasks it took."""
        if sum(rows) != BLOCKS * 10:
            raise RuntimeError(f"{sum(rows)} rows instead of {BLOCKS * 10}")
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
        with parts.together():
            futures = [part.submit(rows_of) for _ in range(2) for part in parts]
        rows = self.client.gather(futures)
        return self.check(rows[: len(parts)]) + self.check(rows[len(parts) :]) + len(parts)

    def materialized(self) -> int:
        """Put each partition into one block, twice used."""
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
        """Hold the future of a reduction alone."""
        parts = split(self.x)
        total = reduce(operator.add, parts.map(rows_of))
        tasks = 2 * len(parts) + 1
        del parts
        self.check([total.result()])
        return tasks

    def dropped_under_way(self) -> int:
        """Drop the Split and the futures of tasks that have just been started."""
        parts = split(self.x)
        parts.map(rows_of)
        return 2 * len(parts)

    def pass_over_a_lasting_one(self) -> int:
        """Use a Split that was made in the beginning."""
        return self.check(self.client.gather(self.lasting.map(rows_of)))


def run_tasks(program: Program, tasks: int) -> tuple[int, int]:
    """Start about so many tasks; return how many, and how often a way was used."""
    started = 0
    for used, way in enumerate(itertools.cycle(program.ways), start=1):
        started += way()
        if started >= tasks:
            return started, used
    raise AssertionError("unreachable")


def cluster_of_two(spans: bool) -> LocalCluster:
    """Start a cluster, with Dask's records of bursts of tasks or without them."""
    of_scheduler, of_worker = (
        {name: made for name, made in extensions.items() if spans or name != "spans"}
        for extensions in EXTENSIONS
    )
    return LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        dashboard_address="127.0.0.1:0",
        scheduler_kwargs={"extensions": of_scheduler},
        extensions=of_worker,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command line; that of the process by default.

    Returns
    -------
    int
        1 if something was left behind.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--looks", type=int, default=10, help="how often to count")
    parser.add_argument("--without-spans", action="store_true", help="leave Dask's records out")
    options = parser.parse_args(arguments)
    with (
        dask.config.set({"distributed.admin.low-level-log-length": LOGGED}),
        cluster_of_two(spans=not options.without_spans) as cluster,
        Client(cluster) as client,
    ):
        program = Program(client)
        run_tasks(program, 150)  # what is made once is made, and the logs are full
        before = settled(client)
        print(f"before: {before.counts}, objects of SplIter: {before.own.total()}")
        print(
            f"{'tasks':>9} {'uses':>7} {'left':>6} {'objects':>9} "
            f"{'MB: client and scheduler':>25} {'workers':>8}"
        )
        started = used = 0
        ends = [before]
        for _ in range(options.looks):
            more, times = run_tasks(program, options.tasks // options.looks)
            started, used = started + more, used + times
            ends.append(settled(client, before))
            now = ends[-1]
            left = left_since(before, now)
            print(
                f"{started:>9} {used:>7} {left:>6} {now.objects:>9} "
                f"{now.here / 1e6:>25.0f} {now.workers / 1e6:>8.0f}",
                flush=True,
            )
            if left:
                print(f"left behind: {now.counts}, before: {before.counts}")
                print(f"more objects: {now.own - before.own}")
                return 1
        spans: Any = client.cluster.scheduler.extensions.get("spans")
        kept = len(spans.spans) if spans else 0
        grown = (ends[-1].objects - ends[1].objects) / max(used - used // options.looks, 1)
        print(f"a use leaves {grown:.1f} objects, {kept / used:.2f} spans: Dask's own")
    return 0


if __name__ == "__main__":
    sys.exit(main())
