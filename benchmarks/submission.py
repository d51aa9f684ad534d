"""Measure what it costs the processes of a Dask cluster to start one task per partition.

    python benchmarks/submission.py --partitions 32 128 512 --rounds 7

Three ways to run a function that does nothing, on two workers: a loop of calls of a task function
(``[f(p) for p in parts]``), ``Split.map``, and plain Dask's ``client.map`` of as many tasks. Each
sample is the CPU time that client, scheduler and workers spent together, per task, over some
passes. With ``--fresh`` each pass is the first one over its Split, which is made before the clock
starts. Rounds are interleaved; the table shows medians, and quartiles of the ratios of each round.
"""

from __future__ import annotations

import argparse
import functools
import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import dask.array as da
from distributed import Client, LocalCluster, wait

from spliter import Partition, Split, split, task

TASKS_PER_SAMPLE: Final = 512
"""Enough for a sample to take some tenths of a second: the messages that measure add 1%."""

Pass = Callable[[], Any]


@task
def nothing(partition: Partition) -> None:
    """Touch no block."""


def ignore(number: int) -> None:
    """Do as little as :func:`nothing`, for ``client.map``."""


def cpu_seconds(client: Client) -> tuple[float, float]:
    """Return the CPU time so far of client and scheduler (one process here), and of the workers."""
    return time.process_time(), sum(client.run(time.process_time).values())


def sample(client: Client, passes: Sequence[Pass], tasks: int) -> tuple[float, float]:
    """Return CPU microseconds per task, at client and scheduler and at the workers."""
    gc.collect()
    before = cpu_seconds(client)
    for one_pass in passes:
        client.gather(one_pass())
    after = cpu_seconds(client)
    each = [1e6 * (b - a) / (len(passes) * tasks) for a, b in zip(before, after, strict=True)]
    return each[0], each[1]


def ways(client: Client, partitions: int, *, fresh: bool) -> dict[str, Callable[[], list[Pass]]]:
    """Return what prepares the passes of a sample, each over a Split of its own if `fresh`."""
    x = da.ones((partitions, 1), chunks=1).persist()
    wait(x)
    count = max(TASKS_PER_SAMPLE // partitions, 1)
    lasting = split(x, partitions_per_location=partitions)

    def splits() -> list[Split]:
        if not fresh:
            return [lasting] * count
        return [split(x, partitions_per_location=partitions) for _ in range(count)]

    numbers = range(len(lasting))
    return {
        "loop": lambda: [functools.partial(loop, parts) for parts in splits()],
        "Split.map": lambda: [functools.partial(parts.map, nothing) for parts in splits()],
        "client.map": lambda: [lambda: client.map(ignore, numbers, pure=False)] * count,
    }


def loop(parts: Split) -> list[Any]:
    """Start a task per partition, as programs do."""
    return [nothing(partition) for partition in parts]


def quartiles(values: Sequence[float]) -> str:
    """Return the median and the quartiles around it."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def compare(client: Client, partitions: int, rounds: int, *, fresh: bool) -> None:
    """Print the table for one number of partitions."""
    prepare = ways(client, partitions, fresh=fresh)
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in prepare}
    for number in range(rounds + 1):
        for name, passes in prepare.items():
            found = sample(client, passes(), partitions)
            if number:  # in the first round code is imported, lists of blocks are sent
                samples[name].append(found)
    which = "first pass over a Split" if fresh else "later passes"
    print(f"{partitions} partitions, {which}: CPU microseconds per task")
    for name, values in samples.items():
        central, workers = (statistics.median(column) for column in zip(*values, strict=True))
        print(f"  {name:11}{central + workers:7.0f} = {central:.0f} + {workers:.0f} at the workers")
    for first, second in (("loop", "Split.map"), ("Split.map", "client.map")):
        pairs = zip(samples[first], samples[second], strict=True)
        ratios = [sum(one) / sum(other) for one, other in pairs]
        print(f"  {first} / {second}: {quartiles(ratios)}", flush=True)


@contextmanager
def cluster_of_two() -> Iterator[Client]:
    """Start two workers of one thread; yield their client."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one table for each number of partitions.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command line; that of the process by default.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--partitions", type=int, nargs="+", default=[32, 128, 512])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--fresh", action="store_true", help="a new Split for each pass")
    options = parser.parse_args(arguments)
    for partitions in options.partitions:
        with cluster_of_two() as client:
            compare(client, partitions, options.rounds, fresh=options.fresh)


if __name__ == "__main__":
    main()
