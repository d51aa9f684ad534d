"""Records in a Redis server, or in any that speaks its protocol: one MGET for a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from spliter.backend import refetch_record
from spliter_backends.records._bounds import MAX_NBYTES, MAX_SECONDS, BoundedSocket, current_bounds
from spliter_backends.records._source import (
    Decode,
    SourceBase,
    check_scheme,
    check_template,
    import_library,
    text_of,
)

SETTINGS: Final = {"socket_connect_timeout": 5.0, "socket_timeout": 10.0}
"""Bounds of waiting, in seconds, unless options say otherwise."""

MAX_CONNECTIONS: Final = 32
"""Connections of a process at most; threads wait for one. A loop has no more requests pending."""


class RedisSource(SourceBase):
    """Values of a Redis server. Hashes, lists and other types count as missing, as for MGET.

    Parameters
    ----------
    url : str
        ``redis://``, ``rediss://`` or ``unix://``, as for ``redis.Redis.from_url``.
    template : str, default "{}"
        Name of a record, with ``{}`` for its key.
    decode : callable, optional
        Makes a record of the bytes of a value, such as ``json.loads``; by default they are it.
    max_batch : int, default 500
        Keys in a request: a Redis server answers no one else meanwhile.
    max_seconds : float, default 60
        Maximum time of a request, all attempts included.
    max_nbytes : int, default 256 MiB
        Maximum size of an answer.
    **options
        Further arguments of the connections.

    Examples
    --------
    >>> source = RedisSource("redis://:told@cache:6379/0", "person:{}")
    >>> source
    RedisSource('redis://***@cache:6379/0', 'person:{}')
    """

    def __init__(
        self,
        url: str,
        template: str = "{}",
        decode: Decode | None = None,
        *,
        max_batch: int = 500,
        max_seconds: float = MAX_SECONDS,
        max_nbytes: int = MAX_NBYTES,
        **options: Any,
    ) -> None:
        import_library("redis", "redis")
        check_scheme("RedisSource", url, ["redis", "rediss", "unix"])
        check_template(template)
        super().__init__(url, decode, max_batch, max_seconds, max_nbytes, options)
        self._template = template

    def put(self, key: Any, record: bytes | str | float) -> None:
        """Store the value of a key, not decoded; loops over this source yield it from now on.

        Raises
        ------
        RecordSourceError
            If the server cannot be reached or refuses.
        """
        try:
            self._call(lambda connection: connection.set(self._name(key), record))
        finally:  # also if the answer did not arrive
            refetch_record(self, key, self._name)

    def _connect(self) -> Any:
        import redis
        from redis.backoff import ExponentialBackoff
        from redis.retry import Retry

        # The second of two attempts finds a server that was restarted since the last loop.
        retry = Retry(ExponentialBackoff(cap=1, base=0.1), 2)
        settings = {"retry": retry, "max_connections": MAX_CONNECTIONS, **SETTINGS, **self._options}
        pool = redis.BlockingConnectionPool.from_url(self._url, **settings)
        pool.connection_class = type("Bounded", (_Bounded, pool.connection_class), {})
        return redis.Redis(connection_pool=pool)

    def _disconnect(self, connection: Any) -> None:
        connection.connection_pool.disconnect()

    def _fetch(self, connection: Any, keys: Sequence[Any]) -> list[Any]:
        found = connection.mget([self._name(key) for key in keys])
        if not isinstance(found, list) or len(found) != len(keys):
            values = f"{len(found)} values" if isinstance(found, list) else type(found).__name__
            raise ValueError(f"the server has sent {values} for {len(keys)} keys")
        return found

    def _name(self, key: Any) -> str:
        return self._template.format(text_of(key))

    def __repr__(self) -> str:
        """Return the URL as far as it is shown, and the template."""
        return f"RedisSource({self.shown_url!r}, {self._template!r})"


class _Bounded:
    """A connection, of any class of redis, whose socket is bounded."""

    socket_connect_timeout: float | None

    def _connect(self) -> BoundedSocket:
        timeout = self.socket_connect_timeout
        self.socket_connect_timeout = current_bounds().wait(timeout)
        try:
            return BoundedSocket(super()._connect())  # type: ignore[misc]
        finally:
            self.socket_connect_timeout = timeout
