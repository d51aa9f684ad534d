"""Predict the time of a run from the measured costs of its parts.

A run consists of passes of tasks (:mod:`.costs`); tasks merge partial results sixteen at a time. A
pass has as many tasks as blocks with one task per block, and as many as cores with SplIter or after
a rechunk, where a task does the work of all its blocks. SplIter also has costs per block: once for
the split, and in every pass to send a task its blocks. A rechunk, before the first pass, costs a
task per block, and each node receives all of its data but the share that it already holds. Nearest
neighbours have several steps, whose work is not proportional to rows.

The model ignores shared memory bandwidth, large results, and other load.
"""

from __future__ import annotations

import math
from dataclasses import replace

from spliter_experiments.evaluation.costs import (
    MERGED_AT_ONCE,
    Costs,
    NeighborCosts,
    pass_seconds,
    rechunk_seconds,
)
from spliter_experiments.evaluation.plan import FLOAT_BYTES, PlannedRun
from spliter_experiments.evaluation.schema import (
    KMeansParameters,
    NeighborsParameters,
    Scenario,
)
from spliter_experiments.harness.errors import PlanError

STEPS = 2
"""Tasks per tree: one to build it, one to query it."""

CANDIDATE_BYTES = 2 * FLOAT_BYTES
"""Bytes of a neighbour of a query: its distance and its index."""


def predict_neighbors(scenario: Scenario, run: PlannedRun, costs: Costs) -> float:
    """Return the predicted seconds of a nearest-neighbours run."""
    kernels = costs.neighbors
    if kernels is None:
        raise PlanError("the kernels of nearest neighbours have not been measured")
    if run.configuration == "baseline":
        return _trees(scenario, run, costs, kernels, run.blocks)
    if run.configuration == "rechunk":
        trees = run.cores if run.blocks >= run.cores else run.workers
        return rechunk_seconds(scenario, run, costs) + _trees(scenario, run, costs, kernels, trees)
    if run.configuration == "spliter":
        return _forest(run, costs, kernels)
    raise PlanError(f"there is no model of {run.configuration}")


def _trees(
    scenario: Scenario, run: PlannedRun, costs: Costs, kernels: NeighborCosts, trees: int
) -> float:
    rows = run.rows / trees
    work = kernels.build.at(rows) + run.queries * kernels.ask.at(rows)
    asking = pass_seconds(costs, STEPS * trees, STEPS * run.cores, work)
    told = run.queries * scenario.parameters.dims * FLOAT_BYTES * run.nodes / costs.bandwidth
    return told + asking + _merging_answers(scenario, run, costs, kernels, trees)


def _merging_answers(
    scenario: Scenario, run: PlannedRun, costs: Costs, kernels: NeighborCosts, trees: int
) -> float:
    """Return the seconds of a tree of merges; each level waits for the previous one."""
    asked = scenario.parameters
    assert isinstance(asked, NeighborsParameters)
    nbytes = run.queries * asked.neighbors * CANDIDATE_BYTES
    seconds, sets = 0.0, trees
    while sets > 1:
        groups = math.ceil(sets / MERGED_AT_ONCE)
        together = math.ceil(sets / groups)
        work = together * run.queries * kernels.merge
        # A group is merged where one of its sets is, so that set is not sent.
        links = min(run.nodes, groups)
        moved = (together - 1) * groups / links * nbytes if run.nodes > 1 else 0.0
        seconds += pass_seconds(costs, groups, run.cores, work) + moved / costs.bandwidth
        sets = groups
    return seconds


def _forest(run: PlannedRun, costs: Costs, kernels: NeighborCosts) -> float:
    rows = run.rows / run.workers
    # Every core has a chunk of the queries, and every tree answers each chunk.
    asking = pass_seconds(
        costs,
        run.cores * run.workers,
        run.cores,
        run.queries / run.cores * kernels.ask.at(rows),
    )
    merging = pass_seconds(
        costs, run.cores, run.cores, run.workers * run.queries / run.cores * kernels.merge
    )
    return (
        run.blocks * (costs.split_block + costs.pass_block)
        + pass_seconds(costs, run.workers, run.workers, kernels.build.at(rows))
        + asking
        + merging
    )


def check_has_model(scenario: Scenario) -> None:
    """Reject scenarios without a model."""
    if scenario.kind == "kernel":
        raise PlanError(
            f"figure {scenario.figure} is about one process; measure it: spliter experiment run"
        )
    if scenario.parameters.app == "csvm":
        raise PlanError(
            "there is no model of Cascade SVM: how many rows its parts pass on depends on the data"
        )


def predict(scenario: Scenario, run: PlannedRun, costs: Costs) -> float:
    """Return the predicted seconds of a run."""
    check_has_model(scenario)
    if run.app == "knn":
        return predict_neighbors(scenario, run, costs)
    asked = scenario.parameters
    # The estimator and all other ways label the points in one more pass.
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
    """Return the seconds to merge partial results that do not overlap with the work."""
    levels, tasks = 0, 0
    while results > 1:
        results = math.ceil(results / MERGED_AT_ONCE)
        levels, tasks = levels + 1, tasks + results
    return levels * costs.round_trip + tasks * costs.task


def most_blocks_per_core(
    scenario: Scenario, run: PlannedRun, costs: Costs, slack: float
) -> tuple[int, int] | None:
    """Return the largest number of blocks per core, a power of two, and the rows per block.

    Up to it the predicted time is at most a share of `slack` above that with one block per core;
    None if only one block per core fits.
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
