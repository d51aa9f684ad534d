"""Requests end, whatever a server sends: in time, and with little memory."""

from __future__ import annotations

import contextvars
import gzip
import itertools
import socket
import threading
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec")
pytest.importorskip("httpx")
pytest.importorskip("redis")

from spliter import InvalidArgumentError, RecordSourceError
from spliter_backends.records._bounds import BOUNDS, MAX_NBYTES, MAX_SECONDS, BoundedSocket, Bounds
from spliter_backends.records._connections import CONNECTIONS
from spliter_backends.records.http import HTTPSource
from spliter_backends.records.objects import ObjectSource
from spliter_backends.records.redis import RedisSource
from tests.conftest import ROOT
from tests.records.servers import HOST

SHORT: dict[str, Any] = {"max_seconds": 0.5, "max_nbytes": 10**6}
SMALL: dict[str, Any] = {"max_seconds": 50, "max_nbytes": 10**6}
LATE = r"cannot be read: no whole answer within max_seconds=0\.5; check"
LARGE = r"cannot be read: the answer has more than max_nbytes=1000000 bytes; check"
ENOUGH = 60
"""Seconds after which a request does not end."""

Serve = Callable[[Iterable[bytes]], int]


@pytest.fixture
def serve() -> Iterator[Serve]:
    stopped = threading.Event()
    with ExitStack() as stack:

        def start(chunks: Iterable[bytes]) -> int:
            listening = stack.enter_context(socket.create_server((HOST, 0), backlog=10))
            threading.Thread(target=accept, args=(listening, chunks), daemon=True).start()
            port: int = listening.getsockname()[1]
            return port

        def accept(listening: socket.socket, chunks: Iterable[bytes]) -> None:
            with suppress(OSError):
                while not stopped.is_set():
                    client, _ = listening.accept()
                    threading.Thread(target=answer, args=(client, chunks), daemon=True).start()

        def answer(client: socket.socket, chunks: Iterable[bytes]) -> None:
            with client, suppress(OSError):
                while (sent := client.recv(2**16)) and not stopped.is_set():
                    if sent.startswith(b"*") and b"MGET" not in sent:
                        client.sendall(b"+OK\r\n" * sent.count(b"*"))  # greetings of redis
                        continue
                    for chunk in chunks:
                        client.sendall(chunk)
                        if stopped.is_set():
                            return

        yield start
        CONNECTIONS.close()
        stopped.set()


def slowly(beginning: bytes, chunk: bytes) -> Iterable[bytes]:
    """Return chunks of which each comes before any time limit of a read."""

    class Chunks:
        def __iter__(self) -> Iterator[bytes]:
            yield beginning
            while True:
                time.sleep(0.02)
                yield chunk

    return Chunks()


class Endless:
    def __init__(self, beginning: bytes, chunk: bytes) -> None:
        self._beginning, self._chunk = beginning, chunk

    def __iter__(self) -> Iterator[bytes]:
        return itertools.chain([self._beginning], itertools.repeat(self._chunk * 1000))


def bounds_for(message: str) -> dict[str, Any]:
    """Return bounds of which one is certain to be reached."""
    return SMALL if message == LARGE else SHORT


def check_ends(source: Any, message: str) -> None:
    """Check that a request fails with a message."""
    threads = ThreadPoolExecutor(1)
    try:
        with pytest.raises(RecordSourceError, match=message):
            threads.submit(source.get, 1).result(ENOUGH)
    finally:
        threads.shutdown(wait=False)


OK = b"HTTP/1.1 200 OK\r\n"
SIZED = OK + b"Content-Length: 1000000000\r\n\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([], LATE),
        (slowly(b"", b"H"), "cannot be read"),
        (slowly(OK + b"X: ", b"x"), LATE),
        (slowly(OK, b"X: y\r\n"), LATE),
        (slowly(SIZED, b"x"), LATE),
        (slowly(CHUNKED, b"1\r\nx\r\n"), LATE),
        (slowly(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), LATE),
        (slowly(b"", b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"), LATE),
        (Endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), "cannot be read"),
        (Endless(OK + b"X: ", b"x"), "cannot be read"),
        (Endless(OK, b"X: y\r\n"), "cannot be read"),
        (Endless(SIZED, b"x"), LARGE),
        (Endless(CHUNKED, b"64\r\n" + b"x" * 100 + b"\r\n"), LARGE),
    ],
)
def test_http(chunks: Iterable[bytes], message: str, serve: Serve) -> None:
    check_ends(HTTPSource(f"http://{HOST}:{serve(chunks)}/{{}}", **bounds_for(message)), message)


def zipped(body: bytes, encoding: str = "gzip", status: str = "200 OK\r\n") -> list[bytes]:
    """Return an answer with a compressed body."""
    headers = f"HTTP/1.1 {status}Content-Encoding: {encoding}\r\nContent-Length: {len(body)}"
    return [headers.encode() + b"\r\n\r\n" + body]


BOMB = gzip.compress(bytes(10**8))


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        (zipped(BOMB), LARGE),
        (zipped(gzip.compress(BOMB), "gzip, gzip"), "encoded as 'gzip, gzip', which was not"),
        (zipped(BOMB, "br"), "encoded as 'br', which was not requested"),
        (zipped(BOMB, "deflate"), "encoded as 'deflate', which was not requested"),
        (zipped(BOMB, status="500 No\r\n"), "500 No"),
        (zipped(BOMB, status="302 Found\r\nLocation: /1\r\n"), "TooManyRedirects"),
        (zipped(gzip.compress(b"told")[:-9]), "EOFError: the compressed body is not whole"),
        (zipped(b"told"), "error"),
    ],
)
def test_compressed_answers(chunks: list[bytes], message: str, serve: Serve) -> None:
    source = HTTPSource(
        f"http://{HOST}:{serve(chunks)}/{{}}", follow_redirects=True, max_redirects=3, **SMALL
    )
    tracemalloc.start()
    try:
        check_ends(source, message)
        assert tracemalloc.get_traced_memory()[1] < 10**7
    finally:
        tracemalloc.stop()


def test_compressed_answers_within_bounds(serve: Serve) -> None:
    seen: list[Any] = []
    port = serve(zipped(gzip.compress(b"told")))
    options: Any = {"event_hooks": {"response": [seen.append]}, **SMALL}
    assert HTTPSource(f"http://{HOST}:{port}/{{}}", **options).get(1) == b"told"
    assert len(seen) == 1
    assert HTTPSource(f"http://{HOST}:{serve(zipped(b''))}/{{}}").get(1) == b""


@pytest.mark.parametrize("python", [False, True])
@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([], LATE),
        (slowly(b"+", b"x"), LATE),
        (slowly(b"*1\r\n$1000000\r\n", b"x"), LATE),
        (slowly(b"*1000000\r\n", b"$1\r\nx\r\n"), LATE),
        (Endless(b"+", b"x"), LARGE),
        (Endless(b"*1\r\n$100000000\r\n", b"x"), LARGE),
        (Endless(b"*100000000\r\n", b"$1\r\nx\r\n"), LARGE),
        (Endless(b"", b"*1\r\n"), "cannot be read"),
        ([b"*0\r\n"], "sent 0 values for 1 keys"),
        ([b"*2\r\n$1\r\na\r\n$1\r\nb\r\n"], "sent 2 values for 1 keys"),
        ([b"+OK\r\n"], "sent bytes for 1 keys"),
    ],
)
def test_redis(chunks: Iterable[bytes], message: str, python: bool, serve: Serve) -> None:
    from redis._parsers import _RESP2Parser

    options: dict[str, Any] = {"parser_class": _RESP2Parser, "protocol": 2} if python else {}
    options |= bounds_for(message)
    check_ends(RedisSource(f"redis://{HOST}:{serve(chunks)}", **options), message)


@pytest.mark.parametrize("kind", [HTTPSource, RedisSource])
def test_servers_that_do_not_accept(kind: Any) -> None:
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server((HOST, 0), backlog=0))
        for _ in range(4):  # of which the system refuses none and answers the first ones
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        scheme = "http" if kind is HTTPSource else "redis"
        options: Any = {"timeout": 1000} if kind is HTTPSource else {"socket_connect_timeout": 1000}
        url = f"{scheme}://{HOST}:{listening.getsockname()[1]}"
        url += "/{}" if kind is HTTPSource else ""
        check_ends(kind(url, **SHORT, **options), LATE)


def test_time_limits_of_reads_are_kept() -> None:
    here, there = socket.socketpair()
    with here, there:
        here.settimeout(100.0)
        there.sendall(b"told")
        context = contextvars.copy_context()
        context.run(BOUNDS.set, Bounds(50, 10))
        assert context.run(BoundedSocket(here).recv, 2) == b"to"
        assert context.run(BoundedSocket(here).recv_into, bytearray(2)) == 2
        context.run(BOUNDS.set, Bounds(0.01, 10))
        with pytest.raises(TimeoutError):
            context.run(BoundedSocket(here).recv, 2)
        assert here.gettimeout() == 100.0


def test_asynchronous_file_systems(serve: Serve) -> None:
    pytest.importorskip("aiohttp")
    port = serve(slowly(SIZED, b"x"))
    check_ends(ObjectSource(f"http://{HOST}:{port}/{{}}", **SHORT), LATE)


def test_sizes_of_objects(tmp_path: Path) -> None:
    path = tmp_path / "all.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("1", bytes(10**8))
        archive.writestr("2", b"told")
    for url in (f"zip://{{}}::file://{path}", f"file://{tmp_path}/{{}}"):
        source = ObjectSource(url, **SMALL)
        (tmp_path / "1").write_bytes(bytes(10**7))
        (tmp_path / "2").write_bytes(b"told")
        tracemalloc.start()
        try:
            check_ends(source, LARGE)
            assert tracemalloc.get_traced_memory()[1] < 10**7
        finally:
            tracemalloc.stop()
        assert source.get_many([2, (1, 0, 3), (1, -2, None)]) == [b"told", bytes(3), bytes(2)]
        with pytest.raises(RecordSourceError, match=LARGE):
            source.get_many([(1, 0, 600_000), (1, 0, 600_001)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_seconds": 0}, "max_seconds must be a number > 0, got 0"),
        ({"max_seconds": "1"}, "max_seconds must be .*, got '1'"),
        ({"max_seconds": float("nan")}, "max_seconds must be .*, got nan"),
        ({"max_nbytes": 0}, "max_nbytes must be an int >= 1, got 0"),
        ({"max_nbytes": 1.5}, "max_nbytes must be .*, got 1.5"),
    ],
)
def test_bounds_that_are_none(options: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        HTTPSource("http://host/{}", **options)


def test_defaults_are_on_the_page() -> None:
    page = (ROOT / "docs" / "prefetch.md").read_text()
    assert f"`max_seconds`, {MAX_SECONDS:g} s" in page
    assert f"`max_nbytes`, {MAX_NBYTES // 2**20} MiB" in page
