"""Lazy collections: ``split(x, persist=True)`` computes them, and frees them with the Split."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, worker_client

import spliter
from spliter import Partition, split, task
from tests.dask_backend import programs
from tests.dask_backend.programs import total
from tests.dask_backend.test_dask_split import held
from tests.waiting import wait_until

pytestmark = [pytest.mark.backend("dask"), pytest.mark.timeout(120)]


@task
def rows(partition: Partition) -> int:
    """Count rows."""
    return sum(len(block) for block in partition)


@pytest.mark.parametrize("how", ["closed", "dropped"])
def test_blocks_are_freed_with_the_split(client: Client, how: str) -> None:
    x = da.full(100, 7, chunks=10)
    parts = split(x + 1, persist=True)
    assert sum(client.gather(parts.map(total))) == 800
    assert held(client, "add") == 10
    if how == "closed":
        parts.close()
    else:
        del parts
    wait_until(lambda: held(client, "add") == 0)


def counted(block: Any, topic: str) -> Any:
    """Log an event for each call; tests of a shared cluster need topics of their own."""
    from distributed import get_worker

    get_worker().log_event(topic, 1)
    return block


def test_what_aligned_collections_share_is_computed_once(client: Client) -> None:
    source = da.ones((40, 3), chunks=(10, 3)).map_blocks(counted, dtype=float, topic="aligned")
    parts = split(source[:, :2], source[:, 2], persist=True)
    assert parts.nblocks == 4
    assert len(client.get_events("aligned")) == 4


@pytest.mark.parametrize(
    "make",
    [
        lambda: da.from_array(np.arange(60), chunks=20),  # values in its graph
        lambda: da.arange(100, chunks=10).persist()[40:],
        lambda: dd.from_pandas(pd.DataFrame({"a": range(60)}), npartitions=4),
        lambda: db.from_sequence(range(60), npartitions=3),
        lambda: [dask.delayed(programs.make)(number, 10) for number in range(6)],
    ],
    ids=["from_array", "slice", "dataframe", "bag", "delayed"],
)
def test_kinds_of_collections(client: Client, make: Any) -> None:
    with split(make(), persist=True) as parts:
        assert sum(client.gather(parts.map(rows))) == 60


def test_persisted_collections_are_left_as_they_are(client: Client) -> None:
    x = da.arange(100, chunks=10).persist()
    futures = client.futures_of(x)
    with split(x, futures, persist=True) as parts:
        assert sum(client.gather(parts.map(programs.products))) == sum(n * n for n in range(100))


def total_of_lazy() -> int:
    """Split a lazy collection inside a task."""
    with worker_client() as client, split(da.arange(100, chunks=10), persist=True) as parts:
        return int(sum(client.gather(parts.map(total))))


def test_inside_a_task(client: Client) -> None:
    assert client.submit(total_of_lazy, pure=False).result() == 4950


def test_anything_but_a_bool_is_refused() -> None:
    with pytest.raises(spliter.InvalidArgumentError, match="persist must be True"):
        split([np.ones(2)], persist="yes")  # type: ignore[arg-type]
