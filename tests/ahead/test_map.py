"""Calls of a `map` read for each other, in program order, and end as those of the built-in do."""

from __future__ import annotations

import contextvars
import gc
import tracemalloc
from typing import Any

import numpy as np
import pytest

from spliter import ahead, split
from tests.ahead.sources import Failing, Memory

pytest.importorskip("greenlet")

CHAIN = {number: number // 2 for number in range(1, 1000)}
"""Each record names the next key; 0 has none."""


def follow(people: Any, key: int) -> int:
    """Return the number of records up to the end of a chain."""
    following = people.get(key)
    return 0 if following is None else 1 + follow(people, following)


def test_a_level_of_references_takes_no_more_requests_than_its_keys_fill() -> None:
    source = Memory(CHAIN, max_batch=100)
    with ahead(source) as people:
        lengths = people.map(lambda key: follow(people, key), range(512, 768))
    assert lengths == [10] * 256
    levels = [len({key >> level for key in range(512, 768)}) for level in range(11)]
    assert len(source.requests) <= sum(-(-keys // 100) for keys in levels)  # levels may share one
    report = people.report()
    assert (report.keys, report.batches) == (sum(levels), len(source.requests))
    assert report.unused == 0


def test_keys_are_requested_in_program_order() -> None:
    source = Memory({}, max_batch=2)
    order: list[int] = []

    def read(key: int) -> None:
        order.append(key)
        people.map(people.get, [10 * key, 10 * key + 1])

    with ahead(source) as people:
        people.map(read, [3, 1, 2])
    assert order == [3, 1, 2]
    assert sorted(source.requests, key=source.requests.index) == [[30, 31], [10, 11], [20, 21]]


def test_calls_that_go_on_come_before_calls_that_begin() -> None:
    """A search that ends early reads little of what comes after its end."""

    class FoundError(Exception):
        pass

    def look(start: int) -> None:
        if follow(people, start) == 9:
            raise FoundError(start)

    source = Memory(CHAIN | dict.fromkeys(range(1000, 9000), 0), max_batch=4)
    with ahead(source) as people, pytest.raises(FoundError, match=r"^256$"):
        people.map(look, [2, 3, 256, *range(1000, 9000)])
    assert sum(map(len, source.requests)) < 1000 + 200


def test_a_full_batch_is_sent_before_another_call_begins() -> None:
    """Also that of calls which go on: as many wait for records as before."""
    events: list[Any] = []
    source = Failing(lambda keys: events.append(list(keys)), {}, max_batch=2)

    def read(number: int) -> None:
        events.append(number)
        people.get(10 + number)
        people.get(20 + number)

    with ahead(source) as people:
        for key in range(100, 110):  # requests that turn out to be fast are not made in threads
            people.get(key)
        events.clear()
        people.map(read, range(4))
    assert events == [0, 1, [10, 11], [20, 21], 2, 3, [12, 13], [22, 23]]


def test_several_regions_are_read_together() -> None:
    orders = Memory({order: order % 7 for order in range(30)})
    customers = Memory({customer: f"street {customer}" for customer in range(7)})
    with ahead(orders) as by_order, ahead(customers) as by_customer:
        streets = by_order.map(lambda order: by_customer[by_order[order]], range(30))
    assert streets == [f"street {order % 7}" for order in range(30)]
    assert len(orders.requests) == 3
    assert len(customers.requests) == 1


def test_the_first_error_in_program_order_is_raised_after_the_calls_before_it() -> None:
    events: list[Any] = []

    def call(number: int) -> None:
        try:
            follow(people, CHAIN[900] if number == 0 else number)
            events.append(number)
            if number == 1:
                raise ValueError(number)
            people.get(-number)
            raise TypeError(number)
        except BaseException as error:
            events.append((number, type(error).__name__))
            raise

    with ahead(Memory(CHAIN)) as people:
        with pytest.raises(TypeError, match="0"):
            people.map(call, range(4))
        before = people.report().batches
    assert (1, "ValueError") in events
    assert {(2, "GreenletExit"), (3, "GreenletExit")} < set(events)
    assert people.report().batches == before


def test_calls_of_a_dropped_call_end_before_it() -> None:
    ended: list[str] = []

    def inner(name: str) -> None:
        try:
            people.map(people.get, [0, 1, 2])
        finally:
            ended.append(name)

    def outer(number: int) -> None:
        if number == 0:
            people.get("late")
            raise ValueError
        try:
            people.map(inner, ["a", "b"])
        finally:
            ended.append("outer")

    with ahead(Memory({}, max_batch=1)) as people, pytest.raises(ValueError, match=r"^$"):
        people.map(outer, [0, 1])
    assert ended == ["a", "b", "outer"]


def test_an_interrupt_ends_all_calls_at_once() -> None:
    ended: list[int] = []

    def call(number: int) -> None:
        try:
            people.get(number)
            if number == 2:
                raise KeyboardInterrupt
            people.get(-1 - number)
        finally:
            ended.append(number)

    with ahead(Memory({})) as people:
        with pytest.raises(KeyboardInterrupt):
            people.map(call, range(5))
        assert sorted(ended) == list(range(5))
        assert people.map(people.get, [0]) == [None]


def test_an_interrupt_while_it_waits_leaves_the_region_usable() -> None:
    def before(keys: Any) -> None:
        source.before = lambda keys: None
        raise KeyboardInterrupt

    source = Failing(before, {1: "one"})
    with ahead(source) as people:
        with pytest.raises(KeyboardInterrupt):
            people.map(people.get, [1])
        assert people[1] == "one"


def test_writes_wait_for_the_calls_before_them() -> None:
    source = Memory(CHAIN)

    def call(number: int) -> Any:
        follow(people, 10 if number == 0 else 1)
        people.put(("own", number), number)
        return people["own", number]

    with ahead(source) as people:
        assert people.map(call, range(3)) == [0, 1, 2]
    assert source.writes == [(("own", number), number) for number in range(3)]
    assert ("own", 0) not in [key for request in source.requests for key in request]


@pytest.mark.parametrize("when", ["present", "pending"])
def test_a_record_that_was_stored_anew_is_read_again(when: str) -> None:
    source = Memory({1: "old"})

    def read(number: int) -> Any:
        if when == "present":
            people.get(1)
        source.put(1, "new")
        return people[1]

    with ahead(source) as people:
        assert people.map(read, [0]) == ["new"]
        people.put(1, "newer")
        assert people[1] == "newer"


def test_a_lookup_in_a_region_sees_what_is_put() -> None:
    source = Memory({1: "old", 2: "two"})
    (part,) = split([np.array([2]), np.array([1])], partitions_per_location=1)

    def loop(part: Any) -> list[Any]:
        seen = []
        with ahead(source) as people:
            for _, found in part.lookup(source, list, prefetch=1):
                people.put(1, "new")
                seen += found
        return seen

    assert part.submit(loop).result() == ["two", "new"]


def test_a_hundred_thousand_calls_take_the_memory_of_a_window() -> None:
    def peak(count: int) -> int:
        source = Memory({}, max_batch=500)
        with ahead(source) as people:
            people.map(people.get, range(2000))  # imports, pools
            gc.collect()
            tracemalloc.start()
            people.map(lambda number: people.get(number % 2000 if number % 50 else number), numbers)
            found = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        return found

    numbers: Any = range(2000, 10_000)
    few = peak(8000)
    numbers = range(2000, 102_000)
    assert peak(100_000) < few + 4_000_000  # 2,000 more records, 92,000 more results


def test_calls_run_in_the_context_of_their_map() -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)

    def call(number: int) -> int:
        variable.set(variable.get() + number)
        people.get(number)
        return variable.get()

    with ahead(Memory({})) as people, np.errstate(divide="raise"):
        variable.set(10)
        assert people.map(call, range(3)) == [10, 11, 12]
        assert people.map(lambda _: np.geterr()["divide"], [0]) == ["raise"]
    assert variable.get() == 10
