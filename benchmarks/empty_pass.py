"""Time a pass that computes nothing: the cost of the tasks alone.

    python benchmarks/empty_pass.py --workers 32 --threads 8 --rounds 15

Starts a local Dask cluster of processes, or of threads in one process (``--one-process``), and
compares, in interleaved rounds, `Split.map_reduce` over eight blocks per thread with as many tasks
of `client.map` as there are workers, gathered, and with the same tasks and a sum of their results.
Prints medians and quartiles, in seconds and over `client.map`.
"""

from __future__ import annotations

import argparse
import operator
import time
from collections.abc import Callable

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, wait

from spliter import Partition, split


def nothing(_: int | Partition) -> int:
    """Return 0."""
    return 0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--workers", type=int, default=32)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--one-process", action="store_true")
    options = parser.parse_args()
    workers, threads = options.workers, options.threads
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            processes=not options.one_process,
            dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
    ):
        blocks = da.zeros(workers * threads * 8, chunks=1).persist()
        wait(blocks)
        parts = split(blocks)
        ways: dict[str, Callable[[], object]] = {
            "client.map": lambda: client.gather(client.map(nothing, range(workers), pure=False)),
            "client.map and sum": lambda: client.submit(
                sum, client.map(nothing, range(workers), pure=False)
            ).result(),
            "map_reduce": lambda: parts.map_reduce(nothing, operator.add).result(),
        }
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for at in range(-2, options.rounds):
            for name, way in ways.items():
                start = time.perf_counter()
                way()
                if at >= 0:  # the first rounds open connections
                    seconds[name].append(time.perf_counter() - start)
    print(f"{len(parts)} partitions, {workers} workers of {threads} threads")
    base = np.array(seconds["client.map"])
    for name, found in seconds.items():
        low, median, high = np.quantile(found, [0.25, 0.5, 0.75])
        below, ratio, above = np.quantile(np.array(found) / base, [0.25, 0.5, 0.75])
        print(
            f"{name:20} {median:.3f} s ({low:.3f} to {high:.3f})"
            f"  {ratio:.2f} ({below:.2f} to {above:.2f}) of client.map"
        )


if __name__ == "__main__":
    main()
