"""No text shows what was passed to reach a source, wherever it was passed, however written."""

from __future__ import annotations

import copy
import logging
import pickle
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("fsspec")
pytest.importorskip("httpx")
pytest.importorskip("psycopg")
pytest.importorskip("redis")
pytest.importorskip("sqlalchemy")

import httpx
import yarl

from spliter import InvalidArgumentError, RecordSourceError
from spliter_backends.records._connections import CONNECTIONS
from spliter_backends.records._secrets import hider, shown
from spliter_backends.records.http import HTTPSource
from spliter_backends.records.objects import ObjectSource
from spliter_backends.records.redis import RedisSource
from spliter_backends.records.sql import SQLSource
from tests.records.servers import HOST, Service, free_port, http_service

PLAIN = "t0ld-Nobody"
ODD = "t0ld/to+no bxdy=at:äll&%41~!'"
SECRETS = [PLAIN, ODD]
STATEMENT = "SELECT a FROM b WHERE a IN :keys"


class Server(NamedTuple):
    """A service that answers key 13 with an error, and a port that nobody listens on."""

    service: Service
    closed: int

    @property
    def at(self) -> str:
        return f"{HOST}:{self.service.server_port}"

    @property
    def nowhere(self) -> str:
        return f"{HOST}:{self.closed}"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with http_service() as service:
        yield Server(service, free_port())
    CONNECTIONS.close()


def raw(secret: str) -> str:
    """Return it as in a URL that only quotes what would end its part."""
    return quote(secret, safe="+=!'~")


Make = Callable[[Server, str], Any]
HTTP: dict[str, Make] = {
    "user": lambda at, s: HTTPSource(f"http://{quote(s, '')}@{at.at}/{{}}"),
    "user and password": lambda at, s: HTTPSource(f"http://{quote(s, '')}:x-basic@{at.at}/{{}}"),
    "password": lambda at, s: HTTPSource(f"http://ada:{raw(s)}@{at.at}/{{}}"),
    "password, nobody there": lambda at, s: HTTPSource(f"http://ada:{raw(s)}@{at.nowhere}/{{}}"),
    "token=": lambda at, s: HTTPSource(f"http://{at.at}/p?token={quote(s, '')}&id={{}}"),
    "?id={}&x=": lambda at, s: HTTPSource(f"http://{at.at}/p?id={{}}&x={quote_plus(s)}"),
    "key=, as it is": lambda at, s: HTTPSource(f"http://{at.at}/p?id={{}}&x={raw(s)}"),
    "?": lambda at, s: HTTPSource(f"http://{at.at}/{{}}?{quote(s, '')}"),
    "#access_token=": lambda at, s: HTTPSource(f"http://{at.at}/{{}}#access_token={raw(s)}"),
    ";token=": lambda at, s: HTTPSource(f"http://{at.at}/p;token={raw(s)}/{{}}"),
    "beside the key": lambda at, s: HTTPSource(f"http://{at.at}/p?x={quote_plus(s)}{{}}&id=13"),
    "braces": lambda at, s: HTTPSource(f"http://{at.at}/{{}}?x={{{{{raw(s)}}}}}"),
    "params": lambda at, s: HTTPSource(f"http://{at.at}/{{}}", params={"anything": s}),
    "params, pairs": lambda at, s: HTTPSource(f"http://{at.at}/{{}}", params=[("token", s)]),
    "params, text": lambda at, s: HTTPSource(f"http://{at.at}/{{}}", params=f"a={quote(s)}"),
    "params, httpx": lambda at, s: HTTPSource(
        f"http://{at.at}/{{}}", params=httpx.QueryParams({"a": s})
    ),
    "headers": lambda at, s: HTTPSource(
        f"http://{at.at}/{{}}", headers={"X-Any": f"Bearer {quote(s)}"}
    ),
    "headers, pairs": lambda at, s: HTTPSource(
        f"http://{at.at}/{{}}", headers=[(b"X-Any", quote(s).encode())]
    ),
    "cookies": lambda at, s: HTTPSource(f"http://{at.at}/{{}}", cookies={"session": quote(s)}),
    "auth": lambda at, s: HTTPSource(f"http://{at.at}/{{}}", auth=("ada", s)),
    "auth, httpx": lambda at, s: HTTPSource(f"http://{at.at}/{{}}", auth=httpx.DigestAuth("a", s)),
    "proxy": lambda at, s: HTTPSource(
        "http://service/{}", proxy=f"http://ada:{quote(s, '')}@{at.nowhere}"
    ),
}
REDIS: dict[str, Make] = {
    "user": lambda at, s: RedisSource(f"redis://{quote(s, '')}@{at.nowhere}"),
    "password": lambda at, s: RedisSource(f"redis://:{quote(s, '')}@{at.nowhere}"),
    "not a server": lambda at, s: RedisSource(f"redis://ada:{quote(s, '')}@{at.at}"),
    "?password=": lambda at, s: RedisSource(f"redis://{at.nowhere}/0?password={quote(s, '')}"),
    "?unknown=": lambda at, s: RedisSource(f"redis://{at.nowhere}/0?unknown={quote(s, '')}"),
    "unix": lambda at, s: RedisSource(f"unix://ada:{quote(s, '')}@/no/such?db={quote(s, '')}"),
    "option": lambda at, s: RedisSource(f"redis://{at.nowhere}", password=s),
    "wrong option": lambda at, s: RedisSource(f"redis://{at.nowhere}", protocol=s),
}
SQL: dict[str, Make] = {
    "password": lambda at, s: SQLSource(
        f"postgresql+psycopg://ada:{quote(s, '')}@{at.nowhere}/db", STATEMENT
    ),
    "user": lambda at, s: SQLSource(
        f"postgresql+psycopg://{quote(s, '')}@{at.nowhere}/db", STATEMENT
    ),
    "?sslkey=": lambda at, s: SQLSource(
        f"postgresql+psycopg://{at.nowhere}/db?sslmode={quote_plus(s)}", STATEMENT
    ),
    "odbc_connect": lambda at, s: SQLSource(
        f"mssql+pyodbc:///?odbc_connect={quote_plus(f'DRIVER={{x}};UID=sa;PWD={s}')}", STATEMENT
    ),
    "connect_args": lambda at, s: SQLSource(
        f"postgresql+psycopg://{at.nowhere}/db", STATEMENT, connect_args={"sslmode": s}
    ),
    "dialect": lambda at, s: SQLSource(f"nosuch://ada:{quote(s, '')}@h/db", STATEMENT),
    "sqlite": lambda at, s: SQLSource(
        f"sqlite:///file:/no/such?uri=true&mode=ro&vfs={quote_plus(s)}", STATEMENT
    ),
}
OBJECTS: dict[str, Make] = {
    "user": lambda at, s: ObjectSource(f"http://{quote(s, '')}@{at.at}/{{}}"),
    "password": lambda at, s: ObjectSource(f"http://ada:{raw(s)}@{at.at}/{{}}"),
    "nobody there": lambda at, s: ObjectSource(f"http://ada:{quote(s, '')}@{at.nowhere}/{{}}"),
    "?token=": lambda at, s: ObjectSource(f"http://{at.at}/{{}}?token={quote(s, '')}"),
    "?sig=, as it is": lambda at, s: ObjectSource(f"http://{at.at}/{{}}?sig={raw(s)}"),
    "#": lambda at, s: ObjectSource(f"http://{at.at}/{{}}#{raw(s)}"),
    "second URL": lambda at, s: ObjectSource(f"zip://{{}}::http://ada:{raw(s)}@{at.at}/13"),
    "second URL, not quoted": lambda at, s: ObjectSource(f"zip://{{}}::http://ada:{s}@{at.at}/13"),
    "?token= of the second URL": lambda at, s: ObjectSource(
        f"zip://{{}}::http://{at.at}/13?token={quote_plus(s)}"
    ),
    "options of the second URL": lambda at, s: ObjectSource(
        f"zip://{{}}::http://{at.at}/13", http={"headers": {"Authorization": quote(s)}}
    ),
    "no file system": lambda at, s: ObjectSource(f"nosuch://ada:{quote(s, '')}@host/{{}}"),
    "wrong option": lambda at, s: ObjectSource(f"http://{at.at}/{{}}", loop=s, nosuch=[("a", s)]),
}
CASES = [
    pytest.param(make, secret, id=f"{kind}-{name}-{secret[:6]}")
    for kind, makers in {"http": HTTP, "redis": REDIS, "sql": SQL, "objects": OBJECTS}.items()
    for name, make in makers.items()
    for secret in SECRETS
]


def ways_to_write(secret: str) -> Iterator[str]:
    """Yield forms that libraries give to a value."""
    for one in (secret, raw(secret), quote(secret, "")):
        yield from (one, quote(one), quote(one, ""), quote_plus(one), repr(one)[1:-1])
        yield from (ascii(one)[1:-1], repr(one.encode())[2:-1], quote(one, "").lower())
        yield from (
            yarl.URL.build(path=f"/{one}").raw_path[1:],
            yarl.URL(f"/?{one}").raw_query_string,
        )
        yield str(httpx.QueryParams({"a": one}))[2:]


def check_nothing_is_shown(secret: str, text: str) -> None:
    for form in ways_to_write(secret):
        assert form not in text, text
    for part in ("t0ld", "bxdy", "Nobody"):
        assert part not in text, text


@pytest.mark.parametrize(("make", "secret"), CASES)
def test_nothing_is_shown(
    make: Make, secret: str, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        try:
            source = make(server, secret)
        except InvalidArgumentError as error:  # what is no URL
            check_nothing_is_shown(secret, "".join(traceback.format_exception(error)[1:]))
            return
        check_nothing_is_shown(secret, repr(source) + str(source) + source.shown_url)
        for one in (source, pickle.loads(pickle.dumps(source))) if is_plain(source) else (source,):
            with pytest.raises(RecordSourceError) as raised:
                one.get(13)
            failed: Any = raised.value
            assert (failed.__cause__, failed.__context__) == (None, None)
            check_nothing_is_shown(secret, f"{failed}{failed!r}{failed.args}{copy.copy(failed)}")
        logging.getLogger(__name__).debug("%s", "this is captured")
    check_nothing_is_shown(secret, caplog.text)
    assert "this is captured" in caplog.text


def is_plain(source: Any) -> bool:
    """Return whether a source can be pickled: locks of options cannot."""
    try:
        pickle.dumps(source)
    except TypeError:
        return False
    return True


def test_the_service_gets_what_is_hidden(server: Server) -> None:
    server.service.requests.clear()
    source = HTTP["?id={}&x="](server, ODD)
    with pytest.raises(
        RecordSourceError, match=r"/p\?\*\*\* cannot be read: .*500 Internal Server"
    ):
        source.get(13)
    assert [*server.service.requests] == [f"/p?id=13&x={quote_plus(ODD)}"]


def test_only_calls_of_the_source_are_changed_in_logs(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"http://{server.at}/p?id=4&token={PLAIN}"
    with caplog.at_level(logging.INFO), httpx.Client() as client:
        assert HTTPSource(url.replace("id=4", "id={}"), int).get(4) == 16
        assert f'GET http://{server.at}/p?id=4*** "HTTP/1.1 200 OK"' in caplog.text
        assert PLAIN not in caplog.text
        client.get(url)
    assert PLAIN in caplog.text


def test_errors_in_logs(caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: Any) -> None:
        try:
            raise OSError(f"http://{PLAIN}@host")
        except OSError:
            logging.getLogger(__name__).exception("no %s", PLAIN)
            logging.getLogger(__name__).error("no %d", PLAIN)

    source = RedisSource(f"redis://{PLAIN}@host")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging, "raiseExceptions", False)  # of %d
        source._call(fail)
    assert PLAIN not in caplog.text
    assert "no ***" in caplog.text and "OSError: http://***@host" in caplog.text


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://host:80/a/{}", "https://host:80/a/{}"),
        ("https://u@[::1]:80/a/{}", "https://***@[::1]:80/a/{}"),
        ("redis://:a::b@host/0", "redis://***@host/0"),
        (
            "zip://{}::simplecache::s3://u:p@b/x.zip?a#b",
            "zip://{}::simplecache::s3://***@b/x.zip?***",
        ),
        ("http://a/b@c", "http://***"),
        ("http://a?b@c", "http://***"),
        ("a:b@c/x://d", "***@c/x://d"),
        ("told#@host", "***"),
        ("", ""),
    ],
)
def test_what_is_shown_of_a_url(url: str, expected: str) -> None:
    assert shown(url) == expected


@pytest.mark.parametrize(
    ("options", "text", "expected"),
    [
        ({"a": [("b", {"c": (b"told", {"you"})})]}, "b told you", "*** *** ***"),
        (
            {"retries": 3, "http2": True, "x": None, "pin": 1234},
            "3 True None 1234",
            "3 True None ***",
        ),
        ({"key": "AccountName=ada;AccountKey=to/ld=="}, "'to/ld==' of ada", "'***' of ***"),
        ({"url": "http://u:to%2Fld@h"}, "u to/ld to%252fld", "*** *** ***"),
        ({}, "told", "told"),
    ],
)
def test_values_of_options(options: Any, text: str, expected: str) -> None:
    assert hider("https://host/{}", options)(text) == expected


def test_short_values_stand_alone() -> None:
    assert hider("http://a@h/{}?id=1", {})("a 1 at 11 (a)") == "*** *** at 11 (***)"
