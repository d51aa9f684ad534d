"""Data larger than a worker's memory: passes at bounded memory, and few reads from disk."""

from __future__ import annotations

import os
from typing import Any

import pytest

pytest.importorskip("distributed")

import dask.array as da
import numpy as np
from distributed import Client, wait

from spliter import NotEnoughMemoryError, split
from spliter_apps.kmeans import KMeans
from tests.scale.conftest import pauses_at
from tests.scale.disk import Traffic, start_counting, traffic
from tests.scale.passes import (
    BLOCK_NBYTES,
    COLUMNS,
    ROWS,
    block,
    litter,
    look,
    look_ahead,
    look_when_short,
    read_as_dask_does,
    spill_all,
    taken,
    total,
)

pytestmark = pytest.mark.backend("dask")

WAIT = 120


def _points(blocks: int) -> da.Array:
    chunks = ((ROWS,) * blocks, (COLUMNS,))
    x: da.Array = da.map_blocks(block, chunks=chunks, dtype=float, meta=np.zeros((0, 0)))
    x = x.persist(optimize_graph=False)
    assert not wait(x, timeout=WAIT).not_done
    return x


def _process_of(client: Client) -> int:
    (found,) = client.run(os.getpid).values()
    return int(found)


def _traffic_of(client: Client) -> Traffic:
    (found,) = client.run(traffic).values()
    assert isinstance(found, Traffic)
    return found


@pytest.mark.feature("spill buffer")
def test_more_data_than_memory(small_worker: Client) -> None:
    client = small_worker
    blocks = 2 * pauses_at(client) // BLOCK_NBYTES
    process = _process_of(client)
    client.run(start_counting)
    x = _points(blocks)
    assert sum(_traffic_of(client).writes.values()) > blocks / 3, "hardly anything was spilled"
    with split(x) as parts:
        for _ in range(2):
            (seen,) = client.gather(parts.map(look))
            assert seen.total == sum(range(blocks))
            # The one in use, the next one, and one that Dask is about to spill.
            assert seen.most_alive <= 3
            disk = _traffic_of(client)
            assert max(disk.reads.values()) == 1
            # Nothing goes to disk again but what Dask finds too much by itself.
            assert sum(disk.writes.values()) < blocks / 3
    # The counters count: a pass that reads as Dask does writes nearly everything again.
    keys: list[Any] = [(x.name, at, 0) for at in range(blocks)]
    client.submit(read_as_dask_does, keys, pure=False).result(timeout=WAIT)
    assert sum(_traffic_of(client).writes.values()) > blocks / 3
    assert _process_of(client) == process, "the worker was ended and started again"


@pytest.mark.feature("spill buffer")
@pytest.mark.parametrize("prefetch", ["auto", 3, False])
def test_spilled_blocks_are_read_once_and_ahead(large_worker: Client, prefetch: Any) -> None:
    client = large_worker
    x = _points(12)
    with split(x, partitions_per_location=1, prefetch=prefetch) as parts:
        found = parts[0].submit(look_ahead).result(timeout=WAIT)
        assert found == (sum(range(12)), -1, 0), "blocks in memory: no wrapper, no thread"
        client.run(spill_all)
        client.run(start_counting)
        numbers, deepest, threads = parts[0].submit(look_ahead).result(timeout=WAIT)
        assert numbers == sum(range(12))
        reads = _traffic_of(client).reads
        assert (len(reads), max(reads.values())) == (12, 1)
        assert parts.moved.blocks == 0
    if prefetch == 3:
        assert 0 < deepest <= 3
        assert threads > 0
    if prefetch is False:
        assert (deepest, threads) == (-1, 0)


@pytest.mark.feature("spill buffer")
def test_nothing_is_read_ahead_where_memory_is_short(large_worker: Client) -> None:
    client = large_worker
    x = _points(12)
    with split(x, partitions_per_location=1, prefetch=3) as parts:
        for fraction in ("memory_pause_fraction", "memory_target_fraction"):
            client.run(spill_all)
            found = parts[0].submit(look_when_short, fraction).result(timeout=WAIT)
            assert found == (sum(range(12)), 0, 0), fraction
        client.run(spill_all)
        numbers, deepest, threads = parts[0].submit(look_ahead).result(timeout=WAIT)
        assert numbers == sum(range(12))
        assert 0 < deepest <= 3 and threads > 0


def test_k_means_reads_spilled_blocks_once_a_pass(small_worker: Client) -> None:
    client = small_worker
    x = _points(60)
    client.run(spill_all)
    client.run(start_counting)
    centers = np.linspace(0, 60, 4)[:, None] * np.ones(COLUMNS)
    fitted = KMeans(4, init=centers, n_init=1, max_iter=3, tol=0, materialize=False).fit(x)
    # The inspection of the blocks, the iterations, and the labels.
    passes = fitted.n_iter_ + 2
    reads = [count for key, count in _traffic_of(client).reads.items() if key[0] == x.name]
    assert passes > 2
    assert 0 < max(reads) <= passes


@pytest.mark.feature("memory limits")
def test_too_large_to_be_one_is_said_before_it_harms(small_worker: Client) -> None:
    client = small_worker
    process = _process_of(client)
    # The blocks and their copy would take 1.2 times the memory, without what Python takes.
    blocks = round(0.6 * pauses_at(client) / BLOCK_NBYTES)
    x = _points(blocks)
    with (
        split(x, materialize=True, partitions_per_location=1) as parts,
        pytest.raises(NotEnoughMemoryError, match="increase partitions_per_location"),
    ):
        parts[0].submit(total).result(timeout=WAIT)
    # In smaller parts it can be done, one after the other: what is not needed is spilled.
    with split(x, materialize=True, partitions_per_location=10) as parts:
        futures = parts.map(total)
        wait(futures, timeout=WAIT)
        found = client.gather(futures)
        assert [count for count, _ in found] == [1] * 10
        assert sum(numbers for _, numbers in found) == sum(range(blocks))
    assert _process_of(client) == process, "the worker was ended and started again"


def test_memory_that_nobody_needs_is_free(small_worker: Client) -> None:
    client = small_worker
    x = _points(12)
    limit = pauses_at(client)
    before = client.submit(taken, pure=False).result(timeout=WAIT)
    after = client.submit(litter, limit - before - x.nbytes // 2).result(timeout=WAIT)
    # There is room for it, but not for the copy of the blocks beside it.
    assert limit - x.nbytes < after < limit
    with split(x, materialize=True, partitions_per_location=1) as parts:
        ((count, numbers),) = client.gather(parts.map(total))
    assert (count, numbers) == (1, sum(range(12)))
