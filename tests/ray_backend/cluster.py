"""A real Ray cluster of several nodes on this machine, for the tests of this folder.

Each node is a raylet with an object store of its own, so that objects on different nodes are as
far from each other as on different machines.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from typing import Any

import ray
from ray.cluster_utils import Cluster

from tests.waiting import wait_until

N_NODES = 3
STORE_BYTES = 150 * 2**20
HOST = "127.0.0.2"
"""Of the loopback interface: Ray has no authentication. The usual one of it Ray replaces by the
address that others see, where nothing listens."""

"""Seconds for anything that is waited for."""

SETTINGS = {
    # A node that was killed is given up after a second or two, instead of half a minute.
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}


class RayNodes:
    """Nodes of one CPU each, the first of which is the head, with this process connected to it."""

    def __init__(self) -> None:
        with suppress_output():
            self._cluster = Cluster(
                initialize_head=True,
                head_node_args={**_node(), "include_dashboard": False, "_system_config": SETTINGS},
            )
            for _ in range(N_NODES - 1):
                self._cluster.add_node(**_node())
            ray.init(
                address=self._cluster.address,
                log_to_driver=False,
                logging_level="critical",
                _node_ip_address=HOST,
            )
        wait_until(lambda: len(alive()) == N_NODES)
        self.ids = alive()

    def add(self, num_cpus: int = 1) -> tuple[Any, str]:
        """Start one more node; return its handle and its id."""
        before = set(alive())
        with suppress_output():
            node = self._cluster.add_node(**{**_node(), "num_cpus": num_cpus})
        wait_until(lambda: len(alive()) > len(before))
        (name,) = set(alive()) - before
        return node, name

    def kill(self, node: Any) -> None:
        """End a node as a crash would, and wait until Ray has noticed."""
        before = len(alive())
        with suppress_output():
            self._cluster.remove_node(node, allow_graceful=False)
        wait_until(lambda: len(alive()) < before)

    def end(self) -> None:
        with suppress_output():
            ray.shutdown()
            self._cluster.shutdown()


def _node() -> dict[str, Any]:
    return {
        "num_cpus": 1,
        "object_store_memory": STORE_BYTES,
        "node_ip_address": HOST,
    }


def alive() -> list[str]:
    """Return the ids of the nodes that are there, in order."""
    return sorted(node["NodeID"] for node in ray.nodes() if node["Alive"])


@contextlib.contextmanager
def suppress_output() -> Iterator[None]:
    """Let Ray start and end processes with the warnings that go with it."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
