"""Records in Ray's object store, looked up by references in blocks."""

from __future__ import annotations

import math
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until

pytest.importorskip("ray")

import ray

from spliter import BlockTimeoutError, InvalidArgumentError, gather, split
from spliter_backends.records._connections import CONNECTIONS
from spliter_backends.records.ray import RaySource
from spliter_backends.records.redis import RedisSource
from tests.ray_backend.cluster import RayNodes
from tests.ray_backend.placing import put_at
from tests.ray_backend.programs import looked_up, looked_up_until_killed
from tests.ray_backend.test_ray_split import WAIT
from tests.records import suite as records_of
from tests.records.connections import clients_of, connections_from
from tests.records.servers import redis_server

pytestmark = [pytest.mark.backend("ray"), pytest.mark.timeout(120)]


def test_records_of_other_nodes(nodes: RayNodes) -> None:
    """Tasks on several nodes at once look up objects that are on all of them."""
    numbers = list(range(12))
    people = put_at(nodes.ids, [[number] * 3 for number in numbers], [n % 3 for n in numbers])
    chosen = [[0, 1, 2, 1, 0], [5, 6, 7, 8, 9, 10], [], [11], [3, 3, 3], [4, 0]]
    blocks = [ray.put([people[number] for number in block]) for block in chosen]
    with split(blocks, partitions_per_location=2) as parts:
        results = gather(parts.map(looked_up, RaySource(max_batch=4)))
    records = [block for found, _ in results for block in found]
    assert [[int(one[0]) for one in block] for block in records] == chosen
    requests = [size for _, sizes in results for size in sizes]
    assert len(requests) == sum(math.ceil(len(set(block)) / 4) for block in chosen)
    assert sum(requests) == sum(len(set(block)) for block in chosen)


@ray.remote  # type: ignore[untyped-decorator]
def fails() -> None:
    raise ZeroDivisionError("of this record")


@ray.remote  # type: ignore[untyped-decorator]
def sleeps() -> None:
    time.sleep(30)


def test_errors_are_those_of_the_record(nodes: RayNodes) -> None:
    def look_up(keys: list[Any], **options: Any) -> Any:
        (part,) = split([ray.put(keys)])
        return part.submit(looked_up, RaySource(**options)).result(WAIT)

    with pytest.raises(ZeroDivisionError, match="of this record"):
        look_up([fails.remote()])
    pending = sleeps.options(num_cpus=0).remote()
    with pytest.raises(BlockTimeoutError, match=r"not available after 0.5 s"):
        look_up([pending], timeout=0.5)
    ray.cancel(pending, force=True)
    with pytest.raises(InvalidArgumentError, match="must be references, got 7"):
        look_up([7])


def test_other_sources_from_tasks_at_once(nodes: RayNodes) -> None:
    with redis_server() as server:
        source = RedisSource(server.url, "person:{}", int, max_batch=2)
        for number in range(9):
            source.put(number, number**2)
        with split(put_at(nodes.ids, [[n, n + 1, n] for n in range(6)], [0, 1, 2] * 2)) as parts:
            found = gather(parts.map(records_of.looked_up, source))
        records = {tuple(block.tolist()): squares for part in found for block, squares in part}
        assert records == {(n, n + 1, n): [n**2, (n + 1) ** 2, n**2] for n in range(6)}
        assert server.count("mget") == 6


def test_killed_worker_leaves_no_connection(nodes: RayNodes, tmp_path: Path) -> None:
    with redis_server() as server:
        source = RedisSource(server.url, "person:{}", int)
        for number in range(20):
            source.put(number, number**2)
        CONNECTIONS.close()  # those of this process
        blocks = [ray.put([number]) for number in range(20)]  # owned by this process
        with split(blocks, partitions_per_location=1) as parts:
            future = parts[0].submit(looked_up_until_killed, source, tmp_path)
            wait_until((tmp_path / "process").exists)
            killed = int((tmp_path / "process").read_text())
            connections = connections_from(killed, {server.port})
            assert connections
            os.kill(killed, signal.SIGKILL)
            wait_until(lambda: not connections & clients_of({server.port}))
            (tmp_path / "go on").touch()  # for the task that Ray runs instead
            assert future.result(WAIT) == [[number**2] for number in range(20)]
