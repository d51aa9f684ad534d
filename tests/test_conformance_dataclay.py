"""The dataClay backend passes the conformance suite on real backend processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from typing import Any

import pytest

pytest.importorskip("dataclay")

from dataclay import DataClayObject

from spliter import Location, Partition
from spliter.testing import BackendTests
from spliter.testing._hooks import Block
from spliter_backends.dataclay import DataClayArray, distribute
from spliter_backends.dataclay.cluster import EmbeddedDataClay
from spliter_backends.dataclay.executor import current_executor
from tests.dataclay_backend import programs
from tests.dataclay_backend.conftest import start

N_BACKENDS = 3


@pytest.fixture(scope="module")
def three_backends() -> Iterator[EmbeddedDataClay]:
    cluster = start(N_BACKENDS)
    yield cluster
    cluster.close()


class DataClayTests(BackendTests):
    """What the kinds of collections in dataClay have in common."""

    backend = "dataclay"
    n_locations = N_BACKENDS
    examples = 4
    cluster: EmbeddedDataClay

    @pytest.fixture(autouse=True)
    def _connect(self, three_backends: EmbeddedDataClay) -> None:
        self.cluster = three_backends

    def put(self, blocks: Sequence[Block], placement: Sequence[int]) -> DataClayArray:
        return distribute(blocks, backends=self.cluster.backend_ids, placement=placement)

    def distribute_grid(
        self, blocks: Sequence[Block], chunks: Sequence[Sequence[int]], placement: Sequence[int]
    ) -> Any:
        flat = self.put(blocks, placement)
        sizes = tuple(map(tuple, chunks))
        return DataClayArray(flat.object_ids, sizes, blocks[0].dtype, flat.block_nbytes)

    def where_it_runs(self) -> Callable[[Partition], str]:
        return programs.here

    def incoming_transfers(self) -> float:
        submit = current_executor().submit
        counts = [
            submit(programs.count_received, (), {}, Location(str(one)))
            for one in self.cluster.backend_ids
        ]
        return float(sum(self.collect(counts)))

    def move_something(self, collection: Any) -> None:
        block = self.objects(collection)[0]
        others = set(self.cluster.backend_ids) - {block._dc_meta.master_backend_id}
        block.move(others.pop())

    def objects(self, collection: Any) -> list[DataClayObject]:
        return collection.blocks if isinstance(collection, DataClayArray) else list(collection)


@pytest.mark.backend("dataclay")
class TestArrays(DataClayTests):
    """DataClayArrays, whose sizes are known."""

    def distribute(self, blocks: Sequence[Block], placement: Sequence[int]) -> Any:
        return self.put(blocks, placement)

    def test_futures_are_those_of_the_standard_library(self) -> None:
        futures = self.split_of(3, 2, 1).map(len)
        assert all(isinstance(future, Future) for future in futures)
        done, not_done = wait(futures, timeout=self.timeout)
        assert (len(done), len(not_done)) == (len(futures), 0)
        assert sum(self.collect(futures)) == 3


@pytest.mark.thorough
@pytest.mark.backend("dataclay")
class TestPersistentObjects(DataClayTests):
    """A list of persistent objects, of whose sizes the client knows nothing."""

    def distribute(self, blocks: Sequence[Block], placement: Sequence[int]) -> Any:
        return self.put(blocks, placement).blocks
