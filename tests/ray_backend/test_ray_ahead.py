"""Blocks on disk and at other nodes are brought ahead: each once, in order, with errors in turn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.waiting import wait_until

pytest.importorskip("ray")

import ray
from ray import ObjectRef
from ray.experimental import get_object_locations

from spliter import Split, split
from tests.ray_backend import programs
from tests.ray_backend.cluster import STORE_BYTES, RayNodes
from tests.ray_backend.placing import at, put_at

pytestmark = [pytest.mark.backend("ray"), pytest.mark.timeout(120)]

WAIT = 60
ROWS = 600_000


def spilled(nodes: RayNodes) -> list[ObjectRef]:
    """Make blocks at one node, more than its store takes."""
    there = programs.fill_placeholders.options(scheduling_strategy=at(nodes.ids[1]))
    blocks = [there.remote(ROWS, number) for number in range(40)]
    assert 40 * ROWS * 8 > STORE_BYTES
    ray.wait(blocks, num_returns=40, timeout=WAIT, fetch_local=False)
    wait_until(lambda: any(place["did_spill"] for place in get_object_locations(blocks).values()))
    return blocks


def read(parts: Split, *args: Any) -> Any:
    """Return what the task on the only partition has read."""
    (partition,) = parts
    return partition.submit(programs.read_all, *args).result(WAIT)


# A batch has 6 of these blocks; how many of the next one fit the window depends on the cores.
@pytest.mark.parametrize(
    ("prefetch", "ahead", "left"),
    [(3, range(6, 19), range(1, 4)), ("auto", range(6, 35), range(1, 7)), (False, {0}, {0})],
)
@pytest.mark.thorough
def test_blocks_on_disk(nodes: RayNodes, prefetch: Any, ahead: Any, left: Any) -> None:
    blocks = spilled(nodes)
    with split(blocks, prefetch=prefetch) as parts:
        *found, before, error = read(parts)
        assert (*found, error) == (list(range(40)), 40, "")
        assert before in ahead
        assert parts.moved.blocks == 0
        found, _, before, _ = read(parts, (-1,), 3)
        assert found == [0, 1, 2]
        assert before in left
        found, _, _, error = read(parts, (39,))
        assert (found, error) == (list(range(36)), "lost"), "at the turn of its batch"


@pytest.mark.parametrize(
    ("prefetch", "ahead"), [(3, range(3, 10)), ("auto", range(3, 19)), (False, {0})]
)
@pytest.mark.thorough
def test_blocks_at_another_node(nodes: RayNodes, prefetch: Any, ahead: Any) -> None:
    handle, name = nodes.add(num_cpus=0)
    try:
        putting = programs.put_all.options(num_cpus=0, scheduling_strategy=at(name))
        blocks = ray.get(putting.remote([np.full(20_000, it) for it in range(210)]), timeout=WAIT)
        with split(blocks, partitions_per_location=1, prefetch=prefetch) as parts:
            for _ in range(2):
                outcomes = [future.result(WAIT) for future in parts.map(programs.read_all)]
                assert sorted(it for found, *_ in outcomes for it in found) == list(range(210))
                assert sum(before for _, _, before, _ in outcomes) in ahead
                assert parts.moved.fetched_blocks == 210
                assert parts.moved.fetched_nbytes == parts.nbytes
    finally:
        nodes.kill(handle)


def test_blocks_in_memory(nodes: RayNodes) -> None:
    with split(put_at(nodes.ids, [np.full(3, 1)] * 5, [0] * 5), prefetch=3) as parts:
        assert read(parts) == ([1] * 5, 5, 0, "")
