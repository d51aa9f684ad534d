"""Wrong uses of a region are refused in one line, and failing sources end within their bounds."""

from __future__ import annotations

import asyncio
import gc
import pickle
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from spliter import InvalidArgumentError, PackageMissingError, ahead
from spliter.ahead import Region
from tests.ahead.sources import Failing, Memory


async def wait_for(key: int) -> int:
    return key


def generate(key: int) -> Any:
    yield key


class WithoutPut:
    max_batch = 2

    def get(self, key: Any) -> Any:
        return key

    def get_many(self, keys: Sequence[Any]) -> list[Any]:
        return list(keys)


REFUSALS: dict[str, tuple[Callable[[Region], object], str]] = {
    "unhashable key": (lambda people: people[[1]], r"the key \[1\] cannot be hashed; make a tuple"),
    "missing value": (lambda people: people.get(None), "stands for a missing value"),
    "coroutine in map": (lambda people: people.map(wait_for, [1]), "wait_for is a coroutine"),
    "generator in map": (lambda people: people.map(generate, [1]), "generate is a generator"),
    "coroutine in run": (lambda people: people.run(wait_for, 1), "wait_for is a coroutine"),
    "no function": (lambda people: people.map(3, [1]), "must be a function"),  # type: ignore[arg-type]
    "no arguments": (lambda people: people.map(len), "needs the arguments of its calls"),
    "entered twice": (lambda people: people.__enter__(), "can be entered once"),
    "pickled": (pickle.dumps, r"cannot be sent to a task; call ahead\(source\) in the function"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_is_refused(name: str) -> None:
    use, message = REFUSALS[name]
    with ahead(Memory({})) as people, pytest.raises(InvalidArgumentError, match=message):
        use(people)


@pytest.mark.parametrize("source", [None, {}, Memory, "redis://host"])
def test_what_is_no_source_is_refused(source: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="must be an object with get_many"):
        ahead(source)


def test_a_source_that_cannot_store_is_not_written() -> None:
    with (
        ahead(WithoutPut()) as people,
        pytest.raises(InvalidArgumentError, match="no put"),
    ):
        people.put(1, 2)


def test_a_region_is_used_in_its_with_statement_alone() -> None:
    people = ahead(Memory({1: 2}))
    with pytest.raises(InvalidArgumentError, match="has not begun"):
        people.get(1)
    with people:
        assert people[1] == 2
    for use in (people.get, people.__getitem__, lambda key: people.map(len, [key])):
        with pytest.raises(InvalidArgumentError, match="has ended"):
            use(1)


def test_a_region_is_used_in_its_thread_alone() -> None:
    with ahead(Memory({1: 2})) as people, ThreadPoolExecutor(1) as pool:
        with pytest.raises(InvalidArgumentError, match="belongs to another thread"):
            pool.submit(people.get, 1).result()
        with pytest.raises(InvalidArgumentError, match="belongs to another thread"):
            pool.submit(people.map, people.get, [1]).result()


def test_each_thread_has_regions_of_its_own() -> None:
    pytest.importorskip("greenlet")

    def work(base: int) -> list[Any]:
        with ahead(Memory({key: key for key in range(1000)})) as people:
            return people.map(lambda key: people[key] + people[key // 2], range(base, base + 50))

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(work, range(0, 400, 50)))
    assert [one for part in found for one in part] == [key + key // 2 for key in range(400)]


def test_map_in_an_event_loop_is_refused_with_the_way_out() -> None:
    async def refused() -> None:
        with (
            ahead(Memory({})) as people,
            pytest.raises(InvalidArgumentError, match=r"asyncio\.to_thread"),
        ):
            people.map(people.get, [1])

    def in_thread() -> list[Any]:
        with ahead(Memory({1: 2})) as people:
            return people.map(people.get, [1])

    async def allowed() -> list[Any]:
        return await asyncio.to_thread(in_thread)

    asyncio.run(refused())
    pytest.importorskip("greenlet")
    assert asyncio.run(allowed()) == [2]


def test_without_greenlet_map_names_the_extra_and_run_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "greenlet", None)
    monkeypatch.delitem(sys.modules, "spliter.ahead._calls", raising=False)

    def other_thread() -> None:
        with ahead(Memory({1: 2})) as people:
            with pytest.raises(PackageMissingError, match=r"pyspliter\[ahead\]"):
                people.map(people.get, [1])
            assert people.run(lambda: people[1]) == 2

    with ThreadPoolExecutor(1) as pool:  # which has made no call yet
        pool.submit(other_thread).result()


class LostError(Exception):
    pass


def fail(keys: Sequence[Any]) -> None:
    if any(key >= 100 for key in keys):
        raise LostError(keys)


def test_an_error_of_the_source_is_raised_at_the_read() -> None:
    pytest.importorskip("greenlet")
    source = Failing(fail, {key: key for key in range(200)}, max_batch=5)

    def careful(key: int) -> Any:
        try:
            return people[key]
        except LostError:
            return "lost"

    with ahead(source) as people, ahead(Memory({1: "other"})) as others:
        assert people.map(careful, [1, 2, 3, 4, 5, 100, 101]) == [1, 2, 3, 4, 5, "lost", "lost"]
        with pytest.raises(LostError):
            people.map(people.get, [6, 100, 7])
        with pytest.raises(LostError):
            people.run(lambda: people[6] + people[100])
        assert others[1] == "other"
        source.before = len
        assert people[100] == 100  # asked for again


@pytest.mark.parametrize("answer", [[], [1, 2, 3], None, 5, "ab"])
def test_answers_of_another_length_are_refused(answer: Any) -> None:
    class Wrong(Memory):
        def get_many(self, keys: Sequence[Any]) -> Any:
            return answer

    with ahead(Wrong({})) as people, pytest.raises(InvalidArgumentError, match="get_many of"):
        people.run(lambda: (people.get(1), people.get(2)))


def test_a_source_that_hangs_is_left_with_its_region() -> None:
    pytest.importorskip("greenlet")
    over = threading.Event()

    def hang(keys: Sequence[Any]) -> None:
        if 9 in keys:
            over.wait(10)
        if 0 in keys:
            raise LostError

    source = Failing(hang, {}, max_batch=1)
    begun = time.monotonic()
    with ahead(source) as people, pytest.raises(LostError):
        people.map(people.get, [0, 9])
    over.set()
    assert time.monotonic() - begun < 10


def test_nothing_is_left_after_a_thousand_regions() -> None:
    greenlet = pytest.importorskip("greenlet")
    source = Memory({key: key for key in range(10)})

    def use() -> None:
        with ahead(source) as people, pytest.raises(KeyError):
            people.map(people.__getitem__, [1, 2, 99])

    use()
    gc.collect()
    threads = threading.active_count()
    before = sum(isinstance(one, greenlet.greenlet) for one in gc.get_objects())
    for _ in range(1000):
        use()
    gc.collect()
    assert threading.active_count() == threads
    assert sum(isinstance(one, greenlet.greenlet) for one in gc.get_objects()) <= before
