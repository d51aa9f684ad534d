"""Partitions as one block at Dask workers: what Dask knows of them, and when they go."""

from __future__ import annotations

import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Any

import numpy as np
import pytest

from tests.waiting import wait_until

pytest.importorskip("distributed")

import dask
import dask.array as da
import dask.dataframe as dd
import pandas as pd
from distributed import Client, Event, wait

from spliter import InvalidArgumentError, NotEnoughMemoryError, Partition, Split, split, task
from tests.dask_backend.conftest import StartCluster
from tests.dask_backend.programs import kill

pytestmark = [pytest.mark.backend("dask"), pytest.mark.timeout(120)]

PREFIX = "spliter-materialized-"
WAIT = 60


def points(rows: int = 12_000, block: int = 100) -> da.Array:
    x: da.Array = da.arange(rows * 5, chunks=block * 5).reshape(rows, 5).astype(float).persist()
    wait(x)
    return x


def kept(client: Client) -> dict[str, int]:
    """Keys of materialized partitions that the scheduler knows, with their bytes."""

    def find(dask_scheduler: Any) -> dict[str, int]:
        tasks = dask_scheduler.tasks.values()
        return {
            task.key: task.nbytes
            for task in tasks
            if str(task.key).startswith(PREFIX) and task.state == "memory"
        }

    found: dict[str, int] = client.run_on_scheduler(find)
    return found


def at_workers(client: Client) -> list[str]:
    """Keys of materialized partitions in the workers' memory."""

    def find(dask_worker: Any) -> list[str]:
        return [key for key in dask_worker.data if str(key).startswith(PREFIX)]

    return [key for keys in client.run(find).values() for key in keys]


def incoming(client: Client) -> int:
    def count(dask_worker: Any) -> int:
        return int(dask_worker.state.transfer_incoming_count_total)

    return sum(client.run(count).values())


@task
def total(partition: Partition) -> tuple[int, float]:
    blocks = list(partition)
    return len(blocks), float(sum(block.sum() for block in blocks))


def totals(parts: Split) -> list[tuple[int, float]]:
    return [total(partition).result(timeout=WAIT) for partition in parts]


def test_dask_knows_the_size_and_frees_it_with_the_split(client: Client) -> None:
    x = points()
    before = incoming(client)
    with split(x, materialize=True) as parts:
        for _ in range(3):
            found = totals(parts)
            assert [blocks for blocks, _ in found] == [1] * len(parts)
            assert sum(value for _, value in found) == float(sum(range(60_000)))
            # One entry per partition, of the partition's own bytes.
            sizes = sorted(partition.nbytes for partition in parts)
            assert sorted(kept(client).values()) == pytest.approx(sizes, abs=500)
            assert len(at_workers(client)) == len(parts)
    wait_until(lambda: not kept(client) and not at_workers(client))
    assert incoming(client) == before
    assert parts.moved.nbytes == 0


def test_freed_when_the_split_is_dropped(client: Client) -> None:
    parts = split(points(), materialize=True)
    totals(parts)
    assert kept(client)
    del parts
    wait_until(lambda: not kept(client) and not at_workers(client))


def test_freed_when_made_after_the_split_was_closed(client: Client) -> None:
    @task
    def slowly(partition: Partition) -> int:
        assert Event("split is closed").wait(timeout=WAIT)
        return len(partition.materialize())

    with split(points()) as parts:
        futures = [slowly(partition) for partition in parts]
    Event("split is closed").set()
    assert sum(future.result(timeout=WAIT) for future in futures) == 12_000
    del parts
    wait_until(lambda: not kept(client) and not at_workers(client))


def test_made_once_for_tasks_at_the_same_time(start_cluster: StartCluster) -> None:
    client = start_cluster(n_workers=1, threads_per_worker=4)

    @task
    def where(partition: Partition) -> int:
        block = partition.materialize()
        time.sleep(0.2)
        return int(block.__array_interface__["data"][0])

    parts = split(points(), partitions_per_location=1)
    futures = [where(parts[0]) for _ in range(4)]
    assert len({future.result(timeout=WAIT) for future in futures}) == 1
    assert len(kept(client)) == 1


@pytest.mark.thorough
def test_peak_memory_at_the_worker(client: Client) -> None:
    @task
    def peak(partition: Partition) -> float:
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            nbytes = partition.materialize().nbytes
            ratio: float = (tracemalloc.get_traced_memory()[1] - before) / nbytes
            return ratio
        finally:
            tracemalloc.stop()

    x = points(rows=1_200_000, block=3_000)
    with split(x, partitions_per_location=1) as parts:
        for partition in parts:
            assert 1.0 <= peak(partition).result(timeout=WAIT) <= 1.1


def frames(client: Client) -> Any:
    frame = pd.DataFrame({"a": np.arange(12), "b": pd.Categorical(list("xyz" * 4))})
    return dd.from_pandas(frame, npartitions=6).persist()


def test_auto_leaves_memory_free(client: Client) -> None:
    x = points()
    with dask.config.set({"distributed.worker.memory.target": 1e-9}):
        assert "not materialized (too little free memory at" in repr(split(x, materialize="auto"))
    assert "materialized (about 100 rows per block)" in repr(split(x, materialize="auto"))


def limit_memory(nbytes: int, dask_worker: Any) -> None:
    manager = dask_worker.memory_manager
    manager.memory_pause_fraction = manager.memory_spill_fraction = False
    manager.memory_limit = nbytes


@pytest.mark.thorough
def test_spilled_and_read_back(start_cluster: StartCluster) -> None:
    client = start_cluster(
        memory_limit="500MB",
        n_workers=1,
        threads_per_worker=2,
    )

    def spill(dask_worker: Any) -> int:
        data = dask_worker.data
        while data.fast and data.evict() > 0:
            pass
        return len(data.slow)  # also what was there already: Dask may have spilled by itself

    x = points(rows=40_000)
    with split(x, materialize=True) as parts:
        first = totals(parts)
        assert sum(client.run(spill).values()) > 0
        assert totals(parts) == first


def test_made_again_when_a_worker_dies(start_cluster: StartCluster, add_worker: Any) -> None:
    client = start_cluster(restarts=False)
    x = points()
    with split(x, materialize=True) as parts:
        totals(parts)
        victim = parts.locations[0]
        kill(client, victim)
        add_worker(client)
        for _ in range(2):
            found = totals(parts)
            assert sum(value for _, value in found) == float(sum(range(60_000)))
            assert [blocks for blocks, _ in found] == [1] * len(parts)
    del parts, found
    wait_until(lambda: not kept(client) and not at_workers(client))


def test_collection_of_results_outlives_the_split(client: Client) -> None:
    x = points()
    with split(x) as parts:
        sums = parts.map_blocks(lambda block: block.sum(axis=1), dtype=np.float64)
    del parts
    assert isinstance(sums, da.Array)
    assert sums.chunks == (x.chunks[0],)
    np.testing.assert_array_equal(sums.compute(), x.sum(axis=1).compute())
    both = da.concatenate([x, sums[:, None]], axis=1)
    assert both.shape == (12_000, 6)
    with split(x, sums.persist()) as aligned:
        assert sum(client.gather(aligned.map(_rows))) == 12_000


def _rows(partition: Partition) -> int:
    return sum(len(labels) for _, labels in partition)


def test_collection_of_frames_has_unknown_sizes(client: Client) -> None:
    with split(frames(client)) as parts:
        doubled = parts.map_blocks(lambda frame: frame["a"].to_numpy() * 2, dtype=np.int64)
    assert np.isnan(doubled.chunks[0]).all()
    assert doubled.compute().tolist() == list(range(0, 24, 2))


@task
def rows_twice(partition: Partition) -> tuple[int, int]:
    """Ask for the blocks as one in a thread of this function's own, and in the task's."""
    with ThreadPoolExecutor(1) as threads:
        there = threads.submit(partition.materialize).result(WAIT)
    return len(there), len(partition.materialize())


def test_requested_by_tasks_that_hold_all_threads(client: Client) -> None:
    with split(points(), partitions_per_location=2) as parts:
        found = client.gather([rows_twice(partition) for partition in parts for _ in range(2)])
        assert all(there == here for there, here in found)
        assert sum(here for _, here in found) == 2 * 12_000
        assert len(kept(client)) == len(at_workers(client)) == len(parts)
    wait_until(lambda: not kept(client) and not at_workers(client))


@pytest.mark.feature("memory limits")
def test_refused_once_is_tried_again(start_cluster: StartCluster) -> None:
    client = start_cluster(n_workers=1)

    with split(points(), materialize=True) as parts:
        client.run(limit_memory, 1000)
        with pytest.raises(NotEnoughMemoryError, match="increase partitions_per_location"):
            totals(parts)
        assert not kept(client)
        client.run(limit_memory, 0)
        assert [blocks for blocks, _ in totals(parts)] == [1] * len(parts)


def test_nothing_is_left_of_blocks_that_cannot_be_concatenated(client: Client) -> None:
    (worker, _) = sorted(client.nthreads())
    frames = pd.DataFrame({"a": [1.0]}), pd.DataFrame({"b": [1.0]})
    blocks = [client.submit(copy, each, workers=[worker], pure=False) for each in frames]

    def left(dask_scheduler: Any) -> list[Any]:
        return [key for key in dask_scheduler.tasks if str(key).startswith(PREFIX)]

    with (
        split(blocks, partitions_per_location=1) as parts,
        pytest.raises(InvalidArgumentError, match="columns"),
    ):
        parts.map(Partition.materialize)[0].result(timeout=60)
    wait_until(lambda: not client.run_on_scheduler(left))
