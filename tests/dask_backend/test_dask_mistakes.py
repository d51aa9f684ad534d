"""Errors for wrong calls on a Dask cluster: each names the value and says what to do."""

from __future__ import annotations

import operator
import pickle
import threading
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.tokenize import tokenize
from distributed import Client, wait

from spliter import (
    InvalidArgumentError,
    LazyCollectionError,
    Partition,
    PartitionNotLocalError,
    Split,
    TaskNotSerializableError,
    UnsupportedCollectionError,
    gather,
    split,
)
from tests.dask_backend.programs import spread, total

pytestmark = [pytest.mark.backend("dask"), pytest.mark.timeout(120)]


def test_an_array_in_memory_next_to_a_dask_array(client: Client) -> None:
    x = da.ones((6, 2), chunks=(2, 2)).persist()
    y = np.arange(6)
    with pytest.raises(UnsupportedCollectionError, match=r"numpy\.ndarray in memory") as refused:
        split(x, y)
    advice = str(refused.value).partition("y = dask.array.")[2]
    # What the message advises works.
    assert advice == "from_array(y, chunks={0: x.chunks[0]}).persist()"
    labels = da.from_array(y, chunks={0: x.chunks[0]}).persist()
    assert sum(gather(split(x, labels).map(len))) == 3


def test_functions_of_dask(client: Client) -> None:
    parts = split(spread(client, 4), partitions_per_location=1)
    for call in (
        lambda: client.map(total, parts),
        lambda: client.submit(total, parts),
        lambda: dask.delayed(total, pure=True)(parts),
    ):
        with pytest.raises(
            TypeError, match=r"^Dask's own functions take no Split,.* parts\.map\(fn\)"
        ):
            call()
    futures = client.map(total, list(parts), workers=[parts.locations[0]])
    assert futures[0].result() == gather(parts.map(total))[0]
    with pytest.raises(PartitionNotLocalError, match=r"spliter\.task, or call partition\.submit"):
        futures[1].result()


def test_partitions_have_tokens(client: Client) -> None:
    parts, others = split(spread(client, 4)), split(spread(client, 4))
    tokens = [tokenize(each) for each in (*parts, *others)]
    assert len(set(tokens)) == len(tokens)
    for each, token in zip([*parts, *others], tokens, strict=True):
        assert tokenize(each) == token == tokenize(pickle.loads(pickle.dumps(each)))


@pytest.mark.parametrize("stray", [None, 3, np.arange(2)])
def test_a_stray_element_among_futures(stray: Any, client: Client) -> None:
    future = client.scatter(np.arange(2))
    name = type(stray).__name__
    with pytest.raises(UnsupportedCollectionError, match=f"element 1 of the list .* is a {name}"):
        split([future, stray])


def test_a_value_among_delayed_objects(client: Client) -> None:
    future = client.scatter(np.arange(2))
    with pytest.raises(LazyCollectionError, match="have not been computed"):
        split([future, dask.delayed(5)])


def test_a_list_of_arrays_next_to_a_dask_array(client: Client) -> None:
    x = da.ones(6, chunks=2).persist()
    y = [np.arange(2)] * 3
    with pytest.raises(UnsupportedCollectionError, match=r"ndarray; .*client.scatter\(blocks"):
        split(x, y)
    assert sum(gather(split(x, client.scatter(y, hash=False)).map(len))) == 3


def of_split(parts: Split, client: Client) -> Callable[[Partition], Any]:
    return lambda partition: len(parts)


def of_client(parts: Split, client: Client) -> Callable[[Partition], Any]:
    return lambda partition: client.ncores()


class Program:
    """Keeps its client, and has a task as a method."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def run(self, partition: Partition) -> int:
        return len(partition)


def of_self(parts: Split, client: Client) -> Callable[[Partition], Any]:
    return Program(client).run


@pytest.mark.parametrize(
    ("closure", "says"),
    [
        (of_split, r"parts is a spliter._split.Split, .*Pass the values that the task needs"),
        (of_client, r"client is a distributed.client.Client, .*worker_client\(\) as client:"),
        (of_self, r"^run cannot be sent to a worker: self.client is a distributed"),
    ],
)
def test_a_task_that_uses_what_stays_here(
    closure: Callable[[Split, Client], Callable[[Partition], Any]], says: str, client: Client
) -> None:
    parts = split(spread(client, 4))
    with pytest.raises(TaskNotSerializableError, match=says):
        parts.map(closure(parts, client))


def test_a_team_that_uses_what_stays_here(client: Client) -> None:
    parts = split(spread(client, 4), schedule="SS")
    lock = threading.Lock()

    def locked(partition: Partition) -> Any:
        return lock

    def plain(partition: Partition, *args: Any) -> Any:
        return (each for each in args)

    with pytest.raises(TaskNotSerializableError, match=r"^locked cannot .* lock is a _thread.lock"):
        parts.map_reduce(locked, operator.add)
    with pytest.raises(TaskNotSerializableError, match=r"^plain cannot .* lock is a _thread.lock"):
        parts.map_reduce(plain, lambda one, other: lock)
    with pytest.raises(TaskNotSerializableError, match=r"^plain cannot .* is a _thread.lock"):
        parts.map_reduce(plain, operator.add, lock)
    parts = split(spread(client, 1), schedule="SS")
    with pytest.raises(TaskNotSerializableError, match=r"^plain returned a generator"):
        parts.map_reduce(plain, operator.add).result()


def test_a_split_as_an_argument(client: Client) -> None:
    parts = split(spread(client, 4))
    with pytest.raises(TaskNotSerializableError, match=r"argument 2 is a spliter._split.Split"):
        parts.map(lambda partition, others: len(others), parts)


@pytest.mark.parametrize("value", ["abc", "-3s", 0, "5 parsecs", [1], None])
def test_a_block_timeout_that_is_no_time(value: Any, client: Client) -> None:
    x = spread(client, 4)
    says = r"spliter.block-timeout must be a duration above 0, such as '5 minutes' or 300; got"
    with (
        dask.config.set({"spliter.block-timeout": value}),
        pytest.raises(InvalidArgumentError, match=says),
    ):
        split(x)


def test_retries_are_annotated_as_the_error_says(client: Client) -> None:
    parts = split(spread(client, 4))
    with pytest.raises(InvalidArgumentError, match=r"with dask.annotate\(retries=2\):"):
        parts.map(len, retries=2)
    with dask.annotate(retries=2):
        futures = parts.map(len)
    wait(futures)
    keys = [future.key for future in futures]

    def retries(dask_scheduler: Any) -> list[int]:
        return [dask_scheduler.tasks[key].retries for key in keys]

    assert client.run_on_scheduler(retries) == [2] * len(keys)
