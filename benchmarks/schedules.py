"""Schedules of blocks that take unequal time, and what a pass costs."""

from __future__ import annotations

import functools
import operator
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import dask
import dask.array as da
import numpy as np
from dask.distributed import Client, Future, wait

from benchmarks.measure import Call, Place, benchmark, dask_cluster
from spliter import Partition, Schedule, Split, gather, reduce, split
from spliter._reading.measured import MeasuredBlocks
from spliter_experiments.compare.baseline import Baseline, start_baseline
from spliter_experiments.compare.engines.dask_meter import ClusterMeter
from spliter_experiments.harness.runner import Answer
from spliter_experiments.harness.table import Grid, quartiles

DEARER: Final = 10.0
"""Cost of the first half of the blocks; that of the others is 1."""

BURNT: Final = np.linspace(0.0, 1.0, 100_000)
"""Numbers of one NumPy call, about 1 ms: as many as a block that takes so long has itself."""

SINES_PER_MS: Final = 100_000

SIDE, PICTURES = 128, ("grass", "page", "text", "gravel", "coins", "moon", "brick", "camera")
"""Pixels of the side of a picture; pictures in scikit-image, those with the most objects first."""

TEXT, REPEATED = 32_768, 64
"""Characters of a text, and of the part that repetitive texts repeat."""

_buffers = threading.local()
"""Where each thread writes what it computes: allocating so much takes a lock of the process."""


def cost_of(number: int, blocks: int) -> float:
    return DEARER if number < blocks / 2 else 1.0


def burn(number: int, blocks: int, ms: float) -> int:
    """Compute for a time in proportion to the cost of a block."""
    if not hasattr(_buffers, "out"):
        _buffers.out = np.empty_like(BURNT)
    left = round(cost_of(number, blocks) * ms * SINES_PER_MS)
    while left > 0:
        np.sin(BURNT[:left], out=_buffers.out[:left])
        left -= len(BURNT)
    return number


def burn_evenly(number: int, blocks: int, ms: float) -> int:
    return burn(0, 1, ms * (DEARER + 1) / 2 / DEARER) + number


def sleep(number: int, blocks: int, ms: float) -> int:
    """Sleep as long: emulates more cores than the machine has."""
    time.sleep(cost_of(number, blocks) * ms / 1000)
    return number


def label(number: int, blocks: int, ms: float) -> int:
    """Label and measure the objects in a picture, which holds the interpreter lock."""
    from scipy import ndimage

    labels, count = ndimage.label(picture(number, blocks))
    places = enumerate(ndimage.find_objects(labels), start=1)
    return count + max((int((labels[at] == one).sum()) for one, at in places), default=0)


@functools.cache
def picture(number: int, blocks: int) -> Any:
    """Return a random part of a picture: True where it is bright."""
    from skimage import data

    whole = np.asarray(getattr(data, PICTURES[number * len(PICTURES) // blocks])())
    top, left = np.random.default_rng(number).integers(whole.shape[:2])
    lines = (whole > whole.mean())[np.arange(top, top + SIDE) % whole.shape[0]]
    return np.take(lines, np.arange(left, left + SIDE), axis=1, mode="wrap")


def compress(number: int, blocks: int, ms: float) -> int:
    """Compress a text; the second half of them is repetitive."""
    return len(zlib.compress(text(number, blocks)))


@functools.cache
def text(number: int, blocks: int) -> bytes:
    """Return a text of random letters, or of a part that is repeated."""
    letters = TEXT if number < blocks / 2 else REPEATED
    drawn = np.random.default_rng(number).integers(97, 123, letters, dtype=np.uint8)
    return bytes(np.resize(drawn, TEXT))


WORK: Final = {
    "simulated": burn,
    "even": burn_evenly,
    "emulated": sleep,
    "label": label,
    "zlib": compress,
}


def process(blocks: Iterable[Any], work: Callable[[int], int]) -> int:
    """Process blocks, one after the other; a block is its number."""
    return sum(work(int(block[0])) for block in blocks)


def timed(blocks: list[Any], work: Callable[[int], int], clock: Callable[[], float]) -> float:
    """Return the seconds that blocks take."""
    start = clock()
    process(blocks, work)
    return clock() - start


def in_threads(blocks: list[Any], work: Callable[[int], int], threads: int) -> int:
    from joblib import Parallel, delayed

    calls = (delayed(process)([block], work) for block in blocks)
    return sum(Parallel(n_jobs=threads, prefer="threads")(calls))


def by_tasks(parts: Split, work: Callable[[int], int]) -> int:
    return int(reduce(operator.add, parts.map(process, work)).result())


def by_team(parts: Split, work: Callable[[int], int]) -> int:
    return int(parts.map_reduce(process, operator.add, work).result())


def third_pass(parts: Split, work: Callable[[int], int]) -> Answer:
    """Run three passes of schedule AUTO; the seconds are those of the last."""
    for _ in range(3):
        start = time.perf_counter()
        found = by_tasks(parts, work)
    return Answer(found, seconds=time.perf_counter() - start)


class Numbers:
    """Numbers of blocks, for plain processes."""

    origin = "numbers"

    def __init__(self, order: Any) -> None:
        self.order, self.rows = order, len(order)

    def read(self, start: int, stop: int) -> Any:
        return self.order[start:stop]


def ideal(processes: Baseline, work: Callable[[int], int], cores: int, clock: Any) -> Answer:
    """Return the time that the blocks take in plain processes, over the number of cores."""
    return Answer(None, seconds=sum(processes.call(timed, work, clock)) / cores)


@benchmark
def schedules(
    kind: str = "simulated", workers: int = 1, threads: int = 2, blocks: int = 2304, ms: float = 1.0
) -> Iterator[Place]:
    """Process uneven blocks, cut by several schedules; all are divided by the ideal time.

    With two workers, the first has the dear blocks, and Dask steals tasks of single blocks.
    """
    cores = workers * threads
    work = partial(WORK[kind], blocks=blocks, ms=ms)
    clock = time.perf_counter if kind == "emulated" else time.thread_time
    with ExitStack() as stack:
        client = stack.enter_context(dask_cluster(workers, threads))
        numbers = np.arange(blocks)
        x = place(client, numbers)
        processes = stack.enter_context(start_baseline(min(cores, 2)))
        mixed = np.random.default_rng(0).permutation(numbers)
        processes.load(Numbers(mixed), [1] * blocks)

        def way(run: Callable[[Split, Any], Any], schedule: str) -> Call:
            def pass_over() -> Any:
                with split(x, schedule=Schedule(schedule, order="contiguous")) as parts:
                    return run(parts, work)

            return pass_over

        yield Place(
            f"{kind}, {workers} x {threads} threads",
            {
                "ideal": partial(ideal, processes, work, cores, clock),
                "static": way(by_tasks, "STATIC"),
                "fac2": way(by_tasks, "FAC2"),
                "fac2-team": way(by_team, "FAC2"),
                "ss-team": way(by_team, "SS"),
                "auto": way(third_pass, "AUTO"),
                "per-block": lambda: sum(
                    client.gather(client.map(process, [[one] for one in x], work=work, pure=False))
                ),
                "joblib": lambda: in_threads(list(numbers[:, None]), work, cores),
            },
        )


def place(client: Client, numbers: Any) -> list[Future[Any]]:
    """Make a block of each number, in ranges of neighbours at each worker."""
    workers = sorted(client.nthreads())
    made = [
        client.submit(
            np.full, 1, number, pure=False, workers=[workers[at * len(workers) // len(numbers)]]
        )
        for at, number in enumerate(numbers.tolist())
    ]
    wait(made)
    return made


def pause(partition: Partition, seconds: float) -> int:
    """Wait for a while at each block; return their number."""
    for _ in partition:
        time.sleep(seconds)
    return len(partition)


@benchmark
def schedules_replicas(blocks: int = 400, ms: float = 10.0) -> Iterator[Place | str]:
    """Compare shared replicas of unevenly placed blocks with blocks placed evenly."""

    def make(client: Client, at_first: int) -> list[Future[Any]]:
        first, second = sorted(client.nthreads())
        made = [
            client.submit(
                np.full, 10_000, at, pure=False, workers=[first if at < at_first else second]
            )
            for at in range(blocks)
        ]
        wait(made)
        return made

    # Dask balances once a second by itself, which is too rare for passes of two seconds.
    often = dask.config.set({"distributed.scheduler.work-stealing-interval": "100ms"})
    with often, dask_cluster() as client, ClusterMeter(client) as meter:
        client.amm.stop()  # it would drop the replicas
        even, uneven, copied = (make(client, blocks * share // 4) for share in (2, 3, 3))
        client.replicate(copied)
        parts = {
            "even": split(even, schedule="FAC2"),
            "75 % at one worker": split(uneven, schedule="FAC2"),
            "75 %, replicated, steal=True": split(copied, schedule="FAC2", steal=True),
        }
        before = meter.reading()
        yield Place(
            f"{blocks} blocks of {ms:g} ms",
            {
                name: lambda one=one: sum(gather(one.map(pause, ms / 1000)))  # type: ignore[misc]
                for name, one in parts.items()
            },
            same=int.__eq__,
        )
        yield f"Bytes moved between workers: {meter.reading().since(before).nbytes:,}."


@benchmark
def schedules_counters(rounds: int, blocks: int = 200_000) -> Iterator[Grid]:
    """Compare a measured loop over blocks with a plain one."""
    block, positions = np.ones(3), np.arange(blocks)

    def loop(make: Callable[[Iterator[Any]], Iterable[Any]]) -> None:
        for _ in make(iter([block] * blocks)):
            pass

    def measured(plain: Iterator[Any]) -> MeasuredBlocks:
        return MeasuredBlocks(plain, "counters", positions, 24 * blocks)

    ways = {"plain": partial(loop, iter), "measured": partial(loop, measured)}
    taken = Place("", ways).seconds(rounds)
    pairs = zip(taken["measured"], taken["plain"], strict=True)
    more = quartiles([(one - other) / blocks * 1e6 for one, other in pairs])
    yield Grid(("measured less plain, us per block",), ((more,),))


def nothing(_: int | Partition) -> int:
    return 0


@benchmark
def empty_pass(workers: int = 32, threads: int = 8) -> Iterator[Place]:
    """Compare `map_reduce` over eight blocks per thread with a task of `client.map` per worker."""
    with dask_cluster(workers, threads) as client:
        blocks = da.zeros(workers * threads * 8, chunks=1).persist()
        wait(blocks)
        with split(blocks) as parts:

            def mapped() -> Any:
                return client.map(nothing, range(workers), pure=False)

            yield Place(
                f"{workers} workers of {threads} threads",
                {
                    "client.map": lambda: client.gather(mapped()),
                    "client.map and sum": lambda: client.submit(sum, mapped()).result(),
                    "map_reduce": lambda: parts.map_reduce(nothing, operator.add).result(),
                },
            )


BLOCKS, CORES = 96, 4
KINDS = ("STATIC", "GSS", "FAC2", "SS")
ORDERS: tuple[Literal["contiguous", "strided"], ...] = ("contiguous", "strided")
COSTS = np.where(np.arange(BLOCKS) < BLOCKS // 4, 8.0, 1.0)
"""Seconds of each block: the first quarter is expensive."""

TASK_SECONDS = 0.3
"""What each partition costs in addition."""


@benchmark
def schedules_drawn(image: Path = Path("docs/images/schedules.png")) -> Iterator[str]:
    """Draw how schedules cut blocks, and when cores that take a partition when idle are done.

    Nothing is measured.
    """
    import matplotlib.pyplot as plt

    cases = [(kind, order) for order in ORDERS for kind in KINDS]
    figure, (cuts, *tails) = plt.subplots(1 + len(cases), figsize=(8, 7))
    for row, kind in enumerate(KINDS):
        start = 0
        for at, size in enumerate(Schedule(kind).sizes(BLOCKS, CORES)):
            cuts.barh(row, size, left=start, color=f"C{at % CORES}", edgecolor="white")
            start += size
    cuts.set_yticks(range(len(KINDS)), KINDS)
    cuts.invert_yaxis()
    cuts.set_title(f"Partitions of {BLOCKS} blocks on {CORES} cores, in blocks", loc="left")
    for axes, (kind, order) in zip(tails, cases, strict=True):
        free = [0.0] * CORES
        for chunk in Schedule(kind, order=order).cut(np.ones(BLOCKS), CORES):
            core = free.index(min(free))
            seconds = float(COSTS[chunk].sum()) + TASK_SECONDS
            axes.barh(core, seconds, left=free[core], color=f"C{core}", edgecolor="white")
            free[core] += seconds
        axes.axvline(COSTS.sum() / CORES, color="black", linestyle="--", linewidth=0.8)
        axes.set(xticks=[], yticks=[], xlim=(0, COSTS.sum() / 2))
        axes.set_ylabel(f"{kind}\n{order}", rotation=0, ha="right", va="center", fontsize=8)
    title = "When the cores are done if the first quarter costs 8 times as much (dashed: ideal)"
    tails[0].set_title(title, loc="left", fontsize=10)
    cuts.set_position([0.12, 0.68, 0.86, 0.28])
    for number, axes in enumerate(tails):
        axes.set_position([0.12, 0.525 - 0.073 * number, 0.86, 0.068])
    figure.savefig(image, dpi=120)
    yield f"written: {image}"
