"""Real servers with the records of a program, behind a latency, and clients of each.

A Redis server and the service are started; a URL names a server of the user's own.
"""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from spliter.backend import RecordSource
from spliter_backends._shared.redis_store import STORE_HINT, find_store
from spliter_experiments.ahead.programs import Fetch, Record, Records
from spliter_experiments.ahead.proxy import HOST, delayed, started_module
from spliter_experiments.harness.errors import OptionError

TABLE: Final = "spliter_compare_ahead"
"""Of a database; names of records in a Redis server begin with it."""

STATEMENT: Final = "SELECT key, record FROM spliter_compare_ahead WHERE key IN :keys"

CONNECTIONS: Final = 32
"""Connections of an asynchronous client, as many as a source has."""


Close: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

Clients: TypeAlias = tuple[RecordSource, Fetch, Close]
"""A source, an asynchronous client, and what closes that."""


class CountedSource:
    """A source whose requests are counted."""

    def __init__(self, source: RecordSource, max_batch: int) -> None:
        self._source = source
        self.max_batch: int = min(max_batch, source.max_batch)
        self.nrequests: int = 0
        self._lock = threading.Lock()

    def count(self) -> None:
        """Count a request."""
        with self._lock:
            self.nrequests += 1

    def get(self, key: Any) -> Any:
        self.count()
        return self._source.get(key)

    def get_many(self, keys: Sequence[Any]) -> Sequence[Any]:
        self.count()
        return self._source.get_many(keys)


@dataclass(frozen=True)
class Store:
    """A server with records: a source, and a request of an asynchronous client of it.

    The client is made in the event loop in which it is used.
    """

    source: CountedSource
    fetch: Fetch
    close: Close
    """Closes the clients."""


@contextmanager
def opened(server: str, records: Records, max_batch: int, seconds: float) -> Iterator[Store]:
    """Fill a server, and delay what is sent to it.

    Parameters
    ----------
    server : str
        ``redis`` or ``http``, or the URL of a Redis server or of a database.
    records : dict
        JSON objects by key.
    max_batch : int
        Keys in a request.
    seconds : float
        Delay of each request.
    """
    with ExitStack() as stack:
        if server == "http":
            file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "records.json"
            file.write_text(json.dumps(records), encoding="utf-8")
            port = stack.enter_context(started_module("spliter_experiments.ahead.service", file))
            port = stack.enter_context(delayed(port, seconds))
            source, fetch, close = _http(f"http://{HOST}:{port}/records")
        else:
            url = stack.enter_context(_redis_server()) if server == "redis" else server
            parts = urlsplit(url)
            if not parts.hostname or not parts.port:
                raise OptionError(
                    "--server must be redis, http, or a URL with a host and a port, got "
                    f"{server.rpartition('@')[2]!r}"
                )
            port = stack.enter_context(delayed(parts.port, seconds, parts.hostname))
            user = parts.netloc.rpartition("@")[0]
            away = parts._replace(netloc=f"{user}@{HOST}:{port}" if user else f"{HOST}:{port}")
            if parts.scheme in ("redis", "rediss"):
                stack.enter_context(_in_redis(url, records))
                source, fetch, close = _redis(away.geturl())
            else:
                stack.enter_context(_in_table(url, records))
                source, fetch, close = _database(away.geturl())
        counted = CountedSource(source, max_batch)

        async def counting(keys: Sequence[str]) -> list[Record]:
            counted.count()
            return await fetch(keys)

        yield Store(counted, counting, close)


@contextmanager
def _redis_server() -> Iterator[str]:
    store = find_store()
    if store is None:
        raise OptionError(f"--server redis: {STORE_HINT}")
    with socket.socket() as one:
        one.bind((HOST, 0))
        port = one.getsockname()[1]
    with subprocess.Popen(store.on_port(port), stdout=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 30
            while process.poll() is None and time.monotonic() < deadline:
                with suppress(OSError), socket.create_connection((HOST, port), 1):
                    break
                time.sleep(0.02)
            yield f"redis://{HOST}:{port}"
        finally:
            process.kill()


@contextmanager
def _in_redis(url: str, records: Records) -> Iterator[None]:
    import redis

    named = {f"{TABLE}:{key}": json.dumps(record) for key, record in records.items()}
    with redis.Redis.from_url(url) as client:
        client.mset(named)
        try:
            yield
        finally:
            client.delete(*named)


def _redis(url: str) -> Clients:
    from redis.asyncio import BlockingConnectionPool, Redis

    from spliter_backends.records.redis import RedisSource

    pool = BlockingConnectionPool.from_url(url, max_connections=CONNECTIONS)
    client = Redis(connection_pool=pool)

    async def fetch(keys: Sequence[str]) -> list[Record]:
        found: Any = await client.mget([f"{TABLE}:{key}" for key in keys])
        return [json.loads(value) for value in found]

    async def close() -> None:
        await client.aclose()
        await pool.disconnect()

    return RedisSource(url, f"{TABLE}:{{}}", json.loads), fetch, close


@contextmanager
def _in_table(url: str, records: Records) -> Iterator[None]:
    import sqlalchemy as sql

    table = sql.Table(
        TABLE,
        sql.MetaData(),
        sql.Column("key", sql.Text, primary_key=True),
        sql.Column("record", sql.Text),
    )
    engine = sql.create_engine(url)
    with engine.begin() as connection:
        table.create(connection)
        rows = [{"key": key, "record": json.dumps(one)} for key, one in records.items()]
        connection.execute(table.insert(), rows)
    try:
        yield
    finally:
        table.drop(engine)
        engine.dispose()


def _database(url: str) -> Clients:
    import sqlalchemy as sql
    from sqlalchemy.ext.asyncio import create_async_engine

    from spliter_backends.records.sql import SQLSource

    engine = create_async_engine(url, pool_size=CONNECTIONS, isolation_level="AUTOCOMMIT")
    query = sql.text(STATEMENT).bindparams(sql.bindparam("keys", expanding=True))

    async def fetch(keys: Sequence[str]) -> list[Record]:
        async with engine.connect() as connection:
            rows = await connection.execute(query, {"keys": [*keys]})
        found = {key: json.loads(record) for key, record in rows}
        return [found[key] for key in keys]

    source = SQLSource(url, STATEMENT, decode=lambda row: json.loads(row["record"]))
    return source, fetch, engine.dispose


class ServiceSource:
    """A source of a service that takes many keys at once, as a program writes it."""

    max_batch = 500

    def __init__(self, url: str) -> None:
        import httpx

        self._url = url
        self.client: Any = httpx.Client(limits=httpx.Limits(max_connections=CONNECTIONS))

    def get(self, key: Any) -> Any:
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[Any]) -> Any:
        return self.client.post(self._url, json=[*keys]).raise_for_status().json()


def _http(url: str) -> Clients:
    import httpx

    client = httpx.AsyncClient(limits=httpx.Limits(max_connections=CONNECTIONS), timeout=60)

    async def fetch(keys: Sequence[str]) -> list[Record]:
        answer = await client.post(url, json=[*keys])
        found: list[Record] = answer.raise_for_status().json()
        return found

    async def close() -> None:
        source.client.close()
        await client.aclose()

    source = ServiceSource(url)
    return source, fetch, close
