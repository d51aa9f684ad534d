"""Group runs into jobs: runs on equal clusters share a job, up to its time limit.

Pure functions: this module reads, writes and starts nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from spliter_experiments.evaluation import PlannedRun
from spliter_experiments.evaluation.plan import stands_of
from spliter_experiments.harness.errors import TooMuchError
from spliter_slurm.site import GIB, Site

START_SECONDS = 120
"""Time limit of each step of starting the services of a job."""

SAFETY = 1.5
"""Time limit of a job as a multiple of the estimate of its runs."""

HANGING = 3
"""A stand is ended after this multiple of its estimate, so that the next stands can run."""

SPILLING = 2
"""Maximum memory of a run as a multiple of a node's: estimates count all copies of the data at
once, and workers spill the excess. With more, the run would not finish."""

LEAST_SECONDS = 300
"""Minimum time limit of a stand: estimates of short runs are poor, and Python starts slowly."""


class Shape(NamedTuple):
    """Size of the cluster that a job starts for its runs."""

    engine: str
    nodes: int
    workers: int
    threads: int

    @property
    def per_node(self) -> int:
        """Workers on each node."""
        return self.workers // self.nodes

    @property
    def cores_per_node(self) -> int:
        """Threads of all workers of a node."""
        return self.per_node * self.threads


@dataclass(frozen=True)
class Stand:
    """Runs executed by one command, which loads the data once and interleaves the runs.

    They are a part of a stand of the plan if all of it would exceed a job's time limit.
    """

    name: str
    runs: tuple[PlannedRun, ...]

    @property
    def limit(self) -> int:
        """Seconds after which the command is ended."""
        return max(LEAST_SECONDS, math.ceil(HANGING * _seconds(self.runs)))


@dataclass(frozen=True)
class Job:
    """One batch script: stands that share a cluster, and the time limit of all."""

    name: str
    shape: Shape
    stands: tuple[Stand, ...]
    seconds: int

    @property
    def runs(self) -> list[PlannedRun]:
        """All runs."""
        return [run for stand in self.stands for run in stand.runs]


def make_jobs(
    runs: Sequence[PlannedRun], site: Site, *, seconds: float | None = None, prefix: str = ""
) -> list[Job]:
    """Group runs into jobs, in the order in which they run.

    Each job starts when the one before has ended, because they would share links otherwise.
    `seconds` is a time limit if shorter than the site's.
    """
    longest = site.seconds if seconds is None else min(site.seconds, int(seconds))
    for run in runs:
        _check(run, site, longest)
    jobs: list[Job] = []
    for shape in dict.fromkeys(_shape(run) for run in runs):
        pieces = _pieces([run for run in runs if _shape(run) == shape], longest)
        name = f"{prefix}{shape.engine}-{shape.nodes}n{shape.workers}w{shape.threads}t"
        for number, stands in enumerate(pieces):
            suffix = "" if len(pieces) == 1 else f"-{number}"
            limit = _job_seconds([run for stand in stands for run in stand.runs])
            jobs.append(Job(name + suffix, shape, tuple(stands), limit))
    return jobs


def _shape(run: PlannedRun) -> Shape:
    return Shape(run.engine, run.nodes, run.workers, run.threads)


def _seconds(runs: Sequence[PlannedRun]) -> float:
    """Return the estimated time of runs, including a warm-up of each configuration."""
    warm_up: dict[tuple[str, str], float] = {}
    for run in runs:
        key = (run.stand, run.configuration)
        warm_up[key] = max(warm_up.get(key, 0.0), run.estimated_seconds)
    return sum(run.estimated_seconds for run in runs) + sum(warm_up.values())


def _job_seconds(runs: Sequence[PlannedRun]) -> int:
    """Return the time limit of consecutive runs, in seconds of whole minutes."""
    return 60 * math.ceil((START_SECONDS + SAFETY * _seconds(runs)) / 60)


def _pieces(runs: Sequence[PlannedRun], longest: int) -> list[list[Stand]]:
    """Divide runs into pieces that each fit the maximum time limit."""
    pieces: list[list[Stand]] = [[]]
    for stand in _stands(runs, longest):
        before = [run for other in pieces[-1] for run in other.runs]
        if before and _job_seconds([*before, *stand.runs]) > longest:
            pieces.append([])
        pieces[-1].append(stand)
    return pieces


def _stands(runs: Sequence[PlannedRun], longest: int) -> list[Stand]:
    """Group runs into stands; divide a stand that is too long, between repetitions if possible.

    Compared runs then stay in one job: on the same nodes, at about the same time.
    """
    found = []
    for name, together in stands_of(runs).items():
        parts = _parts(together, longest)
        several = len(parts) > 1
        found += [
            Stand(f"{name}-{at}" if several else name, tuple(part)) for at, part in enumerate(parts)
        ]
    return found


def _parts(runs: Sequence[PlannedRun], longest: int) -> list[list[PlannedRun]]:
    """Divide the runs of a stand into parts that each fit the maximum time limit."""
    ordered = sorted(runs, key=lambda run: run.repetition)
    rounds = [list(group) for _, group in groupby(ordered, key=lambda run: run.repetition)]
    if any(_job_seconds(group) > longest for group in rounds):
        rounds = [[run] for run in ordered]
    parts: list[list[PlannedRun]] = [[]]
    for group in rounds:
        if parts[-1] and _job_seconds([*parts[-1], *group]) > longest:
            parts.append([])
        parts[-1] += group
    return parts


def _check(run: PlannedRun, site: Site, longest: int) -> None:
    """Reject runs that do not fit the site, because the cluster may let them wait forever."""
    wanted = [
        ("nodes", run.nodes, site.nodes, ""),
        ("cores on a node", run.cores // run.nodes, site.cores, ""),
        ("memory on a node", run.memory_bytes / GIB, SPILLING * site.memory_gib, " GiB"),
        ("time", _job_seconds([run]) / 60, longest / 60, " minutes"),
    ]
    for what, asked, there, unit in wanted:
        if asked > there:
            raise TooMuchError(
                f"{run.id} asks too much of {site.name}: {what} {asked:.4g}{unit}, and it has "
                f"{there:.4g}{unit}{' with what can be spilled' if what.startswith('mem') else ''}"
                ". Take fewer nodes or the smaller size, or a --site that has more"
            )


def spilling(job: Job, site: Site) -> float:
    """Return by how many GiB a job may exceed the memory of a node; 0 if it fits."""
    return max(0.0, max(run.memory_bytes for run in job.runs) / GIB - site.memory_gib)
