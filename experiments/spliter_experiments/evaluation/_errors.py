"""The errors of the evaluation; the command reports them like all others, without a traceback."""

from __future__ import annotations

from spliter_experiments.harness.errors import ExperimentError, ResultsError


class ScenarioError(ExperimentError, ValueError):
    """A scenario is unknown, or its file is not one; names the line where there is one."""


class PlanError(ExperimentError, ValueError):
    """What is asked for of a scenario cannot be run."""


class IncompatibleResultsError(ResultsError):
    """Results that do not belong together are in one folder."""
