r"""Predict what runs take from what their parts cost: a model of a few lines.

A pass of tasks over the data takes

.. math:: t_0 + N g + \max(N (s - g), \lceil N / C \rceil w)

with :math:`N` tasks of :math:`w` seconds of work each on :math:`C` cores; :math:`t_0` is the time
of one empty task there and back, :math:`s` what the scheduler takes for a task, and :math:`g` that
part of it that no work hides, because the task has to be told before it can start. Partial results
are merged sixteen at a time, by tasks too. With one task per block, :math:`N` is the number of
blocks; with SplIter and after a rechunk it is the number of cores, and the work of a task is that
of all its blocks. SplIter takes something for each block too: once to split, and in every pass to
tell a task of its blocks. A rechunk comes before the first pass: it costs a task for each block,
and every node receives all of its data but the share that it has already.

What the model leaves out: memory bandwidth that cores share, results that are large, and whatever
else runs there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from spliter_experiments.evaluation._errors import PlanError
from spliter_experiments.evaluation.plan import FLOAT_BYTES, PlannedRun
from spliter_experiments.evaluation.schema import KMeansParameters, Scenario

MERGED_AT_ONCE = 16
"""Partial results that one task merges."""

MODELLED = ("histogram", "kmeans")
"""Apps whose work is that of their rows. A cascade's depends on the data, and a tree's on more than
its rows."""


@dataclass(frozen=True)
class Costs:
    """What the parts of a run cost.

    Parameters
    ----------
    round_trip : float
        Seconds of one empty task, there and back.
    task : float
        Seconds that the scheduler takes for a task.
    telling : float
        The part of it that no work hides.
    bandwidth : float
        Bytes per second from one node to another.
    per_block, per_row : float
        Seconds of the kernel: for a block however small, and for each row.
    split_block, pass_block : float
        Seconds of SplIter for each block: to split, and in each pass.
    """

    round_trip: float
    task: float
    telling: float
    bandwidth: float
    per_block: float
    per_row: float
    split_block: float = 0.0
    pass_block: float = 0.0

    def kernel(self, rows: float) -> float:
        """Return the seconds of the kernel on one block."""
        return self.per_block + self.per_row * rows


def pass_seconds(costs: Costs, tasks: int, cores: int, work: float) -> float:
    """Return the seconds of one pass of equal tasks, without merging what they return.

    Parameters
    ----------
    costs : Costs
        What the parts cost.
    tasks, cores : int
        How many.
    work : float
        Seconds of each task.

    Examples
    --------
    >>> costs = Costs(0.01, 0.001, 0.0002, 1e9, 0, 0)
    >>> pass_seconds(costs, tasks=10, cores=10, work=1)
    1.012
    >>> pass_seconds(costs, tasks=1000, cores=10, work=0.001)
    1.01
    """
    hidden = max(tasks * (costs.task - costs.telling), math.ceil(tasks / cores) * work)
    return round(costs.round_trip + tasks * costs.telling + hidden, 12)


def predict(scenario: Scenario, run: PlannedRun, costs: Costs) -> float:
    """Return the seconds that a run is predicted to take.

    Raises
    ------
    PlanError
        If there is no model of it.
    """
    if run.app not in MODELLED:
        raise PlanError(
            f"there is no model of {run.app}; what can be predicted is {', '.join(MODELLED)}"
        )
    asked = scenario.parameters
    # The estimator and all other ways label the points once more in the end.
    passes = asked.iterations + 1 if isinstance(asked, KMeansParameters) else 1
    per_core = run.rows / run.cores
    blocks_per_core = run.blocks / run.cores
    if run.configuration == "baseline":
        tasks, work = run.blocks, costs.kernel(run.rows / run.blocks)
    elif run.configuration == "spliter":
        tasks, work = run.cores, blocks_per_core * costs.kernel(run.rows / run.blocks)
    elif run.configuration in ("rechunk", "materialized"):
        tasks, work = run.cores, costs.kernel(per_core)
    else:
        raise PlanError(f"there is no model of {run.configuration}")
    one = pass_seconds(costs, tasks, run.cores, work) + _merging(costs, tasks)
    before = _rechunk(scenario, run, costs) if run.configuration == "rechunk" else 0.0
    if run.configuration in ("spliter", "materialized"):
        before = run.blocks * costs.split_block
        one += run.blocks * costs.pass_block
    return before + passes * one


def _merging(costs: Costs, results: int) -> float:
    """Return the seconds to merge partial results, as far as it is not done beside the work."""
    levels, tasks = 0, 0
    while results > 1:
        results = math.ceil(results / MERGED_AT_ONCE)
        levels, tasks = levels + 1, tasks + results
    return levels * costs.round_trip + tasks * costs.task


def _rechunk(scenario: Scenario, run: PlannedRun, costs: Costs) -> float:
    if run.blocks == run.cores:
        return 0.0
    nbytes = run.rows * scenario.parameters.dims * FLOAT_BYTES / run.nodes
    moved = nbytes * (run.nodes - 1) / run.nodes
    return run.blocks * costs.task + moved / costs.bandwidth


def most_blocks_per_core(
    scenario: Scenario, run: PlannedRun, costs: Costs, slack: float
) -> tuple[int, int] | None:
    """Return how finely the data of a run may be cut for a bit of time, and rows per block then.

    Parameters
    ----------
    scenario : Scenario
        What it is of.
    run : PlannedRun
        Configuration, nodes and data.
    costs : Costs
        What the parts cost.
    slack : float
        Share of the time with one block per core that may be added.

    Returns
    -------
    tuple of int or None
        Blocks per core, a power of two, and rows of each; None if one block per core is the most
        there can be.
    """
    least = predict(scenario, replace(run, blocks=run.cores), costs)
    found = None
    blocks = 2
    while blocks * run.cores <= run.rows:
        finer = replace(run, blocks=blocks * run.cores)
        if predict(scenario, finer, costs) > (1 + slack) * least:
            break
        found = (blocks, run.rows // finer.blocks)
        blocks *= 2
    return found
