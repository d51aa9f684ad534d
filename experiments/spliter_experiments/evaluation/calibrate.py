"""Measure the costs of the scheduler and of transfers for the prediction model.

A real Dask scheduler runs empty and sleeping tasks. These occupy workers but no core, so there can
be more workers than cores.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import dask.array as da
import numpy as np
from distributed import Client, wait

from spliter import Partition, Split, split
from spliter_experiments.compare.engines.dask_cluster import connected
from spliter_experiments.compare.engines.engine import WAIT_SECONDS, ClusterChoice
from spliter_experiments.evaluation.calibrate_kernels import (
    REPEATS,
    kernel_costs,
    median_of,
    neighbor_costs,
)
from spliter_experiments.evaluation.costs import Costs
from spliter_experiments.evaluation.model import check_has_model
from spliter_experiments.evaluation.schema import Scenario

FEW, MANY = 200, 1200
"""Numbers of tasks; the difference of their times gives the cost of one task."""

NAP = 0.02
"""Duration of sleeping tasks in seconds, long enough to overlap with the scheduler's work."""

WORKERS = 4

TRANSFER_BYTES = 64 * 10**6


def measure_costs(scenario: Scenario, rows: Sequence[int]) -> Costs:
    """Measure all costs on this machine, for blocks and parts of these numbers of rows."""
    check_has_model(scenario)
    per_block = per_row = 0.0
    neighbors = None
    if scenario.parameters.app == "knn":
        neighbors = neighbor_costs(scenario, rows)
    else:
        per_block, per_row = kernel_costs(scenario, rows)
    with sleeping_cluster(WORKERS) as client:
        trip, task, telling = scheduler_costs(client)
        bandwidth = bandwidth_of(client)
        split_block, pass_block = spliter_costs(client)
    return Costs(
        *(trip, task, telling, bandwidth, per_block, per_row, split_block, pass_block),
        neighbors=neighbors,
    )


def scheduler_costs(client: Client) -> tuple[float, float, float]:
    """Return the seconds of a round trip, of scheduling a task, and of the serial part of that."""
    cores = sum(client.nthreads().values())
    trip = median_of(partial(run_naps, client, 1, 0.0))
    few, many = (median_of(partial(run_naps, client, n, 0.0)) for n in (FEW, MANY))
    task = max((many - few) / (MANY - FEW), 1e-6)
    napping = median_of(partial(run_naps, client, FEW, NAP))
    telling = (napping - trip - FEW / cores * NAP) / FEW
    return trip, task, min(max(telling, 0.0), task)


def bandwidth_of(client: Client) -> float:
    """Return the bytes per second between two workers."""
    one, other = list(client.nthreads())[:2]
    taken = []
    for _ in range(REPEATS):
        there = client.submit(np.zeros, TRANSFER_BYTES // 8, workers=[one], pure=False)
        wait([there], timeout=WAIT_SECONDS)
        start = time.perf_counter()
        wait([client.submit(len, there, workers=[other], pure=False)], timeout=WAIT_SECONDS)
        taken.append(time.perf_counter() - start)
    return TRANSFER_BYTES / statistics.median(taken)


def spliter_costs(client: Client) -> tuple[float, float]:
    """Return SplIter's seconds per block: of a split, and of a pass over partitions."""
    splitting, passing = [], []
    for blocks in (FEW, MANY):
        array = da.zeros(blocks, chunks=1).persist()
        wait(array, timeout=WAIT_SECONDS)
        splitting.append(median_of(partial(_split_and_close, array)))
        with split(array) as partitions:
            passing.append(median_of(partial(_count_all, client, partitions)))
    return (
        max((splitting[1] - splitting[0]) / (MANY - FEW), 0.0),
        max((passing[1] - passing[0]) / (MANY - FEW), 0.0),
    )


def _split_and_close(array: da.Array) -> float:
    start = time.perf_counter()
    with split(array):
        return time.perf_counter() - start


def _count_all(client: Client, partitions: Split) -> float:
    start = time.perf_counter()
    client.gather(partitions.map(count_blocks_of))
    return time.perf_counter() - start


def count_blocks_of(partition: Partition) -> int:
    """Iterate over the blocks of a partition."""
    return sum(1 for _ in partition)


@contextmanager
def sleeping_cluster(workers: int) -> Iterator[Client]:
    """Start a Dask cluster of workers with one thread each, and warm it up."""
    with connected(ClusterChoice(None, workers=workers, threads=1)) as client:
        for _ in range(2):
            run_naps(client, FEW, 0.0)
        yield client


def run_naps(client: Client, tasks: int, work: float) -> float:
    """Return the seconds to run a number of tasks that sleep for `work` seconds each."""
    start = time.perf_counter()
    client.gather(client.map(time.sleep, [work] * tasks, pure=False))
    return time.perf_counter() - start
