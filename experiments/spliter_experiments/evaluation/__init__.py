"""Reproduce the paper's evaluation: scenarios, planned runs, figures and a report."""

from __future__ import annotations

from spliter_experiments.evaluation.catalog import FIGURES, load_scenario
from spliter_experiments.evaluation.plan import PlannedRun, command_of, plan_digest, plan_runs
from spliter_experiments.evaluation.schema import Scenario

__all__ = [
    "FIGURES",
    "PlannedRun",
    "Scenario",
    "command_of",
    "load_scenario",
    "plan_digest",
    "plan_runs",
]
