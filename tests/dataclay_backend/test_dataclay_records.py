"""Records in dataClay, looked up by ids from clients and from backends."""

from __future__ import annotations

import math
import time
import uuid
from collections import Counter
from typing import Any

import numpy as np
import pytest

pytest.importorskip("dataclay")

from spliter import BackendNotUsableError, InvalidArgumentError, RecordSourceError, gather, split
from spliter_backends.dataclay import distribute
from spliter_backends.dataclay.client.backend_calls import Peer
from spliter_backends.dataclay.cluster import EmbeddedDataClay
from spliter_backends.records.dataclay import DataClaySource
from spliter_backends.records.redis import RedisSource
from tests.conftest import RunPython
from tests.dataclay_backend import programs
from tests.dataclay_backend.classes import Readings
from tests.records.servers import redis_server
from tests.records.suite import looked_up

pytestmark = pytest.mark.backend("dataclay")


@pytest.fixture
def ids(cluster: EmbeddedDataClay) -> list[uuid.UUID]:
    return make_objects(cluster, 9)


def make_objects(cluster: EmbeddedDataClay, count: int) -> list[uuid.UUID]:
    made = [Readings(np.full(3, number)) for number in range(count)]
    backends = sorted(cluster.client().get_backends())
    for number, one in enumerate(made):
        one.make_persistent(backend_id=backends[number % len(backends)])
    return [one._dc_meta.id for one in made]


CHOSEN = [[0, 1, 2, 1, 0], [5, 6, 7, 8, 3], [], [4], [8, 8, 8], [4, 0]]


def test_from_backends_at_once(cluster: EmbeddedDataClay, ids: list[uuid.UUID]) -> None:
    blocks = [[ids[number] for number in block] for block in CHOSEN]
    with split(distribute(blocks), partitions_per_location=2) as parts:
        assert len(parts.locations) == 3
        results = gather(parts.map(programs.looked_up, DataClaySource(max_batch=2)))
        order = [index for part in parts for (index,) in part.get_indexes()]
    records = dict(zip(order, (block for found, _ in results for block in found), strict=True))
    for number, block in enumerate(CHOSEN):
        assert [record["values"].tolist() for record in records[number]] == [[n] * 3 for n in block]
    requests = [size for _, sizes in results for size in sizes]
    assert len(requests) == sum(math.ceil(len(set(block)) / 2) for block in CHOSEN)


def test_more_tasks_than_threads_need_records_of_each_other(
    cluster: EmbeddedDataClay, ids: list[uuid.UUID]
) -> None:
    with split(distribute([ids] * 36), partitions_per_location=12) as parts:
        assert len(parts) == 36
        results = gather(parts.map(programs.looked_up, DataClaySource()))
    assert [len(records) for found, _ in results for records in found] == [9] * 36


def test_from_the_client_with_one_call_for_each_backend(
    cluster: EmbeddedDataClay, ids: list[uuid.UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()
    call = Peer.call_handler

    async def counted(self: Peer, method: str, *arguments: Any) -> Any:
        calls[method] += 1
        return await call(self, method, *arguments)

    source = DataClaySource()
    source.get_many(ids)  # makes the handlers
    monkeypatch.setattr(Peer, "call_handler", counted)
    keys = [*map(str, ids), uuid.uuid4()]
    (part,) = split([keys], partitions_per_location=1, backend="local")
    looked_up = part.submit(lambda part: list(part.lookup(source, lambda block: block)))
    ((_, records),) = looked_up.result()
    assert [record and record["values"][0] for record in records] == [*range(9), None]
    assert calls["records"] == 3


def test_keys_that_are_no_ids(cluster: EmbeddedDataClay) -> None:
    with pytest.raises(InvalidArgumentError, match="must be ids of objects, got 'ada'"):
        DataClaySource().get("ada")


def test_process_without_dataclay(run_python: RunPython) -> None:
    program = (
        "from spliter_backends.records.dataclay import DataClaySource\n"
        "try: DataClaySource().get('00000000-0000-0000-0000-000000000001')\n"
        "except Exception as error: print(type(error).__name__)"
    )
    assert run_python("-c", program).stdout.strip().endswith(BackendNotUsableError.__name__)


def test_objects_that_moved(cluster: EmbeddedDataClay, ids: list[uuid.UUID]) -> None:
    backends = sorted(cluster.client().get_backends())
    Readings.get_by_id(ids[0]).move(backends[2])
    assert DataClaySource().get(ids[0])["values"].tolist() == [0, 0, 0]


def test_backend_that_is_killed(cluster: EmbeddedDataClay, ids: list[uuid.UUID]) -> None:
    backends = sorted(cluster.client().get_backends())
    source = DataClaySource()
    part = split([[one] for one in ids] * 10, partitions_per_location=1, backend="local")[0]

    def kill_after_ten(here: Any) -> None:
        for number, _ in enumerate(here.lookup(source, lambda block: block, 2)):
            if number == 10:
                cluster.kill(cluster.backend_ids.index(backends[0]))
                cluster.add()

    begun = time.monotonic()
    with pytest.raises(RecordSourceError, match=f"{backends[0]} is lost"):
        part.submit(kill_after_ten).result()
    with pytest.raises(RecordSourceError, match=f"cannot read 9 records: .*{backends[0]} is lost"):
        source.get_many(ids)
    assert time.monotonic() - begun < 60
    rest = split([ids[1:3]] * 10, partitions_per_location=1, backend="local")[0]
    found = rest.submit(looked_up, source, 2).result()
    assert [[one["values"][0] for one in records] for _, records in found] == [[1, 2]] * 10


def test_other_sources_from_backends_at_once(cluster: EmbeddedDataClay) -> None:
    with redis_server() as server:
        source = RedisSource(server.url, "person:{}", int, max_batch=2)
        for number in range(9):
            source.put(number, number**2)
        with split(distribute(CHOSEN), partitions_per_location=2) as parts:
            found = gather(parts.map(looked_up, source))
        records = {tuple(block): squares for part in found for block, squares in part}
        assert records == {tuple(block): [n**2 for n in block] for block in CHOSEN}
        assert server.count("mget") == sum(math.ceil(len(set(block)) / 2) for block in CHOSEN)
