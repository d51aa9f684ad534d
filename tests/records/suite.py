"""What holds for every source of records, tried on a real server."""

from __future__ import annotations

import asyncio
import logging
import math
import pickle
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from spliter import InvalidArgumentError, RecordSourceError, gather, split
from spliter_backends.records._connections import CONNECTIONS
from tests.records.servers import PASSWORD, QUOTED

Records = dict[Hashable, Any]


class RecordSourceTests:
    """Subclasses have four fixtures.

    ``source`` has batches of at most 3 keys, or of 1; ``records`` are its records by key; ``count``
    is a function that returns how many requests the server has had; ``unreachable`` is a source
    with a password whose server is not there, and the beginning of its error.
    """

    missing: ClassVar[Sequence[Hashable]] = ()
    """Keys without a record."""

    secrets: ClassVar[Sequence[str]] = (PASSWORD, QUOTED)
    """What nobody may read in logs."""

    def test_single_records(self, source: Any, records: Records) -> None:
        assert {key: source.get(key) for key in records} == records
        assert [source.get(key) for key in self.missing] == [None] * len(self.missing)
        assert source.get_many([]) == []

    def test_same_as_single_gets(
        self, source: Any, records: Records, count: Callable[[], int]
    ) -> None:
        keys = st.sampled_from([*records, *self.missing])

        @settings(max_examples=15, suppress_health_check=list(HealthCheck))
        @given(
            blocks=st.lists(st.lists(keys, max_size=8), min_size=1, max_size=5),
            prefetch=st.sampled_from(["auto", False, 1, 4]),
        )
        def check(blocks: list[list[Any]], prefetch: Any) -> None:
            before = count()
            with split(blocks, partitions_per_location=1) as parts:
                found = gather(parts.map(looked_up, source, prefetch))[0]
            assert found == [(block, [records.get(key) for key in block]) for block in blocks]
            needed = sum(math.ceil(len(set(block)) / source.max_batch) for block in blocks)
            assert count() - before == needed

        check()

    def test_pickles_as_url_and_options(self, source: Any, records: Records) -> None:
        source.get(next(iter(records)))  # connects
        pickled = pickle.dumps(source)
        assert len(pickled) < 2000
        assert pickle.loads(pickled).get_many(list(records)[:2]) == list(records.values())[:2]

    def test_no_password_is_shown(self, source: Any) -> None:
        assert not {PASSWORD, QUOTED} & {*words_of(repr(source))}
        assert "***" in repr(source)

    def test_not_reachable(self, unreachable: tuple[Any, str], records: Records) -> None:
        absent, shown = unreachable
        with pytest.raises(RecordSourceError) as raised:
            absent.get(next(iter(records)))
        check_hidden(raised.value, shown)

    def test_no_password_is_logged(
        self,
        source: Any,
        records: Records,
        unreachable: tuple[Any, str],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        CONNECTIONS.close()
        key, record = next(iter(records.items()))
        with caplog.at_level(logging.DEBUG):
            assert source.get_many([key, *self.missing[:1]]) == [record, None]
            with pytest.raises(RecordSourceError):
                unreachable[0].get(key)
            logging.getLogger(__name__).debug("this is captured")
        assert "this is captured" in caplog.text
        for secret in self.secrets:
            assert secret not in caplog.text

    def test_use_in_an_event_loop(self, source: Any, records: Records) -> None:
        part = split([[key] for key in records], partitions_per_location=1)[0].at_location()

        async def look_up() -> list[Any]:
            return looked_up(part, source, 2)

        assert asyncio.run(look_up()) == [([key], [record]) for key, record in records.items()]

    def test_bad_options_are_refused(self, source: Any) -> None:
        state = source.__reduce_ex__(2)[2]
        kind, url = type(source), state["_url"]
        with pytest.raises(InvalidArgumentError, match=r"must be a str.* got bytes") as raised:
            make(kind, url.encode())
        assert QUOTED not in str(raised.value)
        with pytest.raises(InvalidArgumentError, match="decode must be a plain function, got str"):
            make(kind, url, decode=QUOTED)
        if source.max_batch > 1:
            with pytest.raises(InvalidArgumentError, match="max_batch must be an int >= 1, got 0"):
                make(kind, url, max_batch=0)


def check_server_that_dies(
    source: Any, records: Records, kill: Callable[[], None], restart: Callable[[], Any], shown: str
) -> None:
    """End a server in the middle of a loop: an error in time, and the next loop works."""
    part = split([[key] for key in records] * 100, partitions_per_location=1)[0]

    def kill_after_ten(here: Any) -> None:
        for number, _ in enumerate(here.lookup(source, lambda block: block, 4)):
            if number == 10:
                kill()

    begun = time.monotonic()
    try:
        with pytest.raises(RecordSourceError) as raised:
            part.submit(kill_after_ten).result()
        assert time.monotonic() - begun < 60
        check_hidden(raised.value, shown)
    finally:
        restart()
    found = part.submit(looked_up, source).result()
    assert found == [([key], [record]) for key, record in records.items()] * 100


def make(kind: Any, url: Any, **options: Any) -> Any:
    further = ["SELECT a FROM b WHERE a IN :keys"] if kind.__name__ == "SQLSource" else []
    return kind(url, *further, **options)


def check_hidden(error: BaseException, shown: str) -> None:
    """Check that an error names a URL, and no password, not even in its causes."""
    assert shown in str(error)
    one: BaseException | None = error
    while one is not None:
        for secret in (PASSWORD, QUOTED):
            assert secret not in str(one) and secret not in repr(one)
        one = one.__cause__ or one.__context__


def words_of(text: str) -> list[str]:
    return [word for word in (PASSWORD, QUOTED) if word in text]


def looked_up(part: Any, source: Any, prefetch: Any = "auto") -> list[Any]:
    """Return the blocks of a partition with their records; the body of a task."""
    return list(part.lookup(source, lambda block: block, prefetch))
