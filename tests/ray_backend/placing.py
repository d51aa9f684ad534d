"""Collections whose blocks are at nodes that the test says, or draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import ray
from ray import ObjectRef
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from spliter_backends.ray import RayArray
from tests.engine_collections import EngineCollections, cut
from tests.ray_backend.cluster import alive
from tests.ray_backend.programs import put_all


def at(node: str) -> Any:
    """Return what pins a remote function to a node."""
    return NodeAffinitySchedulingStrategy(node_id=node, soft=False)


def put_at(
    nodes: Sequence[str], blocks: Sequence[Any], placement: Sequence[int]
) -> list[ObjectRef]:
    """Put blocks, however small, into the object stores of nodes."""
    found: dict[int, ObjectRef] = {}
    for number, node in enumerate(nodes):
        mine = [position for position, where in enumerate(placement) if where == number]
        if mine:
            putting = put_all.options(scheduling_strategy=at(node)).remote(
                [np.array(blocks[position]) for position in mine]
            )
            found.update(zip(mine, ray.get(putting, timeout=60), strict=True))
    return [found[position] for position in range(len(blocks))]


class ShuffledCollections(EngineCollections):
    """Arrays, each block of which is at a node drawn at random, and lists of references."""

    def collection(self, array: npt.NDArray[Any], rows: Sequence[int]) -> Any:
        separate_blocks, nodes = cut(array, rows), alive()
        drawn = np.random.default_rng(len(rows)).integers(0, len(nodes), len(separate_blocks))
        chunks = (tuple(map(len, separate_blocks)), *((size,) for size in array.shape[1:]))
        return RayArray(tuple(put_at(nodes, separate_blocks, drawn.tolist())), chunks, array.dtype)

    def blocks(self, blocks: Sequence[Any]) -> Any:
        return [ray.put(block) for block in blocks]
