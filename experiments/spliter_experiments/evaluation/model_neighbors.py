"""Predict nearest neighbours: trees are built and asked, and the best of all trees are merged.

Every query meets every tree, so that the work is the number of trees times that of all queries. One
task per block builds a tree per block and asks it, by two tasks; after a rechunk there is one for
each chunk. SplIter has a tree per worker, which one core builds and all cores of the worker ask, a
piece of the queries each.
"""

from __future__ import annotations

import math

from spliter_experiments.evaluation.costs import (
    MERGED_AT_ONCE,
    Costs,
    NeighborCosts,
    pass_seconds,
    rechunk_seconds,
)
from spliter_experiments.evaluation.plan import FLOAT_BYTES, PlannedRun
from spliter_experiments.evaluation.schema import NeighborsParameters, Scenario
from spliter_experiments.harness.errors import PlanError

STEPS = 2
"""Tasks of a tree: one to build it, one to ask it."""

CANDIDATE_BYTES = 2 * FLOAT_BYTES
"""Of a neighbour of a query: a distance and a number."""


def predict_neighbors(scenario: Scenario, run: PlannedRun, costs: Costs) -> float:
    """Return the seconds that a run is predicted to take.

    Raises
    ------
    PlanError
        If its kernels were not measured, or there is no model of the configuration.
    """
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
    return told + asking + _merging(scenario, run, costs, kernels, trees)


def _merging(
    scenario: Scenario, run: PlannedRun, costs: Costs, kernels: NeighborCosts, trees: int
) -> float:
    """Return the seconds of a tree of merges: every level waits for the one before."""
    asked = scenario.parameters
    assert isinstance(asked, NeighborsParameters)
    nbytes = run.queries * asked.neighbors * CANDIDATE_BYTES
    seconds, sets = 0.0, trees
    while sets > 1:
        groups = math.ceil(sets / MERGED_AT_ONCE)
        together = math.ceil(sets / groups)
        work = together * run.queries * kernels.merge
        # A group is merged where one of its sets is.
        links = min(run.nodes, groups)
        moved = (together - 1) * groups / links * nbytes if run.nodes > 1 else 0.0
        seconds += pass_seconds(costs, groups, run.cores, work) + moved / costs.bandwidth
        sets = groups
    return seconds


def _forest(run: PlannedRun, costs: Costs, kernels: NeighborCosts) -> float:
    rows = run.rows / run.workers
    # Every core has a piece of the queries, which every tree is asked about.
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
