"""Blocks that dataClay moves after a Split was made: right results, and a new plan."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("dataclay")

from spliter import BlockTimeoutError, Partition, split, task
from spliter_backends.dataclay import DataClayArray, from_array
from spliter_backends.dataclay.cluster import EmbeddedDataClay
from tests.dataclay_backend import programs
from tests.waiting import wait_until_made

pytestmark = [pytest.mark.thorough, pytest.mark.backend("dataclay")]

LENGTH = 60
TOTAL = sum(range(LENGTH))


@pytest.fixture
def x(cluster: EmbeddedDataClay) -> DataClayArray:
    """Six blocks, two at each backend in turn."""
    return from_array(np.arange(LENGTH), chunks=10, backends=cluster.backend_ids)


def summed(futures: Sequence[Any]) -> int:
    return sum(future.result(timeout=60) for future in futures)


def move(blocks: Sequence[Any], backend: uuid.UUID) -> None:
    for block in blocks:
        block.move(backend)


def test_all_blocks_moved_between_passes(cluster: EmbeddedDataClay, x: DataClayArray) -> None:
    _, second, third = cluster.backend_ids
    parts = split(x)
    assert summed(parts.map(programs.total)) == TOTAL
    move(x.blocks[0::3], second)  # all of the first
    assert summed(parts.map(programs.total)) == TOTAL
    assert parts.moved.blocks == 0, "the task went to where the blocks are"
    # The next iteration plans again.
    assert {part.location for part in parts} == {str(second), str(third)}
    assert summed(parts.map(programs.total)) == TOTAL
    assert {part.submit(programs.here).result(60) for part in parts} == set(parts.locations)


def test_one_block_of_a_partition_moved(cluster: EmbeddedDataClay, x: DataClayArray) -> None:
    first, second, _ = cluster.backend_ids
    parts = split(x, partitions_per_location=1)
    (partition,) = (part for part in parts if part.location == str(first))
    move(x.blocks[3:4], second)
    items = partition.get_item_indexes()
    for _ in range(3):  # brought once
        assert partition.submit(programs.total).result(timeout=60) == items.sum()
    assert parts.moved.fetched_blocks == 1
    assert parts.moved.fetched_nbytes == 10 * 8
    again = list(parts)
    assert sum(len(part) for part in again) == 6
    assert {part.location: len(part) for part in again}[str(second)] == 3  # type: ignore[index]
    assert summed(parts.map(programs.total)) == TOTAL
    assert parts.moved.fetched_blocks == 1


def test_moved_while_tasks_run(cluster: EmbeddedDataClay, tmp_path: Path) -> None:
    first, second, _ = cluster.backend_ids
    x = from_array(np.arange(LENGTH), chunks=6, backends=[first])
    parts = split(x, partitions_per_location=1)
    future = parts[0].submit(programs.announced_total, tmp_path)
    wait_until_made(tmp_path / str(first))  # one block has been read
    move(x.blocks[2:], second)
    (tmp_path / "go on").touch()
    assert future.result(timeout=60) == TOTAL
    assert parts.moved.blocks > 0  # some were at one backend, some at the other
    assert summed(parts.map(programs.total)) == TOTAL


def test_always_moving(cluster: EmbeddedDataClay) -> None:
    """Right, or a typed error, but never a hang and never a wrong result."""
    first, second, _ = cluster.backend_ids
    x = from_array(np.arange(LENGTH), chunks=10, backends=[first])
    parts = split(x, partitions_per_location=1)
    stop = threading.Event()

    def keep_moving() -> None:
        while not stop.is_set():
            for backend in (second, first):
                move(x.blocks, backend)

    mover = threading.Thread(target=keep_moving)
    mover.start()
    try:
        for _ in range(10):
            with contextlib.suppress(BlockTimeoutError):
                assert summed(parts.map(programs.total)) == TOTAL
    finally:
        stop.set()
        mover.join()
    assert summed(parts.map(programs.total)) == TOTAL


def test_aligned_collections_move_too(cluster: EmbeddedDataClay, x: DataClayArray) -> None:
    second = cluster.backend_ids[1]
    y = from_array(np.full(LENGTH, 2), chunks=10, backends=cluster.backend_ids)
    parts = split(x, y)
    assert summed(parts.map(programs.products)) == 2 * TOTAL
    move(y.blocks[0::3], second)
    kept = parts[:]
    assert summed([part.submit(programs.products) for part in kept]) == 2 * TOTAL
    assert parts.moved.fetched_blocks == 2
    move(x.blocks[0::3], second)
    assert summed([part.submit(programs.products) for part in kept]) == 2 * TOTAL
    assert parts.moved.fetched_blocks == 2, "now they are together again"


def test_materialized_partition_follows(cluster: EmbeddedDataClay, x: DataClayArray) -> None:
    second = cluster.backend_ids[1]
    with split(x, materialize=True) as parts:
        assert summed(parts.map(programs.total)) == TOTAL
        move(x.blocks[0::3], second)
        assert summed([part.submit(programs.total) for part in parts[:]]) == TOTAL
        assert summed(parts.map(programs.total)) == TOTAL


def test_client_that_has_not_heard_of_the_move(cluster: EmbeddedDataClay, x: DataClayArray) -> None:
    """A Split asks for places now: what this process remembers may be old."""
    first, second, _ = cluster.backend_ids
    blocks = x.blocks
    move(blocks[0:1], second)
    blocks[0]._dc_meta.master_backend_id = first  # as in a process that did not move it
    parts = split(x)
    assert summed(parts.map(programs.total)) == TOTAL
    at = {index: part.location for part in parts for index in part.get_indexes()}
    assert at[(0,)] == str(second)
    assert parts.moved.blocks == 0


def test_task_with_partitions_of_one_location(cluster: EmbeddedDataClay, x: DataClayArray) -> None:
    """Two partitions whose blocks have gone different ways still meet."""
    first, second, third = cluster.backend_ids
    one, other = [
        part for part in split(x, partitions_per_location=2) if part.location == str(first)
    ]
    move(x.blocks[0:1], second)
    move(x.blocks[3:4], third)
    expected = sum(int(part.get_item_indexes().sum()) for part in (one, other))

    @task
    def both(mine: Partition, yours: Partition) -> int:
        return sum(int(block.sum()) for part in (mine, yours) for block in part)

    assert both(one, other).result(timeout=60) == expected
