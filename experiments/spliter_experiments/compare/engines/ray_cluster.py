"""A Ray cluster for the time of a command: nodes of its own on this machine, or the user's."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import psutil
import ray

import spliter
from spliter import Location
from spliter_backends.ray.blocks import affinity
from spliter_backends.ray.cluster import usable_nodes
from spliter_experiments.compare.engines.engine import ClusterChoice
from spliter_experiments.harness.errors import ClusterError

START_SECONDS = 60
CHECK_SECONDS = 120

STORES_SHARE = 0.3
"""Of the memory that is free: what the object stores of nodes started here may take together."""

HOST = "127.0.0.2" if sys.platform == "linux" else None
"""Of the loopback interface, as Ray has no authentication. The usual one Ray replaces by the
address that others see; elsewhere than on Linux there is no other, and Ray takes the usual one."""


@contextmanager
def connected(choice: ClusterChoice) -> Iterator[None]:
    """Connect this process to a cluster.

    Raises
    ------
    ClusterError
        If it is connected already, or the cluster cannot be started or reached.
    """
    if ray.is_initialized():
        raise ClusterError("this process is connected to Ray already; call ray.shutdown() first")
    try:
        if choice.address is None:
            with _own_nodes(choice) as address:
                _connect(address, {"_node_ip_address": HOST} if HOST else {})
                yield
        else:
            _connect(choice.address, {})
            yield
    finally:
        ray.shutdown()


@contextmanager
def _own_nodes(choice: ClusterChoice) -> Iterator[str]:
    """Start a node for each worker, with as many CPUs as it has threads."""
    from ray.cluster_utils import Cluster

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    memory = int(STORES_SHARE * psutil.virtual_memory().available / choice.workers)
    node: dict[str, Any] = {"num_cpus": choice.threads, "object_store_memory": memory}
    if HOST:
        node["node_ip_address"] = HOST
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        for _ in range(choice.workers - 1):
            cluster.add_node(**node)
        yield cluster.address
    finally:
        ray.shutdown()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # of processes that are ending
            cluster.shutdown()


def _connect(address: str, options: Mapping[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of settings to come, none of them ours
        try:
            ray.init(address=address, log_to_driver=False, logging_level="error", **options)
        except Exception as error:
            raise ClusterError(f"no Ray cluster can be reached at {address}: {error}") from error


def nodes_of(choice: ClusterChoice) -> dict[Location, int]:
    """Return the nodes that run tasks, and how many each runs at once.

    Raises
    ------
    ClusterError
        If there are none, or those started here do not come up in time.
    """
    wanted = choice.workers if choice.address is None else 1
    deadline = time.monotonic() + START_SECONDS
    while len(found := usable_nodes()) < wanted:
        if time.monotonic() > deadline:
            raise ClusterError(f"{len(found)} of {wanted} Ray nodes came up in {START_SECONDS} s")
        time.sleep(0.1)
    return {Location(node): cpus for node, cpus in sorted(found.items())}


def check_nodes(nodes: Mapping[Location, int]) -> None:
    """Make sure that all nodes have this version of SplIter.

    Raises
    ------
    ClusterError
        If one has not, or does not answer.
    """
    wrong = []
    for node in nodes:
        version = "no answer"
        with suppress(Exception):
            asked = version_here.options(scheduling_strategy=affinity(node)).remote()
            version = ray.get(asked, timeout=CHECK_SECONDS)
        if version != spliter.__version__:
            wrong.append(f"{node[:8]} has {version}")
    if wrong:
        raise ClusterError(
            f"nodes without spliter {spliter.__version__}: {'; '.join(wrong)}; install "
            "the same version there, with its extras [experiments,ray]"
        )


@ray.remote  # type: ignore[untyped-decorator]
def version_here() -> str:
    """Return the version of SplIter where this runs."""
    import spliter as found

    return found.__version__


def on_this_machine(nodes: Mapping[Location, int]) -> bool:
    """Whether all nodes are on this host."""
    hosts = {node["NodeManagerHostname"] for node in ray.nodes() if node["NodeID"] in nodes}
    return hosts == {os.uname().nodename}
