"""Errors of ``spliter slurm``, which the command reports without a traceback."""

from __future__ import annotations

from spliter_experiments.harness.errors import ExperimentError


class ProfileError(ExperimentError, ValueError):
    """A site profile cannot be read, or lacks what a job needs."""


class TooMuchError(ExperimentError, ValueError):
    """A run needs more nodes, cores, memory or time than the site allows a job."""


class SubmissionError(ExperimentError, ValueError):
    """A folder is no submission, is damaged, or is in the wrong state for the command."""


class SlurmError(ExperimentError, RuntimeError):
    """A command of SLURM is missing or failed, or the cluster refused a job."""


class ServiceError(ExperimentError, RuntimeError):
    """A service of a job (a scheduler, a worker, a store) did not start or answer in time."""

    exit_code = 1
