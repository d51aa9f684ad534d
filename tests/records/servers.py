"""Real servers for the tests of records, on free ports of this host; nothing is left of them."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, cast

import pytest

from spliter_backends._shared.redis_store import STORE_HINT, find_store
from tests.conftest import ROOT, SOURCE_ROOTS

HOST: Final = "127.0.0.1"
PASSWORD: Final = "h1dden/p@ss"
QUOTED: Final = "h1dden%2Fp%40ss"


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as one:
        one.bind((HOST, 0))
        port: int = one.getsockname()[1]
        return port


def start_process(command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    """Start a process of this checkout, without output unless options say otherwise."""
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS))}
    given = {"cwd": ROOT, "env": path, "text": True, **silent, **options}
    return subprocess.Popen(command, **given)


def wait_until_answering(port: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 30
    while True:
        with suppress(OSError), socket.create_connection((HOST, port), 1):
            return
        assert process.poll() is None, f"the server has ended with {process.returncode}"
        assert time.monotonic() < deadline, "the server does not answer"
        time.sleep(0.02)


class Server:
    """A server that can be killed and started again on its port."""

    kill_signal = signal.SIGKILL

    def __init__(self, command: Sequence[str], port: int, **options: Any) -> None:
        self.port = port
        self._command = command
        self._options = options
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = start_process(self._command, **self._options)
        wait_until_answering(self.port, self._process)

    def pause(self) -> None:
        """Let it keep its connections, and answer nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once, if it runs."""
        self._process.send_signal(self.kill_signal)
        self._process.wait()


class RedisServer(Server):
    def __init__(self, port: int) -> None:
        store = find_store()
        if store is None or not store.is_redis:
            pytest.skip(f"needs a Redis server; {STORE_HINT}")
        super().__init__([*store.on_port(port), "--requirepass", PASSWORD], port)
        self.url = f"redis://:{QUOTED}@{HOST}:{port}/0"

    def count(self, command: str) -> int:
        """Return how many commands of a kind it has run."""
        with self._observer() as client:
            statistics = cast("dict[str, Any]", client.info("commandstats"))
        return int(statistics.get(f"cmdstat_{command}", {"calls": 0})["calls"])

    def connections(self) -> int:
        """Return how many clients are connected, besides those that observe it."""
        with self._observer() as client:
            clients = cast("list[dict[str, Any]]", client.client_list())
        return sum(one["name"] != "observer" for one in clients)

    def _observer(self) -> Any:
        import redis

        return redis.Redis.from_url(self.url, client_name="observer")


@contextmanager
def redis_server() -> Iterator[RedisServer]:
    pytest.importorskip("redis")
    server = RedisServer(free_port())
    try:
        yield server
    finally:
        server.kill()


class PostgresServer(Server):
    """A PostgreSQL server with a password, whose log has every statement."""

    kill_signal = signal.SIGQUIT  # also ends the processes of its connections

    def __init__(self, folder: Path, port: int) -> None:
        binaries = max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)
        if binaries is None:
            pytest.skip("needs a PostgreSQL server; install the Debian package postgresql")
        account: Any = {"user": _account(), "cwd": folder} if os.getuid() == 0 else {}
        if account:
            shutil.chown(folder, _account())
        words = folder / "password"
        words.write_text(PASSWORD)
        words.chmod(0o644)
        data = folder / "data"
        made = [str(binaries / "initdb"), "-D", str(data), "-U", "ada", "--pwfile", str(words)]
        made += ["-A", "scram-sha-256", "--no-sync", "-E", "UTF8", "--locale", "C"]
        assert start_process(made, **account).wait() == 0
        settings = {"port": port, "listen_addresses": HOST, "unix_socket_directories": ""}
        settings |= {"fsync": "off", "log_statement": "all"}
        command = [str(binaries / "postgres"), "-D", str(data)]
        command += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self.url = f"postgresql+psycopg://ada:{QUOTED}@{HOST}:{port}/postgres"
        self._log = folder / "log"
        shell = ["sh", "-c", f'exec "$@" 2>> {self._log}', "sh"]
        super().__init__([*shell, *command], port, **account)

    def start(self) -> None:
        """Start it, and wait until it has recovered from its last end."""
        import psycopg

        super().start()
        deadline = time.monotonic() + 30
        while True:
            with suppress(psycopg.OperationalError):
                psycopg.connect(self.url.replace("+psycopg", "")).close()
                return
            assert time.monotonic() < deadline, "the server does not get ready"
            time.sleep(0.02)

    def count(self, text: str) -> int:
        """Return how many statements with a text it has run."""
        return self._log.read_text().count(text)


def _account() -> str:
    """Return a user who may run PostgreSQL, which refuses root."""
    names = {one.pw_name for one in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as folder:
        server = PostgresServer(Path(folder), free_port())
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def s3_server() -> Iterator[str]:
    for module in ("moto", "flask", "s3fs"):
        pytest.importorskip(module)
    port = free_port()
    server = Server([sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)], port)
    try:
        yield f"http://{HOST}:{port}"
    finally:
        server.kill()


class Service(ThreadingHTTPServer):
    """A service of numbers: /people/7 and /people?id=7 answer with their squares, if even."""

    daemon_threads = True
    request_queue_size = 100

    def __init__(self, port: int = 0) -> None:
        super().__init__((HOST, port), _Handler)
        self.requests: Counter[str] = Counter()
        self.addresses: set[Any] = set()
        self.authorizations: set[str | None] = set()
        self.url = f"http://ada:{QUOTED}@{HOST}:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Be silent about clients that have gone."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        service = cast("Service", self.server)
        service.requests[self.path] += 1
        service.addresses.add(self.client_address)
        service.authorizations.add(self.headers["Authorization"])
        found = re.search(r"(?:id=|/)(\d+)(?=$|[?&])", self.path)
        number = int(found[1]) if found else None
        status = 500 if number == 13 else 200 if number is not None and number % 2 == 0 else 404
        body = json.dumps(number and number**2).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Be silent."""


@contextmanager
def http_service() -> Iterator[Service]:
    with Service() as service:
        thread = threading.Thread(target=service.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield service
        finally:
            service.shutdown()
            thread.join()


@contextmanager
def http_process() -> Iterator[Server]:
    port = free_port()
    server = Server([sys.executable, "-m", "tests.records.servers", str(port)], port)
    try:
        yield server
    finally:
        server.kill()


if __name__ == "__main__":
    with Service(int(sys.argv[1])) as running:
        running.serve_forever()
