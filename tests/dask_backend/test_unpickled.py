"""Collections that were pickled where they were persisted, and split elsewhere."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import pandas as pd
import pytest
from distributed import Client, futures_of, wait, worker_client

from spliter import BlockLostError, split
from tests.conftest import RunPython
from tests.dask_backend import programs

pytestmark = [pytest.mark.backend("dask"), pytest.mark.timeout(120)]


def total_of_pickled(collection: bytes) -> int:
    """Split a collection inside a task."""
    with worker_client() as client, dask.config.set({"spliter.block-timeout": "5s"}):
        parts = split(pickle.loads(collection))
        return int(sum(client.gather(parts.map(programs.total))))


def test_in_a_task(client: Client) -> None:
    x = da.arange(100, chunks=10).persist()
    assert client.submit(total_of_pickled, pickle.dumps(x), pure=False).result() == 4950


ELSEWHERE = """
import pickle, sys
import dask
from distributed import Client
from spliter import gather, split, task

@task
def rows(partition):
    return sum(len(block) for block in partition)

dask.config.set({"spliter.block-timeout": "5s"})
address, *files = sys.argv[1:]
with Client(address):
    for file in files:
        with open(file, "rb") as stream:
            print(sum(gather(split(pickle.load(stream)).map(rows))))
"""


def test_in_another_process(client: Client, run_python: RunPython, tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": range(60)})
    collections: list[Any] = [
        da.arange(100, chunks=10).persist(),
        dd.from_pandas(frame, npartitions=4).persist(),
        # Still being computed when it is split.
        da.arange(80, chunks=20).map_blocks(programs.slowly, dtype=int).persist(),
    ]
    files = [tmp_path / f"{number}.pickle" for number in range(len(collections))]
    for file, collection in zip(files, collections, strict=True):
        file.write_bytes(pickle.dumps(collection))
    address = client.scheduler_info()["address"]
    done = run_python("-c", ELSEWHERE, address, *map(str, files), timeout=50)
    assert done.stdout.split() == ["100", "60", "80"], done.stderr


def test_lost_blocks_are_named(client: Client) -> None:
    """Those that the scheduler does not know, of an array with blocks along two axes."""
    x = da.ones((4, 6), chunks=(2, 2)).persist()
    wait(x)
    pickled = pickle.dumps(x)
    lost = ((0, 1), (1, 2))
    client.cancel([future for future in futures_of(x) if future.key[1:] in lost])
    with Client(client.scheduler_info()["address"]), pytest.raises(BlockLostError) as caught:
        split(pickle.loads(pickled))
    assert caught.value.blocks == lost
