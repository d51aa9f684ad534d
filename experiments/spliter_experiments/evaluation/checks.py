"""Check the prediction model against measurements with sleeping and with real workers.

There can be more sleeping workers than cores. Real runs include kernels, transfers and results, but
need a core per worker.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import dask.array as da
from distributed import Client, wait

from spliter import Partition, Split, split
from spliter_experiments.compare.engines.engine import WAIT_SECONDS
from spliter_experiments.evaluation.bench import on_cluster
from spliter_experiments.evaluation.calibrate import run_naps, sleeping_cluster
from spliter_experiments.evaluation.calibrate_kernels import median_of
from spliter_experiments.evaluation.costs import Costs, pass_seconds
from spliter_experiments.evaluation.model import predict
from spliter_experiments.evaluation.plan import PlannedRun, plan_runs, stands_of
from spliter_experiments.evaluation.schema import Scenario
from spliter_experiments.harness.console import Listener

WORKERS = (2, 4, 8)

BLOCKS_PER_CORE = 48

EMPTY_WORK = 0.0005
"""Duration of nearly empty tasks, in seconds."""

SHORT_WORK, LONG_WORK = 0.005, 0.02
"""Bounds of the sleep per block, in seconds."""

REPETITIONS = 3


@dataclass(frozen=True)
class Check:
    """A prediction and the measured time, in seconds."""

    what: str
    workers: int
    tasks: int
    work: float | None
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted / self.measured - 1


def check_sleeping(
    costs: Costs, block_seconds: float, workers: Sequence[int] = WORKERS
) -> list[Check]:
    """Compare predicted passes over blocks with a real scheduler and sleeping workers.

    Parameters
    ----------
    costs : Costs
        Costs of the model.
    block_seconds : float
        Seconds of the kernel per block; tasks sleep that long, within bounds.
    workers : sequence of int
        Numbers of workers to check.

    Returns
    -------
    list of Check
        For each number of workers: one task per block, the same with nearly empty tasks, and
        SplIter over the same blocks.
    """
    found = []
    work = min(max(block_seconds, SHORT_WORK), LONG_WORK)
    for count in workers:
        with sleeping_cluster(count) as client:
            blocks = count * BLOCKS_PER_CORE
            for each in work, EMPTY_WORK:
                measured = median_of(partial(run_naps, client, blocks, each))
                predicted = pass_seconds(costs, blocks, count, each)
                found.append(Check("one task per block", count, blocks, each, predicted, measured))
            found.append(_spliter(client, costs, count, work))
    return found


def _spliter(client: Client, costs: Costs, workers: int, work: float) -> Check:
    blocks = workers * BLOCKS_PER_CORE
    array = da.zeros(blocks, chunks=1).persist()
    wait(array, timeout=WAIT_SECONDS)
    # The model cannot know Dask's placement: use the partition with the most blocks.
    with split(array) as partitions:
        most = max(len(partition) for partition in partitions)
        measured = median_of(partial(_nap_over, client, partitions, work))
        predicted = pass_seconds(costs, workers, workers, most * work)
    predicted += blocks * costs.pass_block
    return Check("SplIter", workers, workers, work, predicted, measured)


def _nap_over(client: Client, partitions: Split, work: float) -> float:
    start = time.perf_counter()
    client.gather(partitions.map(nap_for_blocks, work))
    return time.perf_counter() - start


def nap_for_blocks(partition: Partition, work: float) -> None:
    """Sleep `work` seconds for every block of a partition."""
    time.sleep(work * sum(1 for _ in partition))


def real_runs(scenario: Scenario, names: Sequence[str]) -> list[PlannedRun]:
    """Return the largest laptop-size runs for which this machine has a core per worker."""
    if "laptop" not in scenario.sizes:
        return []
    cores = os.cpu_count() or 1
    fitting = [
        run
        for run in plan_runs(
            scenario, "laptop", configurations=list(names), repetitions=REPETITIONS
        )
        if run.cores <= cores
    ]
    most = max((run.cores for run in fitting), default=0)
    return [run for run in fitting if run.cores == most]


def check_real(
    scenario: Scenario, costs: Costs, runs: Sequence[PlannedRun], listen: Listener | None = None
) -> list[Check]:
    """Compare predictions with the median of real runs."""
    found = []
    for stand in stands_of(runs).values():
        seconds: dict[str, list[float]] = {}
        firsts = {run.configuration: run for run in stand}
        for run, took in on_cluster(scenario, stand, None, listen or Listener()):
            seconds.setdefault(run.configuration, []).append(took.seconds)
        for name, run in firsts.items():
            what = f"{name}, {run.blocks_per_core:g} blocks per core"
            tasks = run.blocks if name.startswith("baseline") else run.cores
            predicted = predict(scenario, run, costs)
            median = statistics.median(seconds[name])
            found.append(Check(what, run.workers, tasks, None, predicted, median))
    return found
