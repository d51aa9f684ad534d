"""The Ray backend passes the conformance suite on a real cluster of three nodes."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.waiting import wait_until

pytest.importorskip("ray")

import ray
from ray import ObjectRef

from spliter import Partition, split
from spliter.testing import BackendTests, _programs
from spliter.testing._hooks import Block, whole
from spliter_backends.ray import RayArray
from spliter_backends.ray import blocks as ray_blocks
from spliter_backends.ray import worker as ray_tasks
from spliter_backends.ray.cluster import query_locations
from tests.ray_backend import programs
from tests.ray_backend.cluster import N_NODES, RayNodes
from tests.ray_backend.placing import at, put_at

pytestmark = [pytest.mark.backend("ray"), pytest.mark.timeout(200)]


class RayTests(BackendTests):
    """What the kinds of collections in Ray have in common."""

    backend = "ray"
    n_locations = N_NODES
    examples = 4
    nodes: RayNodes
    placed: list[ObjectRef]

    @pytest.fixture(autouse=True)
    def _connect(self, nodes: RayNodes) -> None:
        self.nodes = nodes
        self.placed = []

    def put(self, blocks: Sequence[Block], placement: Sequence[int]) -> list[ObjectRef]:
        references = put_at(self.nodes.ids, blocks, placement)
        self.placed = references
        return references

    def distribute_grid(
        self, blocks: Sequence[Block], chunks: Sequence[Sequence[int]], placement: Sequence[int]
    ) -> Any:
        references = self.put(blocks, placement)
        return RayArray(tuple(references), tuple(map(tuple, chunks)), blocks[0].dtype)

    def values_of(self, collection: Any) -> npt.NDArray[Any]:
        return np.asarray(collection.compute())

    def where_it_runs(self) -> Callable[[Partition], str]:
        return programs.here

    def incoming_transfers(self) -> float:
        """Count the copies of blocks, as their owners know them.

        A store tells them so a little later, in the order in which copies came; so one more is
        made at each node, and waited for.
        """
        for node, other in zip(
            self.nodes.ids, [*self.nodes.ids[1:], self.nodes.ids[0]], strict=True
        ):
            (sentinel,) = put_at([other], [np.zeros(1)], [0])
            ray.get(programs.read.options(scheduling_strategy=at(node)).remote(sentinel))
            wait_until(lambda one=sentinel: copy_blocks([one]) == 2)  # type: ignore[misc]
        return float(copy_blocks(self.placed))

    def move_something(self, collection: Any) -> None:
        first = getattr(collection, "blocks", collection)[0]
        for node in self.nodes.ids:
            ray.get(programs.read.options(scheduling_strategy=at(node)).remote(first))

    # The blocks as one are in the object store, where nothing can be written. That they are put
    # together once shows in the tasks that do so, and in that all tasks are given the same object.

    def test_concatenated_once_and_apart_from_the_blocks(self) -> None:
        lengths = [2] * (4 * self.n_locations)
        with (
            put_together() as made,
            split(self.encoded(lengths), partitions_per_location=1, materialize=True) as parts,
        ):
            for _ in range(3):
                found = self.collect(parts.map(_programs.blocks_of))
                items = np.concatenate([block for (block,) in found])
                np.testing.assert_array_equal(np.sort(items), whole(lengths))
            assert len(made) == len(parts)
            with pytest.raises(ValueError, match="read-only"):
                self.collect(parts.map(_programs.mark))

    def test_requested_by_the_task(self) -> None:
        lengths = [2] * (4 * self.n_locations)
        with split(self.encoded(lengths), partitions_per_location=1) as parts:
            # The first task makes it, and may write into what it has made; later ones may not.
            assert self.collect(parts.map(_programs.mark)) == [0] * len(parts)
            with pytest.raises(ValueError, match="read-only"):
                self.collect(parts.map(_programs.mark))
            assert self.collect(parts.map(_programs.consume)) == [len(part) for part in parts]

    def test_released_with_the_split(self) -> None:
        before = stored()
        for _ in range(2):
            with split(self.encoded([2000] * 12), materialize=True) as parts:
                assert self.collect(parts.map(_programs.consume)) == [1] * len(parts)
            del parts
        self.placed = []
        gc.collect()
        wait_until(lambda: stored() <= before)


def copy_blocks(references: Sequence[ObjectRef]) -> int:
    """Return how many nodes have each object, added up."""
    return sum(len(place.nodes) for place in query_locations(references).values())


def stored() -> int:
    from ray._private import internal_api

    return sum(
        internal_api.node_stats(
            node["NodeManagerAddress"], node["NodeManagerPort"]
        ).store_stats.num_local_objects
        for node in ray.nodes()
        if node["Alive"]
    )


@contextlib.contextmanager
def put_together() -> Iterator[list[Any]]:
    """Note the tasks that put blocks together."""
    made: list[Any] = []
    original: Any = ray_tasks.CONCATENATE

    class Noting:
        def options(self, **given: Any) -> Any:
            made.append(given)
            return original.options(**given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_blocks, "CONCATENATE", Noting())
        yield made


@pytest.mark.thorough
class TestReferences(RayTests):
    """A list of references to objects that tasks have put into the stores of their nodes."""

    def distribute(self, blocks: Sequence[Block], placement: Sequence[int]) -> Any:
        return self.put(blocks, placement)

    def test_futures_are_references_of_ray(self) -> None:
        futures = self.split_of(3, 2, 1).map(len)
        assert all(isinstance(future, ObjectRef) for future in futures)
        ready, not_ready = ray.wait(futures, num_returns=len(futures), timeout=self.timeout)
        assert (set(ready), not_ready) == (set(futures), [])
        assert sum(ray.get(futures)) == 3


class TestArrays(RayTests):
    """RayArrays, whose sizes are known."""

    examples = 2

    def distribute(self, blocks: Sequence[Block], placement: Sequence[int]) -> Any:
        further = [(size,) for size in blocks[0].shape[1:]]
        return self.distribute_grid(blocks, [[len(block) for block in blocks], *further], placement)
