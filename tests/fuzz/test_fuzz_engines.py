"""Random arrays in random blocks at random places: every engine gives what NumPy gives."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spliter import BlockGrid, Split, reduce, split
from tests.dask_workers import workers_of
from tests.fake_engine import fake_split
from tests.fuzz.cases import (
    Case,
    PlannedFailureError,
    bad_indexes,
    cases,
    read,
    stumble,
)


def check(parts: Split, case: Case) -> None:
    """Compare a pass with NumPy: each block once, where its index says, its rows numbered right."""
    partitions = list(parts)  # once: the second time they may have been planned anew
    pieces = [read(partition).result() for partition in partitions]
    indexes = [index for piece in pieces for index in piece]
    assert sorted(indexes) == sorted(np.ndindex(case.shape))
    whole = case.assembled({index: block for piece in pieces for index, block in piece.items()})
    assert whole.dtype == case.array.dtype
    np.testing.assert_array_equal(whole, case.array)
    if len(case.chunks) == 1:
        rows = [partition.get_item_indexes() for partition in partitions]
        np.testing.assert_array_equal(np.sort(np.concatenate(rows)), np.arange(len(case.array)))
        for piece, numbers in zip(pieces, rows, strict=True):
            np.testing.assert_array_equal(np.concatenate([*piece.values()]), case.array[numbers])


def check_failures(parts: Split, case: Case) -> None:
    """Compare tasks of which some fail: their own error, and all others are right."""
    bad = bad_indexes(case)
    partitions = list(parts)
    futures = [stumble(partition, bad) for partition in partitions]
    sizes = []
    for partition, future in zip(partitions, futures, strict=True):
        if bad & {*partition.get_indexes()}:
            with pytest.raises(PlannedFailureError):
                future.result()
        else:
            sizes.append(future.result())
    whole = reduce(operator.add, [stumble(partition, bad) for partition in partitions])
    if bad:
        with pytest.raises(PlannedFailureError):
            whole.result()
    else:
        assert whole.result() == sum(sizes) == case.array.size


@given(cases(locations=4, replicas=3), st.data())
def test_engine_whose_blocks_wander(case: Case, data: st.DataObject) -> None:
    named = [[f"location-{number}" for number in held] for held in case.holders]
    grid = BlockGrid.from_chunks(case.chunks)
    parts, blocks, _ = fake_split(case.blocks(), named, grid, partitions_per_location=case.wanted)
    with parts:
        check(parts, case)
        blocks.holders = data.draw(st.permutations(named))
        blocks.counter.drifted = True
        check(parts, case)
        assert {partition.location for partition in parts} <= {
            holder for held in blocks.holders for holder in held
        }
        check_failures(parts, case)


@settings(max_examples=40)
@given(cases(locations=1, replicas=1, max_dims=1, max_blocks=12))
def test_threads_of_this_process(case: Case) -> None:
    with split(case.blocks(), partitions_per_location=case.wanted) as parts:
        check(parts, case)
        check_failures(parts, case)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Client of one cluster for all examples: they leave nothing behind."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=3, threads_per_worker=1, dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster) as connected,
    ):
        yield connected


def identity(block: Any) -> Any:
    return block


# Dask's own threads use the module `random` meanwhile, and hypothesis takes it for the strategy's.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
@pytest.mark.backend("dask")
@settings(max_examples=8, suppress_health_check=[*HealthCheck], deadline=None)
@given(case=cases(locations=3, replicas=2, max_dims=1, max_blocks=8), data=st.data())
def test_dask_cluster_whose_blocks_wander(client: Any, case: Case, data: st.DataObject) -> None:
    workers = workers_of(client)
    futures = [
        client.submit(identity, block, workers=[workers[held[0]]], pure=False)
        for block, held in zip(case.blocks(), case.holders, strict=True)
    ]
    for future, held in zip(futures, case.holders, strict=True):
        if len(held) > 1:
            client.replicate([future], workers=[workers[number] for number in held])
    with split(futures, partitions_per_location=case.wanted) as parts:
        check(parts, case)
        if data.draw(st.booleans(), label="rebalance"):
            client.rebalance(futures)
        else:
            client.replicate(futures, n=2)
        check(parts, case)
        check_failures(parts, case)
