"""Records of a service: one GET for each key."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from spliter import InvalidArgumentError
from spliter_backends.records._bounds import MAX_NBYTES, MAX_SECONDS, BoundedNetwork, current_bounds
from spliter_backends.records._source import (
    Decode,
    SourceBase,
    check_no_parent,
    check_scheme,
    check_template,
    import_library,
    text_of,
)

TIMEOUT: Final = 10.0
"""Seconds to connect, and between two parts of an answer, unless options say otherwise."""

MAX_CONNECTIONS: Final = 32
"""Connections of a process at most; threads wait for one. A loop has no more requests pending."""

MISSING: Final = {404, 410}
"""Statuses of keys without a record: not found, gone."""


class HTTPSource(SourceBase):
    """Answers of a service.

    A status of 404 or 410 is a missing record, any other than 2xx an error.

    Parameters
    ----------
    url : str
        ``http://`` or ``https://``, with ``{}`` for the key in its path or its query.
    decode : callable, optional
        Makes a record of the bytes of an answer, such as ``json.loads``; by default they are it.
    max_seconds : float, default 60
        Maximum time of a request, with redirects.
    max_nbytes : int, default 256 MiB
        Maximum size of an answer; of a compressed one, before and after together.
    **options
        Arguments of ``httpx.Client``.

    Examples
    --------
    >>> HTTPSource("https://ada:told@service/people/{}", headers={"Accept": "application/json"})
    HTTPSource('https://***@service/people/{}')
    """

    def __init__(
        self,
        url: str,
        decode: Decode | None = None,
        *,
        max_seconds: float = MAX_SECONDS,
        max_nbytes: int = MAX_NBYTES,
        **options: Any,
    ) -> None:
        httpx = import_library("httpx", "http")
        check_scheme("HTTPSource", url, ["http", "https"])
        check_template(url)
        super().__init__(url, decode, 1, max_seconds, max_nbytes, options)
        try:
            parts = urlsplit(url)
            is_url = bool(httpx.URL(self._address("key")).host) and "{" in parts.path + parts.query
        except (ValueError, httpx.InvalidURL):
            is_url = False
        if not is_url or "{" in parts.netloc:
            raise InvalidArgumentError(
                "the URL must have a host, and the key in the path or the query, such as "
                f"'https://host/people/{{}}', got {self.shown_url!r}"
            )
        for name in options.keys() - inspect.signature(httpx.Client).parameters.keys():
            raise InvalidArgumentError(
                f"HTTPSource has no option {name!r}: records are read with GET, and options are "
                "those of httpx.Client"
            )

    def _connect(self) -> Any:
        import httpx

        parts = urlsplit(self._url)
        user_info = unquote(parts.username or ""), unquote(parts.password or "")
        settings = {
            "timeout": TIMEOUT,
            "auth": user_info if any(user_info) else None,
            "limits": httpx.Limits(
                max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS
            ),
        }
        client = httpx.Client(**{**settings, **self._options})
        hooks = client.event_hooks
        client.event_hooks = {**hooks, "response": [_keep_compressed, *hooks["response"]]}
        for transport in (client._transport, *client._mounts.values()):
            if isinstance(transport, httpx.HTTPTransport):
                pool: Any = transport._pool  # httpx has no option for it
                pool._network_backend = BoundedNetwork(pool._network_backend)
        return client

    def _disconnect(self, connection: Any) -> None:
        connection.close()

    def _fetch(self, connection: Any, keys: Sequence[Any]) -> list[Any]:
        return [self._get(connection, key) for key in keys]

    def _get(self, connection: Any, key: Any) -> bytes | None:
        answer = connection.get(self._address(key), headers={"Accept-Encoding": "gzip"})
        if answer.status_code in MISSING:
            return None
        content = answer.raise_for_status().content
        return _decompress(content, answer.extensions["encoding"], self.max_nbytes)

    def _address(self, key: Any) -> str:
        """Return the URL of a record, without user and password, which httpx would log."""
        parts = urlsplit(self._url)
        host = parts.netloc.rpartition("@")[2]
        return (
            parts._replace(netloc=host)
            .geturl()
            .format(quote(check_no_parent(text_of(key)), safe=""))
        )


def _keep_compressed(answer: Any) -> None:
    """Leave the body to us: httpx decompresses any amount of it."""
    answer.extensions["encoding"] = answer.headers.pop("Content-Encoding", "identity").lower()


def _decompress(content: bytes, encoding: str, max_nbytes: int) -> bytes:
    if encoding == "identity" or not content:
        return content
    if encoding not in {"gzip", "x-gzip"}:
        raise ValueError(f"the body is encoded as {encoding!r}, which was not requested")
    body = zlib.decompressobj(wbits=31)  # gzip
    found = body.decompress(content, max_nbytes + 1)
    current_bounds().count(len(found))
    if not body.eof:
        raise EOFError("the compressed body is not whole")
    return found
