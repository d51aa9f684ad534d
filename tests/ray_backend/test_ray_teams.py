"""Teams on Ray: the CPUs that they hold, cancelled ones, and the counters of their passes."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.waiting import wait_until

pytest.importorskip("ray")

import ray

from spliter import Schedule, gather, split
from spliter_backends.ray import executor as ray_executor
from spliter_backends.ray.cluster import usable_nodes
from tests.ray_backend import programs
from tests.ray_backend.cluster import RayNodes
from tests.ray_backend.placing import put_at

pytestmark = [pytest.mark.backend("ray"), pytest.mark.timeout(120)]

WAIT = 60
ONE_BY_ONE = Schedule("SS", order="contiguous")


@pytest.fixture
def two_cpus(nodes: RayNodes, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A node of two CPUs; teams may hold both, as if all nodes had as many."""
    handle, name = nodes.add(num_cpus=2)
    monkeypatch.setattr(ray_executor, "usable_nodes", lambda: {name: usable_nodes().get(name, 2)})
    yield name
    nodes.kill(handle)


def free_cpus(node: str) -> float:
    return float(ray._private.state.available_resources_per_node()[node].get("CPU", 0))


@pytest.mark.thorough
def test_no_cpu_is_free_while_a_team_waits(two_cpus: str, tmp_path: Path) -> None:
    wait_until(lambda: free_cpus(two_cpus) == 2)
    parts = split(put_at([two_cpus], [np.arange(3)] * 2, [0] * 2), schedule=ONE_BY_ONE)
    future = parts.map_reduce(programs.total_when_told, operator.add, str(tmp_path))
    wait_until(lambda: {"begun-0", "begun-1"} <= {path.name for path in tmp_path.iterdir()})
    wait_until(lambda: free_cpus(two_cpus) == 0)
    (tmp_path / "go").touch()
    assert future.result(WAIT) == 2 * 3
    wait_until(lambda: free_cpus(two_cpus) == 2)


@pytest.mark.thorough
def test_a_cancelled_team_begins_no_further_partition(two_cpus: str, tmp_path: Path) -> None:
    parts = split(put_at([two_cpus], [np.arange(3)] * 30, [0] * 30), schedule=ONE_BY_ONE)
    future = parts.map_reduce(programs.total_when_told, operator.add, str(tmp_path))
    wait_until(lambda: {"begun-0", "begun-1"} <= {path.name for path in tmp_path.iterdir()})
    ray.cancel(future)
    wait_until((tmp_path / "interrupted").exists)
    (tmp_path / "go").touch()
    with pytest.raises(ray.exceptions.TaskCancelledError):
        future.result(WAIT)
    wait_until(lambda: free_cpus(two_cpus) == 2)
    assert len(list(tmp_path.glob("begun-*"))) == 2
    # The node is there for the next pass, which begins them all.
    again = parts.map_reduce(programs.total_when_told, operator.add, str(tmp_path))
    assert again.result(WAIT) == 30 * 3
    assert len(list(tmp_path.glob("begun-*"))) == 30


def test_counters_of_passes_arrive_with_the_results(nodes: RayNodes, tmp_path: Path) -> None:
    prometheus_client = pytest.importorskip("prometheus_client")
    names = ("passes", "blocks", "bytes")

    def values() -> dict[str, float]:
        read = prometheus_client.REGISTRY.get_sample_value
        return {name: read(f"spliter_{name}_total") or 0.0 for name in names}

    parts = split(put_at(nodes.ids, [np.arange(3)] * 12, [0, 1, 2] * 4), schedule="FAC2")
    before = values()
    gather(parts.map(programs.total))
    parts.map_reduce(programs.total, operator.add).result(WAIT)
    assert len(parts.metrics()) == len(parts)  # reads the reports that came with the results
    more = {name: value - before[name] for name, value in values().items()}
    assert more == {"passes": 2 * len(parts), "blocks": 2 * 12, "bytes": 2 * parts.nbytes}
    file = tmp_path / "spliter.prom"
    prometheus_client.write_to_textfile(str(file), prometheus_client.REGISTRY)
    written = dict(
        line.split()
        for line in file.read_text().splitlines()
        if line[:1] != "#" and "{" not in line
    )
    assert {name: float(written[f"spliter_{name}_total"]) for name in names} == values()
