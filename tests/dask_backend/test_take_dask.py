"""Rows by global index on Dask: one task per partition, and only the rows cross."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("distributed")

import dask.array as da
from distributed import Client, wait

from spliter import split
from tests.counting import counter
from tests.dask_backend.conftest import StartCluster
from tests.dask_backend.programs import kill
from tests.dask_workers import workers_of

pytestmark = [pytest.mark.backend("dask"), pytest.mark.timeout(120)]

ROWS, COLUMNS = 20_000, 20


def table(rows: int = ROWS) -> da.Array:
    x: da.Array = da.arange(rows * COLUMNS, chunks=rows // 100 * COLUMNS).reshape(rows, COLUMNS)
    x = x.persist()
    wait(x)
    return x


def sent(client: Client) -> tuple[int, int]:
    """Return how many results the workers have sent, and their bytes."""

    def count(dask_worker: Any) -> tuple[int, int]:
        return dask_worker.transfer_outgoing_count_total, dask_worker.transfer_outgoing_bytes_total

    counts, nbytes = zip(*client.run(count).values(), strict=True)
    return sum(counts), sum(nbytes)


def test_only_the_rows_are_sent(client: Client) -> None:
    wanted = np.random.default_rng(0).integers(0, ROWS, 500)
    with split(table(), partitions_per_location=3) as parts, counter(client) as count:
        before = sent(client)
        found: list[Any] = []
        cost = count(lambda: found.append(parts.take(wanted)))
        answers, nbytes = (now - then for now, then in zip(sent(client), before, strict=True))
        np.testing.assert_array_equal(found[0][:, 0], wanted * COLUMNS)
        assert cost.tasks == len(parts)
        assert cost.nbytes == 0, "nothing moves between workers"
        assert answers <= len(parts)
        assert nbytes <= 1.1 * len(np.unique(wanted)) * COLUMNS * 8


def test_a_worker_dies_before(start_cluster: StartCluster) -> None:
    client = start_cluster()
    with split(table()) as parts:
        wanted = np.arange(ROWS)[:: -ROWS // 7]
        first = parts.take(wanted)
        kill(client, workers_of(client)[0])
        np.testing.assert_array_equal(parts.take(wanted), first)
        np.testing.assert_array_equal(first[:, 0], wanted * COLUMNS)
