"""Workers that are killed while they look up records."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.waiting import wait_until

pytest.importorskip("distributed")

import dask.array as da
from distributed import Client

from spliter import gather, split
from spliter_backends.records._connections import CONNECTIONS
from tests.dask_backend.conftest import start_processes
from tests.records import test_redis, test_sql
from tests.records.connections import clients_of, connections_from
from tests.records.servers import http_service, postgres_server, redis_server
from tests.records.suite import Records

pytestmark = pytest.mark.backend("dask")


class Served(NamedTuple):
    """A source whose server runs."""

    port: int
    source: Any
    records: Records


@contextmanager
def served_by_redis() -> Iterator[Served]:
    from spliter_backends.records.redis import RedisSource

    with redis_server() as server:
        test_redis.fill(server)
        source = RedisSource(server.url, "person:{}", json.loads)
        yield Served(server.port, source, test_redis.RECORDS)


@contextmanager
def served_by_postgresql() -> Iterator[Served]:
    from spliter_backends.records.sql import SQLSource

    with postgres_server() as server:
        test_sql.fill(server.url)
        source = SQLSource(server.url, test_sql.STATEMENT)
        yield Served(server.port, source, test_sql.RECORDS)


@contextmanager
def served_by_http() -> Iterator[Served]:
    from spliter_backends.records.http import HTTPSource

    with http_service() as service:
        source = HTTPSource(f"{service.url}/people/{{}}", json.loads)
        yield Served(service.server_port, source, {key: key**2 for key in range(0, 8, 2)})


@pytest.mark.thorough
def test_killed_workers_leave_nothing(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    env = {"TMPDIR": str(files)}
    with ExitStack() as stack:
        serve = (served_by_redis, served_by_postgresql, served_by_http)
        served = [stack.enter_context(one()) for one in serve]
        CONNECTIONS.close()  # those by which this process has stored the records
        ports = {one.port for one in served}
        with start_processes(local_directory=str(tmp_path / "scratch"), env=env) as cluster:
            found = _look_up_while_one_is_killed(cluster, ports, [one.source for one in served])
        assert len(found) == 200
        for key, *records in found:
            assert records == [one.records.get(key % 8) for one in served]
        wait_until(lambda: not clients_of(ports))
    assert list(files.iterdir()) == []


def _look_up_while_one_is_killed(cluster: Any, ports: set[int], sources: list[Any]) -> list[Any]:
    with Client(cluster) as client:
        x = da.arange(200, chunks=4).persist()
        with split(x, partitions_per_location=1) as parts:
            assert len(parts) == 2
            tasks = parts.map(_look_up, sources)
            killed = next(iter(client.run(os.getpid).values()))
            wait_until(lambda: {to for _, to in connections_from(killed, ports)} == ports)
            connections = connections_from(killed, ports)
            os.kill(killed, signal.SIGKILL)
            wait_until(lambda: not connections & clients_of(ports))
            return list(itertools.chain(*gather(tasks)))


def _look_up(part: Any, sources: list[Any]) -> list[Any]:
    found: list[Any] = []
    loops = [part.lookup(one, lambda block: [int(key) % 8 for key in block], 4) for one in sources]
    for block, *records in zip(part, *loops, strict=True):
        found += [(int(k), *of) for k, *of in zip(block, *(of for _, of in records), strict=True)]
        time.sleep(0.02)  # or it has ended before it is killed
    return found
