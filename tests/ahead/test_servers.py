"""Regions over a real Redis server: requests are counted there, and it dies and hangs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("greenlet")
pytest.importorskip("redis")

from spliter import RecordSourceError, ahead
from spliter_backends.records.redis import RedisSource
from tests.ahead.sources import Memory
from tests.records.servers import RedisServer, redis_server

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(120)]

PEOPLE = {number: {"reports": [2 * number, 2 * number + 1]} for number in range(1, 64)}


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with redis_server() as running:
        source = source_of(running)
        for key, record in PEOPLE.items():
            source.put(key, json.dumps(record))
        yield running


def source_of(server: RedisServer, **options: Any) -> RedisSource:
    return RedisSource(server.url, "person:{}", json.loads, **options)


def count(people: Any, number: int) -> int:
    """Count the persons below one, who has none after the sixth level."""
    person = people.get(number)
    below: list[int] = person["reports"] if person else []
    counts: list[int] = people.map(lambda one: count(people, one), below)
    return sum(counts, 1 if person else 0)


def test_a_tree_takes_a_request_for_each_batch_of_a_level(server: RedisServer) -> None:
    before = server.count("mget")
    with ahead(source_of(server, max_batch=10)) as people:
        assert people.map(lambda one: count(people, one), [1]) == [63]
    batches = sum(-(-(2**level) // 10) for level in range(7))
    assert server.count("mget") - before == people.report().batches <= batches
    assert people.report().keys == 127


@pytest.mark.parametrize("fault", ["dies", "hangs"])
def test_a_lost_server_is_an_error_at_the_read(server: RedisServer, fault: str) -> None:
    read: list[int] = []

    def follow(number: int) -> None:
        people.get(number)
        read.append(number)
        if len(read) == 8:
            server.kill() if fault == "dies" else server.pause()
        people.get(2 * number)

    begun = time.monotonic()
    with ahead(source_of(server, max_seconds=3)) as people, ahead(Memory({1: "one"})) as others:
        with pytest.raises(RecordSourceError, match="cannot be read"):
            people.map(follow, range(32, 40))
        assert others[1] == "one"
        assert people[32] == PEOPLE[32]  # read before
    assert time.monotonic() - begun < 60


def test_what_is_put_is_read_under_each_form_of_its_key(server: RedisServer) -> None:
    with ahead(source_of(server)) as people:
        people.map(people.get, [1, "2"])
        people.put("1", json.dumps("new"))
        assert people[1] == "new"
        assert people["1"] == json.dumps("new")  # what was put, as it was
