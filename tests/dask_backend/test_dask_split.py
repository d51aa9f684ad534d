"""Splitting on a Dask cluster at rest: order, transfers, messages and every kind of caller."""

from __future__ import annotations

import asyncio
import gc
import operator
import time
import traceback
from typing import Any

import dask.array as da
import distributed
import numpy as np
import pytest
from distributed import Client, get_client, wait, worker_client

from spliter import (
    AlignmentError,
    BackendNotUsableError,
    Partition,
    PartitionNotLocalError,
    SplitClosedError,
    gather,
    reduce,
    split,
    task,
)
from spliter_backends.dask.executor import MAX_INLINE_BLOCKS, executor_for_client
from tests.dask_backend import programs
from tests.dask_backend.programs import expected, spread, total
from tests.dask_workers import workers_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.backend("dask"), pytest.mark.timeout(120)]


# --- order, numbers, sizes ---


def test_one_partition_per_thread_and_location(start_cluster: Any) -> None:
    client = start_cluster(n_workers=2, threads_per_worker=3)
    parts = split(spread(client, 24))
    assert len(parts) == 6
    assert len(parts.locations) == 2
    assert len(split(spread(client, 24), partitions_per_location=1)) == 2


def test_managed_memory_is_not_counted_twice(client: Client) -> None:
    def managed(dask_scheduler: Any) -> int:
        return sum(worker.nbytes for worker in dask_scheduler.workers.values())

    before = client.run_on_scheduler(managed)
    x = da.ones(10_000_000, chunks=100_000).persist()
    wait(x)
    parts = split(x)
    client.gather(parts.map(programs.nothing))
    assert client.run_on_scheduler(managed) - before < 1.01 * x.nbytes


# --- several collections ---


@task
def dot(partition: Partition) -> float:
    """Sum of products of two aligned collections."""
    return sum(float((x.sum(axis=1) * y).sum()) for x, y in partition)


def test_an_idle_worker_does_not_steal_copies_of_aligned_blocks(client: Client) -> None:
    first, second = workers_of(client)
    xs = [client.scatter(np.full((10, 3), i), workers=[first]) for i in range(10)]
    ys = [client.scatter(np.full(10, i), workers=[second]) for i in range(10)]
    # The copies wait behind this; Dask looks for work for the other worker ten times a second.
    busy = client.submit(time.sleep, 0.5, workers=[first], pure=False)
    parts = split(xs, ys)
    assert busy.done()
    client.gather(parts.map(dot))
    assert parts.moved.blocks == parts.moved.aligned_blocks == 10


def test_misaligned_collections_of_unknown_sizes(client: Client) -> None:
    values = da.arange(40, chunks=10)
    x, y = (values[values % 3 == 0].persist(), values[values % 4 == 0].persist())
    with pytest.raises(AlignmentError, match="rows"):
        client.gather(split(x, y).map(programs.first_of_pairs))


# --- callers ---


def test_asynchronous_client(client: Client) -> None:
    address = client.scheduler_info()["address"]

    async def program() -> None:
        async with Client(address, asynchronous=True) as mine:
            x = mine.persist(da.arange(100, chunks=10))
            with pytest.raises(BackendNotUsableError, match="to_thread"):
                split(x)
            parts = await asyncio.to_thread(split, x)
            combined = reduce(operator.add, [total(part) for part in parts])
            assert await combined == 4950
            assert await mine.gather(combined) == 4950

    asyncio.run(program())


def total_in_task() -> int:
    """Split inside a task, the way Dask says."""
    with worker_client() as client:
        parts = split(client.get_dataset("inside"))
        return int(sum(client.gather(parts.map(programs.total))))


def total_in_task_wrongly() -> None:
    """Split inside a task while holding its thread."""
    client = get_client()
    split(client.get_dataset("inside"))


@pytest.mark.feature("pool threads")
def test_inside_a_task(client: Client) -> None:
    x = da.arange(100, chunks=10).persist()
    client.publish_dataset(inside=x)
    try:
        assert client.submit(total_in_task, pure=False).result() == 4950
        with pytest.raises(BackendNotUsableError, match="worker_client"):
            client.submit(total_in_task_wrongly, pure=False).result()
    finally:
        client.unpublish_dataset("inside")


def test_partition_on_the_client(client: Client) -> None:
    (part, *_) = split(da.ones(4, chunks=2).persist())
    for use in (iter, lambda part: list(part.items())):
        with pytest.raises(PartitionNotLocalError, match=r"task|submit"):
            use(part)


def test_partition_sent_by_hand_to_another_worker(client: Client) -> None:
    parts = split(spread(client, 8, tag="by-hand"))
    here, there = parts.locations
    part = next(part for part in parts if part.location == here)
    with pytest.raises(PartitionNotLocalError, match=r"task|submit"):
        client.submit(programs.total, part.at_location(), workers=[there], pure=False).result()


# --- tasks ---


def raises_key_error(partition: Partition) -> None:
    """Fail the way a missing block would."""
    for _ in partition:
        raise KeyError("my own")


def test_error_of_a_task_is_its_own(client: Client) -> None:
    parts = split(da.ones(4, chunks=2).persist())
    with pytest.raises(KeyError, match="my own") as caught:
        parts[0].submit(raises_key_error).result()
    names = [frame.name for frame in traceback.extract_tb(caught.tb)]
    assert "raises_key_error" in names
    assert parts.moved.blocks == 0


def test_keyword_names_that_dask_uses_itself(client: Client) -> None:
    parts = split(da.ones(4, chunks=2).persist())
    options = {"key": 1, "workers": 2, "retries": 3, "pure": 4, "fn": 5, "args": 6}
    assert parts[0].submit(programs.options, **options).result() == options


def test_closing(start_cluster: Any) -> None:
    client = start_cluster()
    x = da.ones(200, chunks=1).persist()
    with split(x) as parts:
        client.gather(parts.map(programs.nothing))
        part = parts[0]
        long = [one for one in parts if len(one) > MAX_INLINE_BLOCKS]
        assert held(client, "spliter-partition") == len(long) > 0
    with pytest.raises(SplitClosedError):
        iter(parts)
    with pytest.raises(SplitClosedError):
        part.submit(programs.total)
    del x
    wait_until(lambda: held(client, ("spliter-partition", "ones")) == 0)


def test_nothing_is_left_behind(start_cluster: Any) -> None:
    client = start_cluster()
    for _ in range(3):
        parts = split(da.full(100, 7, chunks=2).persist())
        client.gather(parts.map(programs.nothing))
        del parts
    wait_until(lambda: held(client, ("spliter-", "full", "nothing")) == 0)
    wait_until(lambda: not executor_for_client(client)._unfinished)


class NeedsTwoError(Exception):
    """An error that cannot be copied: it does not keep what it was made of."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class NamesOneError(Exception):
    """An error whose copy would say something else."""

    def __init__(self, one: object) -> None:
        super().__init__(f"no {one}")


def test_what_a_failed_task_was_asked_with_is_let_go(client: Client) -> None:
    """The client keeps the error of a future, whose traceback leads through its user's code."""

    def fail(part: Partition) -> None:
        raise ZeroDivisionError("in the task")

    def use() -> None:
        x = da.full(100, 7, chunks=2).persist()
        gather([part.submit(fail) for part in split(x)])

    with pytest.raises(ZeroDivisionError, match="in the task") as caught:
        use()
    assert [frame.name for frame in caught.traceback[-1:]] == ["fail"]
    del caught
    gc.collect()
    wait_until(lambda: held(client, "full") == 0)


@pytest.mark.parametrize(
    ("error", "message"), [(NeedsTwoError(1, 2), "1 and 2"), (NamesOneError(1), "^no 1")]
)
def test_errors_say_what_they_said(
    client: Client, error: Exception, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever comes of them when they are copied."""

    def failing(*args: Any, **kwargs: Any) -> None:
        raise error

    parts = split(da.full(4, 7, chunks=2).persist())
    futures = parts.map(programs.nothing)
    monkeypatch.setattr(client, "gather", failing)
    with pytest.raises(type(error), match=message):
        gather(futures)


def held(client: Client, prefix: str | tuple[str, ...]) -> int:
    """Number of tasks the scheduler knows whose key starts so."""

    def count(dask_scheduler: Any) -> int:
        keys = (key[0] if isinstance(key, tuple) else key for key in dask_scheduler.tasks)
        return sum(str(key).startswith(prefix) for key in keys)

    return int(client.run_on_scheduler(count))


def test_reduction_is_a_tree_by_location(start_cluster: Any) -> None:
    client = start_cluster(n_workers=2, threads_per_worker=1)
    parts = split(spread(client, 32), partitions_per_location=8)
    futures = [total(part) for part in parts]
    wait(futures)
    known = tasks_known(client)
    combined = reduce(operator.add, futures)
    assert combined.result() == expected(32)
    assert tasks_known(client) - known == 3  # one per location, one across
    known = tasks_known(client)
    binary = reduce(operator.add, futures, arity=2)
    assert binary.result() == expected(32)
    assert tasks_known(client) - known == 15
    assert isinstance(binary, distributed.Future)


def tasks_known(client: Client) -> int:
    return int(client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))
