"""The Dask backend passes the conformance suite on real worker processes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

pytest.importorskip("distributed")

import dask.array as da
from dask.highlevelgraph import HighLevelGraph
from distributed import Client, Future, Worker, futures_of, get_worker, wait

from spliter import Partition
from spliter.testing import BackendTests
from spliter.testing._hooks import Block
from tests.dask_backend.conftest import start
from tests.dask_workers import workers_of

N_WORKERS = 3


@pytest.fixture(scope="module")
def three_workers() -> Iterator[Client]:
    with ExitStack() as stack:
        client = start(stack, n_workers=N_WORKERS)
        client.wait_for_workers(N_WORKERS, timeout=60)
        yield client


def address_of_this_worker(_: Partition) -> str:
    return str(get_worker().address)


def received(dask_worker: Worker) -> int:
    """Count the dependencies that Dask has brought to a worker."""
    return int(dask_worker.state.transfer_incoming_count_total)


def sent(dask_worker: Worker) -> int:
    """Count what other workers, unlike clients, have read from this one in any way."""
    return sum(entry["who"] is not None for entry in dask_worker.transfer_outgoing_log)


def forget_sent(dask_worker: Worker) -> None:
    """Empty the log, which would drop its oldest entries when full."""
    dask_worker.transfer_outgoing_log.clear()


class DaskTests(BackendTests):
    """What the kinds of Dask collections have in common."""

    backend = "dask"
    n_locations = N_WORKERS
    examples = 4
    client: Client

    @pytest.fixture(autouse=True)
    def _connect(self, three_workers: Client) -> None:
        self.client = three_workers
        self.client.run(forget_sent)

    def futures(self, blocks: Sequence[Block], placement: Sequence[int]) -> list[Future[Any]]:
        workers = workers_of(self.client)
        assert len(workers) == N_WORKERS
        return [
            self.client.submit(np.array, block, workers=[workers[number]], pure=False)
            for block, number in zip(blocks, placement, strict=True)
        ]

    def distribute_grid(
        self, blocks: Sequence[Block], chunks: Sequence[Sequence[int]], placement: Sequence[int]
    ) -> Any:
        indexes = np.ndindex(*map(len, chunks))
        name = f"blocks-{uuid.uuid4().hex}"
        futures = self.futures(blocks, placement)
        graph: dict[Any, Future[Any]] = {
            (name, *index): future for index, future in zip(indexes, futures, strict=True)
        }
        layers = HighLevelGraph.from_collections(name, graph)
        return da.Array(layers, name, chunks, dtype=blocks[0].dtype)

    def distribute_shared(self, blocks: Sequence[Block]) -> Any:
        collection = self.distribute(blocks, self.in_turn(len(blocks)))
        self.client.amm.stop()  # it would drop the replicas
        self.client.replicate(futures_of(collection))
        return collection

    def where_it_runs(self) -> Callable[[Partition], str]:
        return address_of_this_worker

    def incoming_transfers(self) -> float:
        counts = [*self.client.run(received).values(), *self.client.run(sent).values()]
        return float(sum(counts))

    def move_something(self, collection: Any) -> None:
        self.client.replicate(futures_of(collection)[:1], n=N_WORKERS)


@pytest.mark.thorough
@pytest.mark.backend("dask")
class TestFutures(DaskTests):
    """A list of futures, of whose values Dask knows nothing."""

    def distribute(self, blocks: Sequence[Block], placement: Sequence[int]) -> Any:
        return self.futures(blocks, placement)

    def test_futures_are_those_of_dask(self) -> None:
        futures = self.split_of(3, 2, 1).map(len)
        assert all(isinstance(future, Future) for future in futures)
        done, not_done = wait(futures, timeout=self.timeout)
        assert (len(done), len(not_done)) == (len(futures), 0)
        assert sum(self.client.gather(futures)) == 3


@pytest.mark.backend("dask")
class TestArrays(DaskTests):
    """Persisted arrays, ragged and with blocks along several axes."""

    def distribute(self, blocks: Sequence[Block], placement: Sequence[int]) -> Any:
        further = [(size,) for size in blocks[0].shape[1:]]
        return self.distribute_grid(blocks, [[len(block) for block in blocks], *further], placement)
