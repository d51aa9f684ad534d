"""Predict a cascade of support vector machines: parts are trained on, and merged level by level.

A level is a pass of tasks. Training on the rows of a part takes less than training on as many that
parts have handed over, which lie at the margins; so both are measured, and how many rows of so many
are handed over. In further iterations all parts look at the solution, and it is trained once more;
in the paper's cascade all parts are trained again, and merged again.

How many rows are handed over is a property of the data. It is measured on as many rows as can be
trained on here, and beyond them a power law is all there is: the largest predictions are the least
certain.
"""

from __future__ import annotations

import math

from spliter_experiments.compare.workloads.csvm_cascade import FEW_PARTS, MANY_PARTS, PAPER, Scheme
from spliter_experiments.evaluation.costs import (
    CascadeCosts,
    Costs,
    Curve,
    pass_seconds,
    rechunk_seconds,
)
from spliter_experiments.evaluation.plan import PlannedRun
from spliter_experiments.evaluation.schema import CascadeParameters, Scenario
from spliter_experiments.harness.errors import PlanError

LOOKS = 3
"""Passes that the estimator makes over all partitions before it trains."""

SCHEMES = {
    "baseline": MANY_PARTS,
    "baseline-paper": PAPER,
    "rechunk": FEW_PARTS,
    "spliter": FEW_PARTS,
    "materialized": FEW_PARTS,
}


def predict_cascade(scenario: Scenario, run: PlannedRun, costs: Costs) -> float:
    """Return the seconds that a run is predicted to take.

    Raises
    ------
    PlanError
        If its steps were not measured, or there is no model of the configuration.
    """
    steps, asked = costs.cascade, scenario.parameters
    assert isinstance(asked, CascadeParameters)
    if steps is None:
        raise PlanError("the steps of a cascade have not been measured")
    if run.configuration not in SCHEMES:
        raise PlanError(f"there is no model of {run.configuration}")
    scheme = SCHEMES[run.configuration]
    parts = run.blocks if run.configuration in ("baseline", "baseline-paper") else run.cores
    before = 0.0
    if run.configuration == "rechunk":
        before = rechunk_seconds(scenario, run, costs)
    elif run.configuration in ("spliter", "materialized"):
        looks = LOOKS * pass_seconds(costs, parts, run.cores, 0.0)
        before = looks + run.blocks * (costs.split_block + LOOKS * costs.pass_block)
    iterations = asked.iterations if scheme.retrains else min(asked.iterations, steps.iterations)
    first = pass_seconds(costs, parts, run.cores, steps.train.at(run.rows / parts))
    first += _merging(run, costs, steps, scheme, parts)
    again = (iterations - 1) * _further(run, costs, steps, scheme, parts)
    return before + first + again


def _merging(
    run: PlannedRun, costs: Costs, steps: CascadeCosts, scheme: Scheme, parts: int
) -> float:
    """Return the seconds of all merges, the last of which leaves the solution."""
    kept: Curve = steps.kept if scheme.doubtful else steps.support
    seconds, sets, rows = 0.0, parts, run.rows / parts
    while sets > 1:
        groups = math.ceil(sets / scheme.arity)
        together = sets / groups
        work = steps.merge.at(together * kept.at(rows))
        seconds += pass_seconds(costs, groups, run.cores, work)
        sets, rows = groups, run.rows / groups
    return seconds


def _further(
    run: PlannedRun, costs: Costs, steps: CascadeCosts, scheme: Scheme, parts: int
) -> float:
    """Return the seconds of an iteration after the first."""
    rows, solution = run.rows / parts, steps.support.at(run.rows)
    look = rows * solution * steps.look
    if not scheme.retrains:
        looking = pass_seconds(costs, parts, run.cores, look)
        return looking + costs.round_trip + steps.merge.at(solution)
    # A part that is trained with the solution hands over little else.
    one = steps.merge.at(solution + steps.support.at(rows))
    levels = math.ceil(math.log(max(parts, 2), scheme.arity))
    seconds = pass_seconds(costs, parts, run.cores, look + one)
    for level in range(1, levels + 1):
        groups = math.ceil(parts / scheme.arity**level)
        seconds += pass_seconds(costs, groups, run.cores, one)
    return seconds
