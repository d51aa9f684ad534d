"""What passes took, on Dask: collected from the workers, and scraped from them."""

from __future__ import annotations

import operator
import urllib.request

import dask.array as da
import pytest
from distributed import Client

from spliter import InvalidArgumentError, gather, split
from tests.dask_backend.conftest import StartCluster
from tests.dask_workers import described_workers

pytestmark = [pytest.mark.backend("dask"), pytest.mark.timeout(120)]


def scraped(client: Client, name: str) -> float:
    """The sum of a counter over the workers, each read from its own ``/metrics``."""
    total = 0.0
    for address, worker in described_workers(client).items():
        host = address.removeprefix("tcp://").rpartition(":")[0]
        url = f"http://{host}:{worker['services']['dashboard']}/metrics"
        with urllib.request.urlopen(url, timeout=30) as page:
            lines = page.read().decode().splitlines()
        total += sum(float(line.split()[1]) for line in lines if line.startswith(name + " "))
    return total


def test_counters_are_scraped_from_the_workers(client: Client) -> None:
    pytest.importorskip("prometheus_client")
    parts = split(da.ones(400, chunks=10).persist(), schedule="FAC2")
    gather(parts.map(len))  # iterates over nothing
    before = {name: scraped(client, f"spliter_{name}_total") for name in ("blocks", "passes")}
    parts.map_reduce(lambda part: sum(map(len, part)), operator.add).result()
    gather(parts.map(lambda part: sum(map(len, part))))
    assert scraped(client, "spliter_blocks_total") - before["blocks"] == 2 * 40
    assert scraped(client, "spliter_passes_total") - before["passes"] == 2 * len(parts)


def test_metrics_survive_a_lost_worker(start_cluster: StartCluster) -> None:
    client = start_cluster()
    parts = split(da.ones(200, chunks=10).persist())
    gather(parts.map(lambda part: sum(map(len, part))))
    lost, left = parts.locations
    client.retire_workers([lost])
    assert {one.location for one in parts.metrics()} == {left}
    gather(parts.map(lambda part: sum(map(len, part))))
    assert sum(one.blocks for one in parts.metrics()) == 20


def test_metrics_on_the_event_loop(client: Client) -> None:
    parts = split(da.ones(40, chunks=10).persist())

    async def ask() -> None:
        parts.metrics()

    with pytest.raises(InvalidArgumentError, match="to_thread"):
        client.sync(ask)
