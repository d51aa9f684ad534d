"""Graphs on a Dask cluster of worker processes."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("distributed")

from spliter_apps.graph import connected_components, pagerank
from tests.dask_backend.placing import ShuffledCollections
from tests.dask_workers import workers_of
from tests.graph.suite import GraphTests, assert_components, assert_ranks, cut_rows, power_law

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.backend("dask"),
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("client"),
]


class TestGraphs(ShuffledCollections, GraphTests):
    """Futures of blocks at workers drawn at random."""


def incoming(dask_worker: Any) -> int:
    return int(dask_worker.state.transfer_incoming_count_total)


def test_no_block_moves(client: Any) -> None:
    graph = power_law(400, 4000)
    workers = workers_of(client)
    blocks = [
        client.submit(lambda it: it, block, workers=[workers[at % len(workers)]], pure=False)
        for at, block in enumerate(cut_rows(graph, [10] * 40))
    ]
    before = client.run(incoming)
    assert_ranks(pagerank(blocks, tol=1e-10), pagerank(graph, tol=1e-10))
    assert_components(connected_components(blocks), graph)
    assert client.run(incoming) == before
