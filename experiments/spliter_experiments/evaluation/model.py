"""Predict what runs take from what their parts cost: a model of a few lines.

Of passes of tasks (:mod:`.costs`). Partial results are merged sixteen at a time, by tasks too. With
one task per block, there are as many tasks as blocks; with SplIter and after a rechunk as many as
cores, and the work of a task is that of all its blocks. SplIter takes something for each block too:
once to split, and in every pass to tell a task of its blocks. A rechunk comes before the first
pass: it costs a task for each block, and every node receives all of its data but the share that it
has already. Nearest neighbours (:mod:`.model_neighbors`) and cascades (:mod:`.model_cascade`) have
several steps, whose work does not go by rows alone.

What the model leaves out: memory bandwidth that cores share, results that are large, and whatever
else runs there.
"""

from __future__ import annotations

import math
from dataclasses import replace

from spliter_experiments.evaluation.costs import (
    MERGED_AT_ONCE,
    Costs,
    pass_seconds,
    rechunk_seconds,
)
from spliter_experiments.evaluation.model_cascade import predict_cascade
from spliter_experiments.evaluation.model_neighbors import predict_neighbors
from spliter_experiments.evaluation.plan import PlannedRun
from spliter_experiments.evaluation.schema import KMeansParameters, Scenario
from spliter_experiments.harness.errors import PlanError


def predict(scenario: Scenario, run: PlannedRun, costs: Costs) -> float:
    """Return the seconds that a run is predicted to take.

    Raises
    ------
    PlanError
        If there is no model of it.
    """
    if scenario.kind == "kernel":
        raise PlanError(
            f"figure {scenario.figure} is about one process; measure it: spliter experiment run"
        )
    if run.app == "knn":
        return predict_neighbors(scenario, run, costs)
    if run.app == "csvm":
        return predict_cascade(scenario, run, costs)
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
    before = rechunk_seconds(scenario, run, costs) if run.configuration == "rechunk" else 0.0
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


def block_seconds(run: PlannedRun, costs: Costs) -> float:
    """Return the seconds that the kernel of a run is predicted to take for a block."""
    rows = run.rows / run.blocks
    if costs.neighbors is not None:
        return costs.neighbors.build.at(rows) + run.queries * costs.neighbors.ask.at(rows)
    if costs.cascade is not None:
        return costs.cascade.train.at(rows)
    return costs.kernel(rows)


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
