"""Time what SplIter itself costs on Dask: making a Split, and a pass that does nothing.

    python benchmarks/dask_overhead.py --blocks 10000 --rounds 11

Two comparisons on one embedded cluster of two workers with one thread each, rounds
interleaved, medians with quartiles:

* ``split(x)`` of persisted blocks against the engine's own ``client.who_has(x)``;
* a pass of tasks that touch no block, over a Split with many blocks per partition
  against one with 16.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import dask.array as da
from distributed import Client, LocalCluster, wait

from spliter import Partition, Split, split


def nothing(partition: Partition) -> None:
    """Touch no block."""


def empty_pass(client: Client, parts: Split) -> Callable[[], Any]:
    """Return a pass that waits for one empty task per partition."""
    return lambda: client.gather(parts.map(nothing))


def seconds(action: Callable[[], Any]) -> float:
    """Return how long an action takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def interleaved(
    first: Callable[[], Any], second: Callable[[], Any], rounds: int
) -> tuple[list[float], list[float]]:
    """Time two actions in turn, after one round that does not count."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        pair = (seconds(first), seconds(second))
        if number:
            for collected, value in zip(times, pair, strict=True):
                collected.append(value)
    return times


def show(title: str, first: Sequence[float], second: Sequence[float]) -> None:
    """Print medians, quartiles and the ratio of paired rounds."""
    ratios = [a / b for a, b in zip(first, second, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(
        f"{title}: {1e3 * statistics.median(first):.1f} ms against "
        f"{1e3 * statistics.median(second):.1f} ms, ratio {middle:.2f} ({low:.2f} to {high:.2f})"
    )


def persisted(blocks: int) -> Any:
    """Return an array of small blocks that are all in the workers' memory."""
    x = da.ones((blocks, 4), chunks=(1, 4)).persist()
    wait(x)
    return x


def main(arguments: Sequence[str] | None = None) -> None:
    """Run both comparisons.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command line; that of the process by default.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--blocks", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args(arguments)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        many, few = persisted(options.blocks), persisted(32)
        times = interleaved(lambda: split(many), lambda: client.who_has(many), options.rounds)
        show(f"split of {options.blocks} blocks against who_has", *times)
        # A collection that was never asked for its keys before has to list them first.
        fresh = [(persisted(options.blocks), persisted(options.blocks)) for _ in range(6)]
        pairs = [
            (seconds(functools.partial(split, x)), seconds(functools.partial(client.who_has, y)))
            for x, y in fresh
        ][1:]
        show("  of a collection seen for the first time", *zip(*pairs, strict=True))
        del fresh
        times = interleaved(
            empty_pass(client, split(many)), empty_pass(client, split(few)), options.rounds
        )
        show(f"empty pass, {options.blocks // 2} blocks a partition against 16", *times)


if __name__ == "__main__":
    main()
