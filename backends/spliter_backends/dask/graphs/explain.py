"""Describe what would run: the result of ``partitioned().explain(...)``."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dask.typing import Key
from dask.utils import format_bytes

from spliter_backends.dask.graphs.plan import ALONE, Plan


@dataclass(frozen=True)
class Explanation:
    """What :func:`spliter.partitioned` does with collections.

    Parameters
    ----------
    before : int
        Tasks that Dask would run; 0 if they were not counted.
    after : int
        Tasks that run instead; as many as before if the graph is forwarded.
    reason : str
        Why it is forwarded to Dask as it is; empty if it is not.
    levels : tuple of tuple of int
        For each level, the clusters, and the tasks of Dask in them.
    alone : int
        Tasks that stay single tasks.
    crossing : int
        Values that clusters make and that go to other workers.
    existing : int
        Values in memory that go to a cluster at another worker.
    existing_nbytes : int
        Their bytes, as far as Dask has measured them.

    Examples
    --------
    >>> print(Explanation(288, 3, "", ((2, 280), (1, 8)), crossing=1))
    288 tasks, run as 3
      level 0: 2 clusters of 280 tasks
      level 1: 1 cluster of 8 tasks
      between workers: 1 value that tasks make
    """

    before: int
    after: int
    reason: str
    levels: tuple[tuple[int, int], ...] = ()
    alone: int = 0
    crossing: int = 0
    existing: int = 0
    existing_nbytes: int = 0

    def __str__(self) -> str:
        if self.reason:
            counted = f"{self.before} tasks, " if self.before else ""
            return f"{counted}forwarded to Dask as they are: {self.reason}"
        lines = [f"{self.before} tasks, run as {self.after}"]
        lines += [
            f"  level {level}: {_plural(clusters, 'cluster')} of {_plural(tasks, 'task')}"
            for level, (clusters, tasks) in enumerate(self.levels)
            if clusters
        ]
        if self.alone:
            lines.append(f"  {_plural(self.alone, 'task')} left single")
        crossing = f"{_plural(self.crossing, 'value')} that tasks make"
        if self.existing:
            nbytes = format_bytes(self.existing_nbytes)
            crossing += f", {_plural(self.existing, 'value')} in memory ({nbytes})"
        return "\n".join([*lines, f"  between workers: {crossing}"])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def explain_plan(
    plan: Plan,
    before: int,
    workers: Sequence[str],
    held: Mapping[Key, str],
    nbytes: Mapping[Key, int],
) -> Explanation:
    """Describe a plan: workers are of partitions, `held` and `nbytes` of existing values."""
    clusters, tasks = Counter[int](), Counter[int]()
    crossing: set[tuple[Key, str]] = set()
    existing: set[tuple[Key, str]] = set()
    for cluster in plan.clusters:
        if cluster.partition == ALONE:
            continue
        clusters[cluster.level] += 1
        tasks[cluster.level] += len(cluster.keys)
        here = workers[cluster.partition]
        for output in cluster.inputs:
            there = workers[plan.clusters[output.cluster].partition]
            if there != here:
                crossing.update((key, here) for key in output.keys)
        existing.update((key, here) for key in cluster.direct if held.get(key, here) != here)
    return Explanation(
        before,
        plan.ntasks,
        "",
        tuple((clusters[level], tasks[level]) for level in range(max(clusters, default=-1) + 1)),
        sum(cluster.partition == ALONE for cluster in plan.clusters),
        len(crossing),
        len(existing),
        sum(nbytes[key] for key, _ in existing),
    )
