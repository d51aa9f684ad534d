"""Errors of the ``spliter`` command; each sets the message and the exit code.

Any function of this package raises them where an input, a folder or a cluster cannot be used.
"""

from __future__ import annotations

from typing import ClassVar

from spliter import SplIterError


class ExperimentError(SplIterError):
    """Root of the errors that the command reports without a traceback."""

    exit_code: ClassVar[int] = 2


class OptionError(ExperimentError, ValueError):
    """An option of the command has an invalid value."""


class MissingLibraryError(OptionError):
    """A library that a workload itself needs is not installed."""


class InputError(ExperimentError, ValueError):
    """The input cannot be read, or contains no data to run on."""


class TextColumnError(InputError):
    """A column of the input is not numeric."""


class ClusterError(ExperimentError, RuntimeError):
    """The cluster is unreachable, incomplete, or does not become idle."""


class BaselineError(ExperimentError, RuntimeError):
    """A process of the floor (plain NumPy without an engine) failed or did not answer."""

    exit_code = 1


class PeerError(ExperimentError, RuntimeError):
    """A process of another environment does not start, failed or did not answer."""

    exit_code = 1


class WaysDisagreeError(ExperimentError, AssertionError):
    """Two ways to compute the same result gave different answers."""

    exit_code = 1


class ResultsError(ExperimentError, OSError):
    """Results cannot be written or read."""


class IncompatibleResultsError(ResultsError):
    """A folder contains results that must not be compared."""


class ScenarioError(ExperimentError, ValueError):
    """A scenario is unknown, or its file is invalid; names the entry."""


class PlanError(ExperimentError, ValueError):
    """The requested runs do not exist in the scenario."""


class ProfileError(ExperimentError, ValueError):
    """A site profile cannot be read, or lacks what a job needs."""


class TooMuchError(ExperimentError, ValueError):
    """A run needs more nodes, cores, memory or time than the site allows a job."""


class SubmissionError(ExperimentError, RuntimeError):
    """SLURM did not take a job, or does not answer."""

    exit_code = 1


class ServiceError(ExperimentError, RuntimeError):
    """A service of a job (a scheduler, a worker, a store) did not start or answer in time."""

    exit_code = 1
