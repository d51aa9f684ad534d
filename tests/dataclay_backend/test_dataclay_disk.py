"""Blocks that dataClay has written to disk, as it does where memory is short."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("dataclay")

from dataclay.exceptions import DataClayException

from spliter import Split, split
from spliter_backends.dataclay import DataClayArray, from_array
from spliter_backends.dataclay.cluster import EmbeddedDataClay
from spliter_backends.dataclay.executor import current_executor
from tests.dataclay_backend import programs
from tests.dataclay_backend.classes import Readings, Table
from tests.dataclay_backend.counts import total_over

pytestmark = pytest.mark.backend("dataclay")


def summed(futures: Sequence[Any]) -> int:
    return sum(future.result(timeout=60) for future in futures)


def flush(cluster: EmbeddedDataClay) -> None:
    """Have all backends write all objects to disk.

    What is still freed from earlier calls loads its object anew, or takes one away that a backend
    is about to write, which that answers with the KeyError of its id: so they are asked again.
    """
    total_over(cluster, programs.objects)  # the first request to a backend makes an object there
    session = current_executor().session
    deadline = time.monotonic() + 60
    while True:
        try:
            for one in cluster.backend_ids:
                session.wait(session.runtime.backend_clients[one].flush_all())
        except DataClayException as error:
            if "UUID(" not in str(error) or time.monotonic() > deadline:
                raise
        else:
            left = total_over(cluster, programs.objects)
            if not left:
                return
            assert time.monotonic() < deadline, f"{left} objects stay in memory"


def test_blocks_and_partitions_are_loaded(cluster: EmbeddedDataClay) -> None:
    x = from_array(np.arange(30), chunks=3)
    objects = [Table(np.arange(3)), Readings(np.arange(3))]
    for it in objects:
        it.make_persistent(backend_id=cluster.backend_ids[0])
    parts, others = split(x), split(objects[:1])

    for _ in range(2):
        flush(cluster)
        assert summed(parts.map(programs.total)) == sum(range(30))
        assert summed(others.map(programs.total)) == 3
    flush(cluster)
    assert summed(split(x).map(programs.total)) == sum(range(30))
    flush(cluster)
    assert summed(split(objects[1:]).map(programs.totals_of_objects)) == 6


@pytest.fixture
def array(cluster: EmbeddedDataClay) -> Any:
    """40 items in blocks of two, all at one backend."""
    return from_array(np.arange(40), chunks=2, backends=cluster.backend_ids[:1])


def read(parts: Split, *args: Any) -> Any:
    (partition,) = parts
    return partition.submit(programs.read, *args).result(timeout=60)


@pytest.mark.parametrize(("prefetch", "depths"), [(3, {3}), ("auto", range(33)), (False, {None})])
def test_blocks_are_loaded_once_and_ahead(
    cluster: EmbeddedDataClay, array: DataClayArray, prefetch: Any, depths: Any
) -> None:
    sums = np.arange(40).reshape(20, 2).sum(axis=1).tolist()
    with split(array, partitions_per_location=1, prefetch=prefetch) as parts:
        assert read(parts) == (sums, 0, None, "")  # in memory
        flush(cluster)
        found, loads, depth, error = read(parts)
        assert (found, loads, error) == (sums, 20, "")
        assert depth in depths
        assert read(parts) == (sums, 0, None, "")
        flush(cluster)
        found, _, _, error = read(parts, array.object_ids[4])
        assert (found, error) == (sums[:4], "ObjectNotFound")


@pytest.mark.parametrize(
    ("room", "expected"),
    [(20, [3] * 17 + [2, 1, 0]), (5, [3] * 5 + [2, 1] + [0] * 13), (0, [0] * 20)],
)
def test_nothing_is_read_ahead_above_the_limit_of_memory(
    cluster: EmbeddedDataClay, array: DataClayArray, room: int, expected: list[int]
) -> None:
    with split(array, partitions_per_location=1, prefetch=3) as parts:
        flush(cluster)
        sums, ahead = parts[0].submit(programs.ahead_as_memory_fills, room).result(timeout=60)
    assert sums == np.arange(40).reshape(20, 2).sum(axis=1).tolist()
    assert ahead == expected


def test_aligned_and_materialized(cluster: EmbeddedDataClay, array: DataClayArray) -> None:
    other = from_array(np.arange(40) * 2, chunks=2, backends=cluster.backend_ids[:1])
    with split(array, other, materialize=True, prefetch=2) as parts:
        flush(cluster)
        assert summed(parts.map(programs.products)) == 2 * sum(at * at for at in range(40))


def test_nothing_is_left_of_a_loop_left_early(
    cluster: EmbeddedDataClay, array: DataClayArray
) -> None:
    with split(array, partitions_per_location=1, prefetch=5) as parts:
        flush(cluster)
        assert parts[0].submit(programs.leave_early, 3).result(timeout=60) == (0, 0)
