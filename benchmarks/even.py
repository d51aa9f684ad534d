"""Measure what evens out work between workers, and what counting and reading ahead cost.

    python benchmarks/even.py replicas --rounds 7    # 75 % of the blocks at one worker, replicated
    python benchmarks/even.py counters --rounds 9    # a measured loop against a plain one
    python benchmarks/even.py memory --rounds 9      # blocks in memory, with and without prefetch

Interleaved rounds; prints medians and quartiles over the rounds. ``replicas`` and ``memory`` start
a local Dask cluster of two workers with one thread each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
from distributed import Client, Future, LocalCluster, wait

from spliter import Partition, Split, split
from spliter._reading.measured import MeasuredBlocks
from spliter_experiments.compare.engines.dask_meter import ClusterMeter

SETTINGS = {"distributed.scheduler.work-stealing-interval": "100ms"}
"""Dask balances once a second by itself, which is too rare for passes of two seconds."""

BLOCK_SECONDS = 0.001
"""What a block takes to which the price of a counter is compared."""


@contextmanager
def two_workers() -> Iterator[Client]:
    """Start a cluster."""
    with (
        dask.config.set(SETTINGS),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client


def interleaved(
    ways: Mapping[str, Callable[[], object]],
    rounds: int,
    before: Callable[[], object] = lambda: None,
) -> dict[str, list[float]]:
    """Return the seconds of each way in each round, after one that is not counted.

    What is called `before` each of them is not timed.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for at in range(-1, rounds):
        for name, way in list(ways.items())[:: 1 if at % 2 else -1]:  # none is always the second
            before()
            start = time.perf_counter()
            way()
            if at >= 0:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def quartiles(values: object, form: str = ".3f") -> str:
    """Return the median and the quartiles as text."""
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75])  # type: ignore[call-overload]
    return f"{median:{form}} ({low:{form}} to {high:{form}})"


def show(seconds: Mapping[str, list[float]], base: str) -> None:
    """Print the time of each way, and over another one in the same round."""
    for name, found in seconds.items():
        ratios = np.array(found) / np.array(seconds[base])
        print(f"{name:34} {quartiles(found)} s  {quartiles(ratios)} of {base}")


def work(partition: Partition, seconds: float) -> int:
    """Wait for a while at each block; return their number."""
    count = 0
    for _ in partition:
        time.sleep(seconds)
        count += 1
    return count


def replicas(rounds: int, blocks: int, ms: float) -> None:
    """Compare shared replicas of unevenly placed blocks with blocks placed evenly."""

    def place(client: Client, at_first: int) -> list[Future[Any]]:
        first, second = sorted(client.scheduler_info(n_workers=-1)["workers"])
        made = [
            client.submit(
                np.full, 10_000, at, pure=False, workers=[first if at < at_first else second]
            )
            for at in range(blocks)
        ]
        wait(made)
        return made

    with two_workers() as client, ClusterMeter(client) as meter:
        client.amm.stop()  # it would drop the replicas

        def run(parts: Split) -> None:
            assert sum(client.gather(parts.map(work, ms / 1000))) == blocks

        even, uneven, copied = (place(client, blocks * share // 4) for share in (2, 3, 3))
        client.replicate(copied)
        ways = {
            "even": split(even, schedule="FAC2"),
            "75 % at one worker": split(uneven, schedule="FAC2"),
            "75 %, replicated, steal=True": split(copied, schedule="FAC2", steal=True),
        }
        before = meter.reading()
        seconds = interleaved({name: partial(run, parts) for name, parts in ways.items()}, rounds)
        after = meter.reading()
        (last,) = ways["even"].locations[1:]
        client.submit(len, even[0], workers=[last], pure=False).result()
        control = meter.reading().since(after).nbytes
    print(f"{blocks} blocks of 80 kB, {ms:g} ms each, 2 workers; schedule FAC2")
    show(seconds, "even")
    print(f"bytes moved between workers in all passes: {after.since(before).nbytes:,}")
    print(f"by a task that needs a block of another worker: {control:,}")


def counters(rounds: int, blocks: int) -> None:
    """Compare a measured loop over blocks with a plain one."""
    block, positions = np.ones(3), np.arange(blocks)

    def plain() -> Iterator[object]:
        return iter([block] * blocks)

    def loop(blocks: Iterator[object]) -> None:
        for _ in blocks:
            pass

    seconds = interleaved(
        {
            "plain": lambda: loop(plain()),
            "measured": lambda: loop(MeasuredBlocks(plain(), "counters", positions, 24 * blocks)),
        },
        rounds,
    )
    more = (np.array(seconds["measured"]) - np.array(seconds["plain"])) / blocks
    print(f"{blocks} blocks per loop")
    print(f"counters, per block: {quartiles(more * 1e6)} µs")
    print(f"of {BLOCK_SECONDS * 1000:g} ms per block: {quartiles(100 * more / BLOCK_SECONDS)} %")


def add_up(partition: Partition) -> float:
    """Return the sum of all items."""
    return float(sum(block.sum() for block in partition))


def passes(plain: Partition, ahead: Partition, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of passes over two partitions of the same blocks, at their worker."""
    ways = {"prefetch=False": partial(add_up, plain), 'prefetch="auto"': partial(add_up, ahead)}
    return interleaved(ways, rounds)


def memory(rounds: int, blocks: int) -> None:
    """Compare passes over blocks in memory that may and may not read ahead."""
    with two_workers():
        x = da.ones(blocks * 1000, chunks=1000).persist()
        wait(x)
        plain, ahead = split(x, prefetch=False), split(x, prefetch="auto")
        task = plain[0].submit(passes, ahead[0], rounds)
        print(f"{len(plain[0])} blocks of 8 kB in the memory of a worker, added up there")
        show(task.result(), "prefetch=False")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    commands = parser.add_subparsers(required=True)
    for command, blocks in ((replicas, 400), (counters, 200_000), (memory, 4000)):
        sub = commands.add_parser(command.__name__)
        sub.add_argument("--rounds", type=int, default=7)
        sub.add_argument("--blocks", type=int, default=blocks)
        if command is replicas:
            sub.add_argument("--ms", type=float, default=10.0)
        sub.set_defaults(command=command)
    options = vars(parser.parse_args())
    options.pop("command")(**options)


if __name__ == "__main__":
    main()
