"""The ``spliter`` command: comparisons, the paper's evaluation, SLURM jobs and ``doctor``."""

from __future__ import annotations
