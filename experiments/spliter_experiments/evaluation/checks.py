"""Compare the model with what runs here: with sleeping workers, and with real ones.

Workers that sleep in place of the kernel can be more than there are cores. A real run has real
kernels, transfers and results, on as many workers as there are cores.
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
"""Seconds of tasks that have next to nothing to do."""

SHORT_WORK, LONG_WORK = 0.005, 0.02
"""Least and most seconds of a block that are worth sleeping for."""

REPETITIONS = 3


@dataclass(frozen=True)
class Check:
    """A prediction beside what it took."""

    what: str
    workers: int
    tasks: int
    work: float | None
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Of the prediction, as a share of what was measured."""
        return self.predicted / self.measured - 1


def check_sleeping(
    costs: Costs, block_seconds: float, workers: Sequence[int] = WORKERS
) -> list[Check]:
    """Compare passes over blocks with a real scheduler and sleeping workers.

    Parameters
    ----------
    costs : Costs
        Of the model.
    block_seconds : float
        What the kernel takes for a block; as much is slept.
    workers : sequence of int
        How many are pretended, one after the other.

    Returns
    -------
    list of Check
        For each number of workers: one task per block, the same with next to no work, and SplIter
        over the same blocks.
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
    # Where Dask has put them is not for the model to know: the fullest worker has the most work.
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
    """Sleep for every block of a partition, where they are."""
    time.sleep(work * sum(1 for _ in partition))


def real_runs(scenario: Scenario, names: Sequence[str]) -> list[PlannedRun]:
    """Return the runs of the laptop size that this machine has a core for each worker of."""
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
    """Compare predictions with real runs: the median of some of each."""
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
