"""Connect to a Ray cluster while a command runs: nodes on this machine, or the user's."""

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

from spliter import Location
from spliter_backends.ray.blocks import affinity
from spliter_backends.ray.cluster import usable_nodes
from spliter_experiments.compare.engines.engine import ClusterChoice, check_versions
from spliter_experiments.harness.errors import ClusterError

START_SECONDS = 60
CHECK_SECONDS = 120

STORES_SHARE = 0.3
"""Share of the free memory for all object stores of nodes started here."""

HOST = "127.0.0.2" if sys.platform == "linux" else None
"""Loopback address, because Ray has no authentication. Ray replaces 127.0.0.1 by the host's public
address; other loopback addresses exist on Linux only, elsewhere Ray uses its default."""


@contextmanager
def connected(choice: ClusterChoice) -> Iterator[None]:
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
    """Start a node per worker, with one CPU per thread."""
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
        warnings.simplefilter("ignore", FutureWarning)  # about settings that we do not use
        try:
            ray.init(address=address, log_to_driver=False, logging_level="error", **options)
        except Exception as error:
            raise ClusterError(f"no Ray cluster can be reached at {address}: {error}") from error


def nodes_of(choice: ClusterChoice) -> dict[Location, int]:
    wanted = choice.workers if choice.address is None else 1
    deadline = time.monotonic() + START_SECONDS
    while len(found := usable_nodes()) < wanted:
        if time.monotonic() > deadline:
            raise ClusterError(f"{len(found)} of {wanted} Ray nodes came up in {START_SECONDS} s")
        time.sleep(0.1)
    return {Location(node): cpus for node, cpus in sorted(found.items())}


def check_nodes(nodes: Mapping[Location, int]) -> None:
    found = {}
    for node in nodes:
        version = "no answer"
        with suppress(Exception):
            asked = version_here.options(scheduling_strategy=affinity(node)).remote()
            version = ray.get(asked, timeout=CHECK_SECONDS)
        found[node[:8]] = version
    check_versions("ray", found)


@ray.remote  # type: ignore[untyped-decorator]
def version_here() -> str:
    import spliter as found

    return found.__version__


def on_this_machine(nodes: Mapping[Location, int]) -> bool:
    hosts = {node["NodeManagerHostname"] for node in ray.nodes() if node["NodeID"] in nodes}
    return hosts == {os.uname().nodename}
