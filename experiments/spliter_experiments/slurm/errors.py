"""What can go wrong between a plan and its jobs, as errors that the command reports."""

from __future__ import annotations

from spliter_experiments.harness.errors import ExperimentError


class ProfileError(ExperimentError, ValueError):
    """A site profile cannot be read, or lacks what a job needs."""


class TooMuchError(ExperimentError, ValueError):
    """A run wants more nodes, cores, memory or time than the site gives a job."""


class SubmissionError(ExperimentError, ValueError):
    """A folder is no submission, is damaged, or is not in a state for what is asked."""


class SlurmError(ExperimentError, RuntimeError):
    """A command of SLURM failed."""


class SlurmMissingError(SlurmError):
    """There is no SLURM here: its commands are not on the PATH."""


class SlurmUnreachableError(SlurmError):
    """The controller of the cluster does not answer."""


class SlurmRefusedError(SlurmError):
    """The cluster does not take a job as it is."""


class ServiceError(ExperimentError, RuntimeError):
    """A service of a job (a scheduler, a worker, a store) did not start or answer in time."""

    exit_code = 1
