"""Partitions as one block at Dask workers: what Dask knows of them, and when they go."""

from __future__ import annotations

import asyncio
import threading
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("distributed")

import dask
import dask.array as da
import dask.dataframe as dd
import pandas as pd
import scipy.sparse as sp
from distributed import Client, Event, get_worker, wait
from distributed.spill import SpillBuffer

from spliter import BlockTimeoutError, NotEnoughMemoryError, Partition, Split, split, task
from spliter_backends.dask.worker import copies as dask_kept
from spliter_backends.dask.worker import memory as dask_memory
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
        return {task.key: task.nbytes for task in tasks if str(task.key).startswith(PREFIX)}

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


def eventually(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + WAIT
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


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
    assert eventually(lambda: not kept(client) and not at_workers(client))
    assert incoming(client) == before
    assert parts.moved.nbytes == 0


def test_freed_when_the_split_is_dropped(client: Client) -> None:
    parts = split(points(), materialize=True)
    totals(parts)
    assert kept(client)
    del parts
    assert eventually(lambda: not kept(client) and not at_workers(client))


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
    assert eventually(lambda: not kept(client) and not at_workers(client))


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


def csr_blocks(client: Client) -> Any:
    blocks = [sp.csr_array(np.diag(np.arange(1.0, 4) + i)) for i in range(6)]
    return client.scatter(blocks)


def masked_blocks(client: Client) -> Any:
    plain = da.ones((12, 3), chunks=(2, 3))
    return da.ma.masked_array(plain, mask=plain.cumsum(axis=0) > 6).persist()


def frames(client: Client) -> Any:
    frame = pd.DataFrame({"a": np.arange(12), "b": pd.Categorical(list("xyz" * 4))})
    return dd.from_pandas(frame, npartitions=6).persist()


@pytest.mark.parametrize(
    ("collection", "kind"),
    [
        (csr_blocks, sp.csr_array),
        (masked_blocks, np.ma.MaskedArray),
        (frames, pd.DataFrame),
    ],
)
def test_types(client: Client, collection: Any, kind: type) -> None:
    @task
    def look(partition: Partition) -> tuple[type, Any, int]:
        (block,) = partition
        dtypes = block.dtypes.to_dict() if hasattr(block, "dtypes") else block.dtype
        return type(block), dtypes, block.shape[0]

    with split(collection(client), materialize=True) as parts:
        found = [look(partition).result(timeout=WAIT) for partition in parts]
    assert {made for made, _, _ in found} == {kind}
    assert sum(rows for _, _, rows in found) in (12, 18)
    if kind is pd.DataFrame:
        assert found[0][1] == {"a": np.dtype("i8"), "b": pd.CategoricalDtype(["x", "y", "z"])}
    else:
        assert {dtype for _, dtype, _ in found} == {np.dtype("f8")}


def test_auto_leaves_memory_free(client: Client) -> None:
    x = points()
    with dask.config.set({"distributed.worker.memory.target": 1e-9}):
        assert "not materialized (too little memory free at" in repr(split(x, materialize="auto"))
    assert "materialized (about 100 rows per block)" in repr(split(x, materialize="auto"))


def test_too_large_for_the_worker_is_refused(start_cluster: StartCluster) -> None:
    client = start_cluster()

    def limit(dask_worker: Any) -> None:
        manager = dask_worker.memory_manager
        manager.memory_pause_fraction = manager.memory_spill_fraction = False
        manager.memory_limit = 1000

    client.run(limit)
    parts = split(points(), materialize=True)
    with pytest.raises(NotEnoughMemoryError, match="more partitions_per_location"):
        totals(parts)
    assert not kept(client)


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
    assert eventually(lambda: not kept(client) and not at_workers(client))


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
        assert (
            sum(aligned.map(_rows)[i].result(timeout=WAIT) for i in range(len(aligned))) == 12_000
        )


def _rows(partition: Partition) -> int:
    return sum(len(labels) for _, labels in partition)


def test_collection_of_frames_has_unknown_sizes(client: Client) -> None:
    with split(frames(client)) as parts:
        doubled = parts.map_blocks(lambda frame: frame["a"].to_numpy() * 2, dtype=np.int64)
    assert np.isnan(doubled.chunks[0]).all()
    assert doubled.compute().tolist() == list(range(0, 24, 2))


@task
def uses_before_it_is_known(partition: Partition) -> tuple[bool, bool, int]:
    """Hold back what makes it known: is it usable here, and in another thread, and known?"""
    known, keep = threading.Event(), dask_kept._keep

    async def keep_later(*arguments: Any) -> None:
        while not known.is_set():
            await asyncio.sleep(0.01)
        await keep(*arguments)

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as threads:
        patch.setattr(dask_kept, "_keep", keep_later)
        made = partition.materialize()
        # In a thread of its own nobody waits at the end of the task; it is there already.
        same = threads.submit(partition.materialize).result(WAIT) is made
        held = len([key for key in get_worker().data if str(key).startswith(PREFIX)])
        # Held by the time the result is known, and not before.
        threading.Timer(0.5, known.set).start()
    return len(made) == len(partition.get_item_indexes()), same, held


def test_a_task_goes_on_while_the_scheduler_hears_of_it(client: Client) -> None:
    with split(points(), partitions_per_location=1) as parts:
        futures = [uses_before_it_is_known(partition) for partition in parts]
        assert client.gather(futures) == [(True, True, 0)] * len(parts)
        assert len(kept(client)) == len(at_workers(client)) == len(parts)
    assert eventually(lambda: not kept(client) and not at_workers(client))


@task
def made_known_by(keep: Callable[..., Any], partition: Partition) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dask_kept, "_keep", keep)
        return len(partition.materialize())


async def never(*_: Any) -> None:
    await asyncio.sleep(3600)


async def refuses(*_: Any) -> None:
    raise OSError("no scheduler")


@pytest.mark.parametrize(
    ("keep", "error", "match"),
    [(never, BlockTimeoutError, "within 0.5 s"), (refuses, OSError, "no scheduler")],
)
def test_what_the_scheduler_does_not_hear_of(
    client: Client, keep: Any, error: type[Exception], match: str
) -> None:
    with dask.config.set({"spliter.block-timeout": "0.5s"}):
        parts = split(points())
    with parts:
        futures = [made_known_by(keep, partition) for partition in parts]
        for future in futures:
            with pytest.raises(error, match=match):
                future.result(timeout=WAIT)
        assert not kept(client)
        # Nothing of it stays in the way of the next task.
        assert len(parts[0].submit(Partition.materialize).result(timeout=WAIT)) > 1
        assert len(kept(client)) == 1
    assert eventually(lambda: not kept(client) and not at_workers(client))


def test_dask_spills_the_last_value_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = SpillBuffer(str(tmp_path), target=10_000)
    data["last"] = np.ones(10)
    evict = data.evict

    def too_late() -> int:
        evict()  # as the memory manager of the worker does
        return evict()

    monkeypatch.setattr(data, "evict", too_late)
    monitor = SimpleNamespace(get_process_memory=lambda: 10_000)
    worker: Any = SimpleNamespace(data=data, monitor=monitor)
    dask_memory._spill_others(worker, 1, [], limit=0)
    assert (list(data.fast), list(data.slow)) == ([], ["last"])


@pytest.mark.parametrize(("late", "fits"), [(3, True), (100, False)])
def test_memory_that_is_free_a_moment_later(late: int, fits: bool) -> None:
    takes = iter([900] * late + [100] * 100)
    worker: Any = SimpleNamespace(
        address="tcp://here",
        data={},
        memory_manager=SimpleNamespace(memory_limit=1000, memory_pause_fraction=1.0),
        monitor=SimpleNamespace(get_process_memory=lambda: next(takes)),
    )
    with ExitStack() as stack:
        if not fits:
            stack.enter_context(pytest.raises(NotEnoughMemoryError, match="900 are taken"))
        stack.enter_context(dask_memory.room_for(worker, 100, [], timeout=0))
