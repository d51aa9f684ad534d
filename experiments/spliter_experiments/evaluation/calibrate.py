"""Measure what the model asks for: the scheduler, the link between workers, and the kernels.

A real Dask scheduler runs empty and sleeping tasks, which take a worker's time but none of the
machine's, so that more workers can be pretended than there are cores.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import dask.array as da
import numpy as np
from distributed import Client, wait
from threadpoolctl import threadpool_limits

from spliter import Partition, Split, split
from spliter_experiments._dask_cluster import connected
from spliter_experiments._engine import WAIT_SECONDS, ClusterChoice
from spliter_experiments._histogram_kernels import count_block, equal_bins
from spliter_experiments._inputs import Floats, GeneratedPoints
from spliter_experiments._kmeans import sum_block
from spliter_experiments.evaluation._errors import PlanError
from spliter_experiments.evaluation.model import Costs, pass_seconds
from spliter_experiments.evaluation.schema import HistogramParameters, KMeansParameters, Scenario

FEW, MANY = 200, 1200
"""Tasks whose difference tells what one costs."""

NAP = 0.02
"""Seconds of a task that hides what can be hidden of the scheduler's."""

WORKERS = 4

MOST_ROWS = 1_000_000

TRANSFER_BYTES = 64 * 10**6

REPEATS = 5


@dataclass(frozen=True)
class Check:
    """A prediction beside what a real scheduler took with sleeping workers.

    Parameters
    ----------
    workers, tasks : int
        How many.
    work : float
        Seconds of each task.
    predicted, measured : float
        Seconds of the pass.
    """

    workers: int
    tasks: int
    work: float
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Of the prediction, as a share of what was measured."""
        return self.predicted / self.measured - 1


def measure_costs(scenario: Scenario, rows: Sequence[int]) -> Costs:
    """Measure all costs on this machine.

    Parameters
    ----------
    scenario : Scenario
        Says which kernel.
    rows : sequence of int
        Of blocks; the kernel is measured on the largest, up to a million.

    Raises
    ------
    PlanError
        If there is no model of the app.
    """
    per_block, per_row = kernel_costs(scenario, rows)
    with sleeping_cluster(WORKERS) as client:
        trip, task, telling = scheduler_costs(client)
        bandwidth = bandwidth_of(client)
        split_block, pass_block = spliter_costs(client)
    return Costs(trip, task, telling, bandwidth, per_block, per_row, split_block, pass_block)


def scheduler_costs(client: Client) -> tuple[float, float, float]:
    """Return the seconds of one task there and back, of a task, and of telling about one."""
    cores = sum(client.nthreads().values())
    trip = _median(partial(_run, client, 1, 0.0))
    few, many = (_median(partial(_run, client, n, 0.0)) for n in (FEW, MANY))
    task = max((many - few) / (MANY - FEW), 1e-6)
    napping = _median(partial(_run, client, FEW, NAP))
    telling = (napping - trip - FEW / cores * NAP) / FEW
    return trip, task, min(max(telling, 0.0), task)


def bandwidth_of(client: Client) -> float:
    """Return the bytes per second from one worker to another."""
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
    """Return the seconds of SplIter for each block: to split, and to run a task on partitions."""
    splitting, passing = [], []
    for blocks in (FEW, MANY):
        array = da.zeros(blocks, chunks=1).persist()
        wait(array, timeout=WAIT_SECONDS)
        splitting.append(_median(partial(_split_and_close, array)))
        with split(array) as partitions:
            passing.append(_median(partial(_count_all, client, partitions)))
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
    """Go over the blocks of a partition, where they are."""
    return sum(1 for _ in partition)


def kernel_costs(scenario: Scenario, rows: Sequence[int]) -> tuple[float, float]:
    """Return the seconds of the kernel for a block, and for each row.

    Raises
    ------
    PlanError
        If there is no model of the app.
    """
    large = min(max(rows), MOST_ROWS)
    points = GeneratedPoints(large, scenario.parameters.dims, scenario.seed).read(0, large)
    kernel = _kernel(scenario, points)
    with threadpool_limits(1):
        per_block, whole = (_median(partial(_timed, kernel, points[:n])) for n in (1, large))
    return per_block, max((whole - per_block) / large, 1e-12)


def _kernel(scenario: Scenario, points: Floats) -> Callable[[Floats], object]:
    asked = scenario.parameters
    if isinstance(asked, HistogramParameters):
        edges = equal_bins(np.array([points.min(axis=0), points.max(axis=0)]), asked.bins)
        return lambda block: count_block(block, edges)
    if isinstance(asked, KMeansParameters):
        centers = points[: asked.clusters].copy()
        return lambda block: sum_block(block, centers)
    raise PlanError(f"there is no model of {asked.app}")


def check_model(costs: Costs, workers: Sequence[int] = (2, 4, 8)) -> list[Check]:
    """Compare the model with a real scheduler and sleeping workers.

    Parameters
    ----------
    costs : Costs
        Of the model.
    workers : sequence of int
        How many are pretended, one after the other.

    Returns
    -------
    list of Check
        For each number of workers: many short tasks, as with one task per block; one long task for
        each worker, as with SplIter.
    """
    found = []
    for count in workers:
        with sleeping_cluster(count) as client:
            for tasks, work in ((48 * count, 0.005), (48 * count, 0.0005), (count, 0.24)):
                measured = _median(partial(_run, client, tasks, work))
                predicted = pass_seconds(costs, tasks, count, work)
                found.append(Check(count, tasks, work, predicted, measured))
    return found


@contextmanager
def sleeping_cluster(workers: int) -> Iterator[Client]:
    """Start a Dask cluster of workers with one thread each, which has run tasks before."""
    with connected(ClusterChoice(None, workers=workers, threads=1)) as client:
        for _ in range(2):
            _run(client, FEW, 0.0)
        yield client


def _run(client: Client, tasks: int, work: float) -> float:
    start = time.perf_counter()
    client.gather(client.map(time.sleep, [work] * tasks, pure=False))
    return time.perf_counter() - start


def _timed(kernel: Callable[[Floats], object], block: Floats) -> float:
    start = time.perf_counter()
    kernel(block)
    return time.perf_counter() - start


def _median(measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(REPEATS))
