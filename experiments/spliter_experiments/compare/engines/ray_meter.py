"""What a way costs on Ray, by the counters of its nodes, and waiting until it has left no trace.

Tasks are those that the processes of the nodes have run, actors' methods included; what a process
has run since the last reading is lost if it ends before the next. Bytes are those
that have come into the nodes' object stores: copies of objects from other nodes, and results and
arguments over 100 kB, which Ray keeps there. Ray counts both together, so it is more than what has
moved. Smaller values travel in messages that nobody counts.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import ray
from ray._private import internal_api

from spliter_experiments.harness.errors import ClusterError
from spliter_experiments.harness.runner import Reading

REST_SECONDS = 60.0
POLL_SECONDS = 0.03


def node_stats() -> Iterator[Any]:
    """Ask each node that is alive for its counters."""
    for node in ray.nodes():
        if node["Alive"]:
            yield internal_api.node_stats(
                node["NodeManagerAddress"], node["NodeManagerPort"], include_memory_info=False
            )


@dataclass
class RayMeter:
    """Counters of a cluster.

    Parameters
    ----------
    executed : dict of bytes to int
        Tasks that each process has run; those that have ended since count too.
    """

    executed: dict[bytes, int] = field(default_factory=dict)

    def __enter__(self) -> RayMeter:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing was changed that had to be changed back."""

    def reading(self) -> Reading:
        """Read the counters."""
        nbytes = 0
        for stats in node_stats():
            nbytes += stats.store_stats.cumulative_created_bytes
            for worker in stats.core_workers_stats:
                self.executed[worker.worker_id] = worker.num_executed_tasks
        return Reading(sum(self.executed.values()), nbytes)


@dataclass(frozen=True)
class RayRest:
    """A state of the object stores to come back to: no more objects were made than are gone.

    Copies that Ray has made of blocks do not count, as it keeps them until it needs the room.

    Parameters
    ----------
    kept : int
        Objects that are there, without copies.
    may_come : callable
        Returns how many objects have been made since that are to stay.
    """

    kept: int
    may_come: Callable[[], int]

    @classmethod
    def now(cls, may_come: Callable[[], int] = lambda: 0) -> RayRest:
        """Take what is there now."""
        return cls(_kept() - may_come(), may_come)

    def wait(self, timeout: float = REST_SECONDS) -> None:
        """Wait until no more is kept than there was.

        Raises
        ------
        ClusterError
            If that takes longer than `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while (kept := _kept()) > self.kept + self.may_come():
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"the nodes are not at rest after {timeout:g} s: they keep {kept} objects "
                    f"(before: {self.kept}); does someone else use this Ray cluster?"
                )
            gc.collect()  # references in cycles hold results
            time.sleep(POLL_SECONDS)


def _kept() -> int:
    return sum(stats.store_stats.num_object_store_primary_copies for stats in node_stats())
