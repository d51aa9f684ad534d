"""Trial runs find out which keys a function reads; the function's own run gives the result."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spliter import ahead
from spliter.ahead import _trials
from tests.ahead.sources import Memory


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials of programs in memory end by their reads, not because the machine is busy."""
    monkeypatch.setattr(_trials, "PATIENCE", 1e6)


CHAIN = {number: number // 2 for number in range(1, 1000)}


def test_a_loop_reads_its_keys_in_one_request() -> None:
    source = Memory({key: key**2 for key in range(50)}, max_batch=100)

    def total() -> int:
        return sum(people[key] for key in range(50))

    with ahead(source) as people:
        assert people.run(total) == sum(key**2 for key in range(50))
    assert source.requests == [list(range(50))]


def test_rounds_are_the_longest_chain() -> None:
    source = Memory(CHAIN, max_batch=100)

    def lengths(starts: list[int]) -> list[int]:
        found = []
        for key in starts:
            steps = 0
            while (key := people.get(key)) is not None and key:
                steps += 1
            found.append(steps)
        return found

    with ahead(source) as people:
        assert people.run(lengths, [900, 500, 30]) == [9, 8, 4]
    assert len(source.requests) == 7  # those after 28 are read for 30 or 500 before
    assert people.report().waits == 7


@pytest.mark.parametrize(
    "use",
    [
        lambda record: record + 1 - 2 * record // 3,
        lambda record: -abs(record) < 5 <= record,
        lambda record: record["a"].b(1)[2:3] == 4,
        lambda record: [len(record), int(record), float(record), list(record)],
        lambda record: f"{record:>5} {record}" + "%s" % record,  # noqa: UP031
        lambda record: {record: 1} and (1 in record),
        lambda record: sorted([record, record]) and max(record, record),
        lambda record: range(3)[record] + operator.index(record),
        lambda record: np.asarray([1.0, 2.0]) * float(record),
        lambda record: round(record, 2) ** record @ record,
    ],
)
def test_unknown_values_absorb_what_is_done_with_them(use: Callable[[Any], Any]) -> None:
    """A trial goes on to the next key, whatever the function computes in between."""
    source = Memory({1: 1, 2: 2})

    def program() -> int:
        use(people[1]) if not people.get(1) else None
        return int(people[2])

    with ahead(source) as people:
        assert people.run(program) == 2
    assert source.requests == [[1, 2]]


def test_what_a_trial_raises_is_not_raised() -> None:
    source = Memory({1: 2, 2: 0})

    def program() -> Any:
        return 1 / (people[1] - people[2])

    with ahead(source) as people:
        assert people.run(program) == 0.5
        people.put(2, 2)
        with pytest.raises(ZeroDivisionError):
            people.run(program)


@pytest.mark.parametrize("end", ["put", "other region"])
def test_a_trial_ends_before_an_effect(end: str) -> None:
    source, other = Memory({1: "one", 3: "three"}), Memory({2: "two"})

    def program() -> Any:
        first = people[1]
        if end == "put":
            people.put(2, first)
        else:
            others.get(2)
        return people[3]

    with ahead(source) as people, ahead(other) as others:
        assert people.run(program) == "three"
    assert source.writes == ([(2, "one")] if end == "put" else [])
    assert source.requests == [[1], [3]]


def test_a_trial_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_trials, "PATIENCE", 10)
    source = Memory({key: {"last": key == 3} for key in range(10)})

    def by_reads() -> int:
        key = 0
        while not people[key]["last"]:
            key += 1
        return key

    def by_work() -> int:
        total = 0
        while not total > 5:
            total += people[1]["last"] + 2
        return total

    with ahead(source, most_keys=7) as people:
        assert people.run(by_reads) == 3
        assert people.run(by_work) == 6
    assert len(source.requests[0]) <= 7


def test_trials_stop_if_their_keys_are_not_read_and_begin_again_after_misses() -> None:
    source = Memory({key: key + 1 for key in range(1000)}, max_batch=100)

    def guesses_wrong(base: int) -> int:
        if not people[base]:  # in the trial alone
            for key in range(base + 1, base + 17):
                people.get(key)
        return base

    def misses(base: int) -> None:
        for key in range(base, base + 10):
            people.get(key)

    with ahead(source) as people:
        for base in range(100, 180, 20):
            people.run(guesses_wrong, base)
        report = people.report()
        assert "quarter" in report.stopped
        assert (report.keys, report.unused) == (4 * 17, 4 * 16)
        people.run(misses, 500)  # one by one
        assert people.report().batches == report.batches + 10
        assert not people.report().stopped
        people.run(misses, 600)
        assert people.report().batches == report.batches + 11


def test_map_in_a_trial_goes_on_after_unknown_errors() -> None:
    source = Memory({key: key for key in range(10)})

    def program() -> list[int]:
        return people.map(lambda key: 10 // (people[key] + 1), range(5))

    with ahead(source) as people:
        assert people.run(program) == [10, 5, 3, 2, 2]
    assert source.requests == [[0, 1, 2, 3, 4]]


def test_runs_in_a_map_share_their_requests() -> None:
    pytest.importorskip("greenlet")
    source = Memory(CHAIN, max_batch=100)

    def total(base: int) -> int:
        return sum(people[key] for key in range(base, base + 10))

    with ahead(source) as people:
        found = people.map(lambda base: people.run(total, base), range(100, 200, 10))
    assert sum(found) == sum(key // 2 for key in range(100, 200))
    assert len(source.requests) == 1
