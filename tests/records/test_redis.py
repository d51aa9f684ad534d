"""Records of a real Redis server."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.waiting import wait_until

pytest.importorskip("redis")

import numpy as np

from spliter import (
    InvalidArgumentError,
    PartitionNotLocalError,
    RecordSourceError,
    gather,
    split,
)
from spliter_backends.records._connections import CONNECTIONS
from spliter_backends.records.redis import MAX_CONNECTIONS, RedisSource
from spliter_experiments.ahead.proxy import delayed
from tests.conftest import RunPython
from tests.records.servers import HOST, QUOTED, RedisServer, free_port, redis_server
from tests.records.suite import (
    Records,
    RecordSourceTests,
    check_server_that_dies,
    looked_up,
)

RECORDS: Records = {number: {"square": number**2} for number in range(8)}


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_server() as running:
        fill(running)
        yield running


def fill(server: RedisServer) -> None:
    source = RedisSource(server.url, "person:{}")
    for key, record in RECORDS.items():
        source.put(key, json.dumps(record))


class TestRedis(RecordSourceTests):
    missing = (-1, "none", b"none")

    @pytest.fixture
    def source(self, server: RedisServer) -> RedisSource:
        return RedisSource(server.url, "person:{}", json.loads, max_batch=3)

    @pytest.fixture
    def records(self) -> Records:
        return RECORDS

    @pytest.fixture
    def count(self, server: RedisServer) -> Callable[[], int]:
        return lambda: server.count("mget")

    @pytest.fixture
    def unreachable(self) -> tuple[RedisSource, str]:
        port = free_port()
        source = RedisSource(f"redis://:{QUOTED}@{HOST}:{port}/0", "person:{}")
        return source, f"redis://***@{HOST}:{port}/0 cannot be read: "

    def test_wrong_password(self, server: RedisServer) -> None:
        url = server.url.replace(QUOTED, "other-secret")
        with pytest.raises(RecordSourceError, match=r"://\*\*\*@.*invalid.*password") as raised:
            RedisSource(url).get(1)
        assert "other-secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "template", "message"),
    [
        ("http://h", "{}", "must begin with redis:// or rediss:// or unix://, got 'http://h'"),
        (":hidden@host", "{}", r"got '\*\*\*@host'"),
        ("redis//:hidden@host", "{}", r"got '\*\*\*'"),
        ("http://:hidden/with@h", "{}", r"got 'http://\*\*\*'"),
        ("redis://h", "person", "with one {} for the key, .* got 'person'"),
        ("redis://h", "{}{}", "got '{}{}'"),
        ("redis://h", "{0.url}", "got '{0.url}'"),
        ("redis://h", "{", "got '{'"),
        ("redis://h", b"{}", "got bytes"),
    ],
)
def test_bad_options(url: str, template: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message) as raised:
        RedisSource(url, template)
    assert "hidden" not in str(raised.value)


def test_connections_are_shared_by_threads_and_sources(server: RedisServer) -> None:
    CONNECTIONS.close()
    wait_until(lambda: server.connections() == 0)
    for _ in range(3):
        source = RedisSource(server.url, "person:{}", json.loads, max_batch=1)
        part = split([[key] for key in RECORDS] * 20, partitions_per_location=1)[0]
        assert len(part.submit(looked_up, source, 5).result()) == 160
    assert 0 < server.connections() <= 6 <= MAX_CONNECTIONS
    CONNECTIONS.close()
    wait_until(lambda: server.connections() == 0)


def test_forked_processes_connect_themselves(server: RedisServer) -> None:
    source = RedisSource(server.url, "person:{}", json.loads)
    assert source.get(2) == RECORDS[2]
    held = threading.Event()

    def hold() -> None:
        with CONNECTIONS._lock:
            held.set()
            time.sleep(0.2)

    threading.Thread(target=hold).start()
    held.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
        child = os.fork()
    if not child:
        os._exit(0 if source.get(3) == RECORDS[3] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert source.get(4) == RECORDS[4]


def test_requests_overlap_if_the_server_is_far_away(server: RedisServer) -> None:
    CONNECTIONS.close()
    wait_until(lambda: server.connections() == 0)
    with delayed(server.port, 0.01) as port:
        source = RedisSource(server.url.replace(str(server.port), str(port)), "person:{}")
        part = split([[key] for key in RECORDS] * 8, partitions_per_location=1)[0]

        def connections(prefetch: Any) -> int:
            begun = server.count("mget")
            part.submit(looked_up, source, prefetch).result()
            assert server.count("mget") - begun == 64
            return server.connections()

        assert connections(False) == 1
        assert 1 < connections("auto") <= MAX_CONNECTIONS


def test_records_that_a_loop_stores(server: RedisServer) -> None:
    source = RedisSource(server.url, "stored:{}", int)
    source.put(1, 0)
    part = split([[1]] * 20, partitions_per_location=1)[0].at_location()
    for number, (_, records) in enumerate(part.lookup(source, lambda block: block, 4)):
        assert records == [number]
        source.put("1", number + 1)


def test_server_that_dies_in_the_middle() -> None:
    with redis_server() as server:
        fill(server)
        source = RedisSource(server.url, "person:{}", json.loads)
        shown = f"redis://***@{HOST}:{server.port}/0 cannot be read"

        def restart() -> None:
            server.start()
            fill(server)

        check_server_that_dies(source, RECORDS, server.kill, restart, shown)


def test_server_that_does_not_answer() -> None:
    with redis_server() as server:
        fill(server)
        source = RedisSource(server.url, "person:{}", json.loads, socket_timeout=0.2)
        assert source.get(1) == RECORDS[1]
        server.pause()
        begun = time.monotonic()
        with pytest.raises(RecordSourceError, match="TimeoutError"):
            source.get(1)
        assert time.monotonic() - begun < 60
        server.resume()
        assert source.get(1) == RECORDS[1]


@pytest.mark.backend("dask")
def test_from_several_workers(server: RedisServer) -> None:
    import dask.array as da
    from distributed import Client

    from tests.dask_backend.conftest import start_processes

    source = RedisSource(server.url, "person:{}", json.loads, max_batch=3)
    before, connected = server.count("mget"), server.connections()
    with start_processes() as cluster, Client(cluster):
        x = da.arange(64, chunks=4).persist()
        with split(x, partitions_per_location=1) as parts:
            assert len(parts) == 2
            found = itertools.chain(*gather(parts.map(_squares, source)))
        assert sorted(found) == sorted((number % 8) ** 2 for number in range(64))
        assert server.count("mget") - before == 16 * 2
        assert server.connections() > connected
        with split(x) as parts, pytest.raises(PartitionNotLocalError):
            asyncio.run(_look_up_in_event_loop(parts[0], source))
        assert server.count("mget") - before == 16 * 2


async def _look_up_in_event_loop(part: Any, source: Any) -> Any:
    return _squares(part, source)


def _squares(part: Any, source: Any) -> list[int]:
    found = part.lookup(source, lambda block: np.asarray(block) % 8)
    return [record["square"] for _, records in found for record in records]


LEAVES_EARLY = """
import sys
import numpy as np
from spliter import split
from spliter_backends.records.redis import RedisSource

source = RedisSource(sys.argv[1], "person:{}")
part = split([np.arange(8)] * 50, partitions_per_location=1)[0]
for number, _ in enumerate(part.lookup(source, lambda block: block, 20)):
    if number == 2:
        break
"""


def test_programs_that_leave_a_loop_end(server: RedisServer, run_python: RunPython) -> None:
    CONNECTIONS.close()
    with delayed(server.port, 0.2) as port:
        url = server.url.replace(str(server.port), str(port))
        done = run_python("-W", "error", "-c", LEAVES_EARLY, url, timeout=20)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    wait_until(lambda: server.connections() == 0)
