"""What the planner returns: the clusters of a graph, and which values travel between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from dask.typing import Key

ALONE: Final = -1
"""Partition of tasks that stay single tasks."""


@dataclass(frozen=True)
class Output:
    """Values of a cluster that the same other clusters use; they travel as one.

    Parameters
    ----------
    cluster : int
        Index of the cluster that makes them.
    keys : tuple of hashable
        Their keys, in the order in which they are made.
    position : int or None
        Where they are in the value of the cluster, if all that use them run at its location and
        take them from there. ``None`` if they are the value of a task of their own, or the only
        value of the cluster.
    """

    cluster: int
    keys: tuple[Key, ...]
    position: int | None = None


@dataclass
class Cluster:
    """Tasks that run as one.

    Parameters
    ----------
    partition : int
        Partition in which they run; `ALONE` for a task that stays a single one.
    level : int
        Number of times that values have crossed partitions before.
    keys : list of hashable
        Tasks in depth-first order.
    inputs : list of Output
        Values of other clusters.
    direct : list of hashable
        Keys of single tasks, or of values that no task of the graph makes.
    outputs : list of Output
        Values that other clusters use, or that are wanted.
    singles : list of hashable
        Values that single tasks use: each becomes a task of its own.
    """

    partition: int
    level: int
    keys: list[Key] = field(default_factory=list)
    inputs: list[Output] = field(default_factory=list)
    direct: list[Key] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    singles: list[Key] = field(default_factory=list)

    @property
    def ntasks(self) -> int:
        """Number of tasks: the cluster, and what other locations take of several outputs."""
        if self.has_one_value:
            return 1
        return 1 + sum(output.position is None for output in self.outputs) + len(self.singles)

    @property
    def has_one_value(self) -> bool:
        """Whether its only output is its value, in place of one item of it."""
        return len(self.outputs) == 1 and not self.singles


@dataclass(frozen=True)
class Plan:
    """Clusters of a graph, and where the wanted values come from.

    Parameters
    ----------
    clusters : list of Cluster
        In an order in which they can run.
    wanted : list of Output
        Wanted values that clusters make.
    direct : list of hashable
        Wanted values that single tasks make.
    """

    clusters: list[Cluster]
    wanted: list[Output]
    direct: list[Key]

    @property
    def ntasks(self) -> int:
        """Number of tasks that run the clusters."""
        return sum(cluster.ntasks for cluster in self.clusters)
