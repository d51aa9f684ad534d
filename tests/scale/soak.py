"""See whether memory stays flat while one program starts task after task on Dask.

    python -m tests.scale.soak --tasks 100000

The cluster has two worker processes; the scheduler is in the client's process. Splits are made,
iterated in several ways and dropped, repeatedly. Before that, in a separate cluster and separate
processes, plain Dask starts as many tasks without SplIter: the control. At intervals, after the
cluster has become idle, the command counts what is left: tasks at the scheduler and the workers,
futures at the client, values in the workers' memory, SplIter's own objects, and the memory of all
processes. It fails if a count is higher than before the first task, or if memory has grown by more
than the control's growth and a margin. ``leftovers.py`` describes what is cleared before counting.

By default Dask's scheduler keeps a record of each burst of tasks, with its task groups, forever
(``distributed.spans``), so the memory of any program grows. The cluster here has no such records,
so that other growth is visible in the control too. ``--spans`` enables them: then SplIter, which
bounds the records of its own tasks, must grow by less than the control or, with ``--no-control``,
by at most the margin.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import dask
import distributed.scheduler
import distributed.worker
from distributed import Client, LocalCluster

from tests.scale.leftovers import PLACES, Census, Memory, settled
from tests.scale.soak_programs import Leaky, Program, WithoutSplits, WithSplits, run_tasks

WARM_TASKS: Final = 300
"""Tasks of each of two warm-up runs before the first comparison."""

LOGGED: Final = 10
"""Entries of Dask's logs; some thousands by default."""

SETTINGS: Final = {
    "distributed.admin.log-length": LOGGED,
    "distributed.admin.low-level-log-length": LOGGED,
    "distributed.admin.system-monitor.log-length": LOGGED,
    "distributed.worker.profile.enabled": False,  # its size depends on sampling
}

MARGIN: Final = Memory(objects=1_000, blocks=3_000, resident=16_000_000)
"""Accepted growth in one place beyond that of the control.

The numbers of objects and allocated blocks vary by half of it. The table of Python's interned
strings is copied when it is full, a few MB each time, and not all freed memory can be returned.
"""

RESIDENT_OF_USE: Final = 100
"""Accepted bytes of growth per use, because free memory becomes more fragmented."""

EXTENSIONS: Final = (
    distributed.scheduler.DEFAULT_EXTENSIONS,
    distributed.worker.DEFAULT_EXTENSIONS,
)


@dataclass(frozen=True)
class Options:
    """Values of the command line."""

    tasks: int
    looks: int
    blocks: int
    patience: float
    control: bool
    spans: bool
    leak: int


@dataclass(frozen=True)
class Outcome:
    """Complaints of one program, its uses of the cluster, and the growth of memory by place."""

    complaints: list[str]
    used: int
    growth: dict[str, Memory]


NOTHING: Final = {place: Memory(0, 0, 0) for place in PLACES}
"""Growth of a control that does not grow."""


def too_much(
    growth: Mapping[str, Memory], used: int, control: Mapping[str, Memory]
) -> Iterator[str]:
    """Yield a message for each growth beyond that of the control and the margin."""
    for place, more in growth.items():
        plain = control[place]
        for name, found, of_control, margin in (
            ("objects", more.objects, plain.objects, MARGIN.objects),
            ("allocated blocks", more.blocks, plain.blocks, MARGIN.blocks),
            (
                "resident bytes",
                more.resident,
                plain.resident,
                MARGIN.resident + used * RESIDENT_OF_USE,
            ),
        ):
            if found > max(of_control, 0) + margin:
                yield (
                    f"{place}: {found:,} {name} more than before; "
                    f"the control has {of_control:,}, and {margin:,} are let pass"
                )


@contextmanager
def cluster_of_two(spans: bool) -> Iterator[Client]:
    """Start a cluster, with or without Dask's records of bursts of tasks."""
    of_scheduler, of_worker = (
        {name: made for name, made in extensions.items() if spans or name != "spans"}
        for extensions in EXTENSIONS
    )
    with (
        dask.config.set(SETTINGS),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"extensions": of_scheduler},
            extensions=of_worker,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def without_splits(options: Options) -> Outcome:
    """Run the control in a separate cluster."""
    with cluster_of_two(options.spans) as client:
        return run(WithoutSplits(client), client, options, None)


def with_splits(options: Options, control: Mapping[str, Memory] | None) -> Outcome:
    """Run SplIter's program in a separate cluster."""
    with cluster_of_two(options.spans) as client:
        program: Program = WithSplits(client, options.blocks)
        if options.leak:
            program = Leaky(program, client, options.leak)
        return run(program, client, options, control)


def run(
    program: Program, client: Client, options: Options, control: Mapping[str, Memory] | None
) -> Outcome:
    """Run a program, and count at intervals what is left.

    The scheduler has to be in this process. Memory may grow by a margin more than that of the
    `control`, by place; without a control it is not checked.
    """
    for _ in range(2):
        run_tasks(program, WARM_TASKS)
        before = settled(client, options.patience)
    print(f"before: {before.counts}, objects of SplIter: {before.own.total()}")
    print_row("", "", "", *(text for place in PLACES for text in (f"{place}:", "", "")))
    print_row("tasks", "uses", "left", *("objects", "allocated", "MB") * len(PLACES))
    print_census(0, 0, before, before)
    started = used = 0
    now = before

    def complaints() -> list[str]:
        left = now.left_since(before)
        of_counts = [f"{now.counts}, objects {now.own - before.own}"] if left else []
        if control is None:
            return of_counts
        return [*of_counts, *too_much(now.growth_since(before), used, control)]

    def is_quiet(found: Census) -> bool:
        nonlocal now
        now = found
        return not complaints()

    for _ in range(options.looks):
        more, times = run_tasks(program, options.tasks // options.looks)
        started, used = started + more, used + times
        settled(client, options.patience, is_quiet)
        print_census(started, used, before, now)
        if complaints():
            break
    return Outcome(complaints(), used, now.growth_since(before))


def print_census(started: int, used: int, before: Census, now: Census) -> None:
    """Print a row: counts left, and memory by place."""
    figures = (
        text
        for memory in now.memory.values()
        for text in (
            f"{memory.objects}",
            f"{memory.blocks}",
            f"{memory.resident / 1e6:.1f}",
        )
    )
    print_row(f"{started}", f"{used}", f"{now.left_since(before)}", *figures)


def print_row(*columns: str) -> None:
    widths = (9, 7, 5, *(21, 10, 7) * ((len(columns) - 3) // 3))
    print(
        *(text.rjust(width) for text, width in zip(columns, widths, strict=True)),
        flush=True,
    )


def in_words(growth: Memory) -> str:
    """Describe a growth of memory."""
    return (
        f"{growth.objects:,} objects, {growth.blocks:,} allocated blocks, "
        f"{growth.resident / 1e6:.1f} MB"
    )


def in_fresh_process(program: Callable[..., Outcome], *arguments: Any) -> Outcome:
    """Run a program in a new process, which has no earlier allocations."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as processes:
        return processes.submit(program, *arguments).result()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if something was left behind."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--looks", type=int, default=10, help="how often to count")
    parser.add_argument("--blocks", type=int, default=40, help="blocks of the collection")
    parser.add_argument("--patience", type=float, default=60, help="seconds until all is quiet")
    parser.add_argument("--no-control", dest="control", action="store_false")
    parser.add_argument("--spans", action="store_true", help="with Dask's records of bursts")
    parser.add_argument(
        "--leak", type=int, default=0, help="pieces that each use leaves behind on purpose"
    )
    options = Options(**vars(parser.parse_args(arguments)))
    plain = NOTHING
    if options.control:
        print("without SplIter, the control:")
        plain = in_fresh_process(without_splits, options).growth
    print("with SplIter:")
    found = in_fresh_process(with_splits, options, plain)
    for place, memory in found.growth.items():
        print(f"{place}: {in_words(memory)} more; without SplIter {in_words(plain[place])}")
    for complaint in found.complaints:
        print(f"left behind: {complaint}")
    return 1 if found.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
