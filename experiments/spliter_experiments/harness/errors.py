"""The errors of the ``spliter`` command: each ends it with a message and its exit code."""

from __future__ import annotations

from typing import ClassVar

from spliter import SplIterError


class ExperimentError(SplIterError):
    """Root of the errors that the command reports without a traceback."""

    exit_code: ClassVar[int] = 2


class OptionError(ExperimentError, ValueError):
    """An option of the command has a value that cannot be used."""


class InputError(ExperimentError, ValueError):
    """The input cannot be read, or holds nothing that can be compared on."""


class TextColumnError(InputError):
    """A column that should hold numbers holds something else."""


class ClusterError(ExperimentError, RuntimeError):
    """The cluster cannot be reached, lacks something, or does not come to rest."""


class FloorError(ExperimentError, RuntimeError):
    """A plain process of the floor failed or did not answer."""

    exit_code = 1


class WaysDisagreeError(ExperimentError, AssertionError):
    """Ways to compute the same thing gave different answers."""

    exit_code = 1


class ResultsError(ExperimentError, OSError):
    """Results cannot be written or read."""


class IncompatibleResultsError(ResultsError):
    """Results that do not belong together are in one folder."""


class ScenarioError(ExperimentError, ValueError):
    """A scenario is unknown, or its file is not one; names the line where there is one."""


class PlanError(ExperimentError, ValueError):
    """The runs asked for do not exist in the scenario."""
