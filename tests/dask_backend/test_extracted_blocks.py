"""Blocks extracted from the results of tasks stay at the workers of these results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from distributed import Client, futures_of, wait

from spliter import split
from tests.dask_backend import programs
from tests.dask_backend.conftest import StartCluster
from tests.dask_backend.programs import kill
from tests.dask_workers import workers_of

pytestmark = [pytest.mark.backend("dask"), pytest.mark.timeout(120)]

NBLOCKS = 60
"""More than the workers run at once; the results are at fewer workers than there are."""


def placed(client: Client, workers: Sequence[str]) -> list[Any]:
    """Return futures of blocks at some workers in turn, which Dask can make again."""
    pinned = {"allow_other_workers": True, "pure": False}
    made = [
        client.submit(np.full, 1000, at, workers=[workers[at % len(workers)]], **pinned)
        for at in range(NBLOCKS)
    ]
    wait(made)
    return made


def as_frame(block: Any) -> pd.DataFrame:
    return pd.DataFrame({"a": block * 1.5})


def holders(client: Client, made: Any) -> list[str]:
    """Return the only worker of each block of a persisted collection."""
    blocks = sorted(futures_of(made), key=lambda future: int(future.key[1]))
    wait(blocks)
    found = client.who_has(blocks)
    return [worker for block in blocks for (worker,) in [found[block.key]]]


@pytest.mark.parametrize(
    ("fn", "given"),
    [(np.negative, {"dtype": int}), (as_frame, {"meta": as_frame(np.zeros(0))})],
)
def test_blocks_stay_where_the_results_are(
    start_cluster: StartCluster, fn: Any, given: dict[str, Any]
) -> None:
    client = start_cluster(n_workers=3)
    busy = workers_of(client)[:2]
    with split(placed(client, busy), partitions_per_location=1) as parts:
        before = programs.received(client)
        persisted = parts.map_blocks(fn, **given).persist()
        assert holders(client, persisted) == [busy[at % 2] for at in range(NBLOCKS)]
        with split(persisted) as again:
            assert again.moved.blocks == 0
        further = (parts.map_blocks(fn, **given) * 2).persist()
        assert holders(client, further) == [busy[at % 2] for at in range(NBLOCKS)]
        assert programs.received(client) == before


@pytest.mark.thorough
def test_results_of_a_worker_that_is_lost(start_cluster: StartCluster) -> None:
    """The pins to it are removed, whether it is lost before the extraction or after it."""
    client = start_cluster(n_workers=3, restarts=False)
    lost, *left = workers_of(client)
    with split(placed(client, [lost]), partitions_per_location=1) as parts:
        made = parts.map_blocks(np.negative, dtype=int)
        persisted = made.persist()
        wait(persisted)
        kill(client, lost)
        assert int(persisted.sum().compute()) == -1000 * sum(range(NBLOCKS))
        assert set(holders(client, persisted)) <= set(left)
        assert int((made + 1).sum().compute()) == -1000 * sum(range(NBLOCKS)) + 1000 * NBLOCKS


def test_pins_of_the_user_are_kept(start_cluster: StartCluster) -> None:
    client = start_cluster(n_workers=3)
    first, _, third = workers_of(client)
    with split(placed(client, [first])) as parts:
        made = parts.map_blocks(np.negative, dtype=int)
        persisted = client.persist(made, workers=[third])
        assert set(holders(client, persisted)) == {third}
