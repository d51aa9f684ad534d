"""Records of a real service."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("httpx")

from spliter import InvalidArgumentError, RecordSourceError, split
from spliter_backends.records._connections import CONNECTIONS
from spliter_backends.records.http import MAX_CONNECTIONS, HTTPSource
from spliter_experiments.ahead.proxy import delayed
from tests.records.servers import (
    HOST,
    PASSWORD,
    QUOTED,
    Service,
    free_port,
    http_process,
    http_service,
)
from tests.records.suite import Records, RecordSourceTests, check_server_that_dies, looked_up

RECORDS: Records = {number: number**2 for number in range(2, 12, 2)}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with http_service() as running:
        yield running
    CONNECTIONS.close()


class TestHTTP(RecordSourceTests):
    missing = (1, "a/b", "é")

    @pytest.fixture
    def source(self, service: Service) -> HTTPSource:
        return HTTPSource(f"{service.url}/people/{{}}", json.loads)

    @pytest.fixture
    def records(self) -> Records:
        return RECORDS

    @pytest.fixture
    def count(self, service: Service) -> Callable[[], int]:
        return service.requests.total

    @pytest.fixture
    def unreachable(self) -> tuple[HTTPSource, str]:
        port = free_port()
        source = HTTPSource(f"http://ada:{QUOTED}@{HOST}:{port}/{{}}")
        return source, f"http://***@{HOST}:{port}/{{}} cannot be read: ConnectError: "

    def test_credentials_are_sent_and_not_logged(
        self, service: Service, source: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        service.authorizations.clear()
        with caplog.at_level(logging.DEBUG):
            assert source.get(4) == 16
        sent = base64.b64encode(f"ada:{PASSWORD}".encode()).decode()
        assert service.authorizations == {f"Basic {sent}"}
        assert "/people/4" in caplog.text
        assert PASSWORD not in caplog.text and QUOTED not in caplog.text and sent not in caplog.text


def test_keys_are_quoted(service: Service) -> None:
    source = HTTPSource(f"{service.url}/people?id={{}}", json.loads)
    assert source.get_many([2, "4&id=6"]) == [4, None]
    assert "/people?id=4%26id%3D6" in service.requests


@pytest.mark.parametrize("key", ["..", "../people/4", "a/./b", ""])
def test_keys_that_are_folders(service: Service, key: str) -> None:
    before = service.requests.total()
    with pytest.raises(InvalidArgumentError, match=f"the key '{key}' names no record"):
        HTTPSource(f"{service.url}/people/{{}}").get(key)
    assert service.requests.total() == before


def test_status_that_is_an_error(service: Service) -> None:
    with pytest.raises(RecordSourceError, match="500 Internal Server Error"):
        HTTPSource(f"{service.url}/people/{{}}").get(13)


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("ftp://h/{}", {}, "must begin with http:// or https://, got 'ftp://h/{}'"),
        ("http://{}.h/", {}, "the key in the path or the query, .* got 'http://{}.h/'"),
        ("http://u:hidden@h/", {}, r"with one {} for the key, .* got 'http://\*\*\*@h/'"),
        (
            "http://u:hidden@[127.0.0.1/{}",
            {},
            r"must have a host, .* got 'http://\*\*\*@\[127.0.0.1/",
        ),
        ("http://u:hid/den@h/{}", {}, r"must have a host, .* got 'http://\*\*\*'"),
        ("http://u:hidden@h:port/{}", {}, "must have a host, .*"),
        ("http:///{}", {}, "must have a host, .* got 'http:///{}'"),
        ("http://h/people#{}", {}, r"the key in the path or the query, .* got 'http://h/people#"),
        ("http://h/{}", {"method": "POST"}, "no option 'method': records are read with GET"),
        ("http://h/{}", {"json": {}}, "no option 'json'"),
    ],
)
def test_bad_options(url: str, options: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message) as raised:
        HTTPSource(url, **options)
    assert "hidden" not in str(raised.value)


def test_requests_overlap_if_the_service_is_far_away(service: Service) -> None:
    with delayed(service.server_port, 0.01) as port:
        source = HTTPSource(f"http://{HOST}:{port}/people/{{}}", json.loads)
        part = split([list(RECORDS)] * 12, partitions_per_location=1)[0]

        def connections(prefetch: Any) -> int:
            service.addresses.clear()
            before = service.requests.total()
            part.submit(looked_up, source, prefetch).result()
            assert service.requests.total() - before == 12 * len(RECORDS)
            return len(service.addresses)

        assert connections(False) == 1
        assert 1 < connections("auto") <= MAX_CONNECTIONS


def test_service_that_dies_in_the_middle() -> None:
    with http_process() as server:
        source = HTTPSource(f"http://ada:{QUOTED}@{HOST}:{server.port}/people/{{}}", json.loads)
        shown = f"http://***@{HOST}:{server.port}/people/{{}}"
        check_server_that_dies(source, RECORDS, server.kill, server.start, shown)
