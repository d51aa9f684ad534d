"""When processes and nodes end: the right answer, or an error that says what was lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.waiting import wait_until

pytest.importorskip("ray")

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from spliter import BlockLostError, split
from tests.conftest import RunPython
from tests.ray_backend import programs
from tests.ray_backend.cluster import RayNodes
from tests.ray_backend.placing import put_at

pytestmark = [pytest.mark.thorough, pytest.mark.backend("ray"), pytest.mark.timeout(200)]

WAIT = 100
ROWS = 50_000
RESTARTED = Path(__file__).parents[1] / "programs" / "ray_restarted.py"


def test_process_of_a_task_ends(nodes: RayNodes, tmp_path: Path) -> None:
    there = NodeAffinitySchedulingStrategy(node_id=nodes.ids[1], soft=False)
    blocks = [
        programs.fill_placeholders.options(scheduling_strategy=there).remote(ROWS, i)
        for i in range(3)
    ]
    (partition,) = split(blocks)
    future = partition.submit(programs.kill_once, str(tmp_path / "marker"))
    assert future.result(WAIT) == 3 * ROWS


def test_process_ends_that_owns_blocks(nodes: RayNodes) -> None:
    actor: Any = ray.remote(programs.Putting)
    owner = actor.options(num_cpus=0).remote()
    (partition,) = split(ray.get(owner.put.remote(2), timeout=WAIT), partitions_per_location=1)
    assert partition.submit(programs.total).result(WAIT) == 0
    ray.kill(owner)

    def lost() -> bool:
        return isinstance(partition.submit(programs.total).exception(WAIT), BlockLostError)

    wait_until(lost)


def test_blocks_are_made_again(nodes: RayNodes) -> None:
    handle, name = nodes.add()
    there = NodeAffinitySchedulingStrategy(node_id=name, soft=True)
    blocks = [
        programs.fill_placeholders.options(scheduling_strategy=there).remote(ROWS, i)
        for i in range(3)
    ]
    parts = split([*blocks, *put_at(nodes.ids, [np.ones(2, int)], [0])])
    assert name in parts.locations
    old = list(parts)
    nodes.kill(handle)
    assert sum(part.submit(programs.total).result(WAIT) for part in old) == 3 * ROWS + 2
    assert sum(f.result(WAIT) for f in parts.map(programs.total)) == 3 * ROWS + 2
    assert name not in parts.locations, "planned again, as a task ran elsewhere"


def test_node_ends_under_a_task(nodes: RayNodes, tmp_path: Path) -> None:
    handle, name = nodes.add()
    there = NodeAffinitySchedulingStrategy(node_id=name, soft=True)
    (partition,) = split(
        [
            programs.fill_placeholders.options(scheduling_strategy=there).remote(ROWS, i)
            for i in range(2)
        ]
    )
    assert partition.location == name
    started, go = tmp_path / "started", tmp_path / "go"
    future = partition.submit(programs.slow_total, str(started), str(go))
    wait_until(started.exists)
    nodes.kill(handle)
    go.touch()
    assert future.result(WAIT) == ROWS


def test_blocks_that_cannot_be_made_again(nodes: RayNodes) -> None:
    handle, name = nodes.add()
    gone = put_at([name], [np.arange(ROWS)] * 2, [0, 0])
    blocks = [*put_at(nodes.ids, [np.arange(3)], [1]), *gone]
    parts = split(blocks, partitions_per_location=1)
    nodes.kill(handle)
    stay, lost = sorted(parts, key=lambda part: part.location == name)
    assert stay.submit(programs.total).result(WAIT) == 3
    with pytest.raises(BlockLostError, match="lost") as raised:
        lost.submit(programs.total).result(WAIT)
    assert set(raised.value.blocks) <= {(1,), (2,)}
    with pytest.raises(BlockLostError, match="lost"):
        split(blocks)
    assert ray.is_initialized()


def test_ray_is_shut_down_and_started_again(run_python: RunPython) -> None:
    written = run_python(str(RESTARTED)).stdout.splitlines()
    down, restarted, with_new = map(json.loads, written)
    state = {"done": True, "moved": 0}
    # A fitted model and a list of references do not know that there was a connection before.
    unconnected = {name: down.pop(name) for name in ("split", "predict")}
    assert set(unconnected.values()) == {"BackendNotUsableError"}
    assert down == {**dict.fromkeys(down, "BlockLostError"), **state, "connected": False}
    state["connected"] = True
    assert restarted == {**dict.fromkeys(restarted, "BlockLostError"), **state}
    assert with_new.pop("new") == "19800.0"
    assert with_new == {**dict.fromkeys(with_new, "BlockLostError"), **state}
