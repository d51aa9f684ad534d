"""Rounds interleave the ways, warm up, and stop when answers differ; medians are medians."""

from __future__ import annotations

import itertools
import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pytest

from spliter_experiments.harness.errors import WaysDisagreeError
from spliter_experiments.harness.runner import (
    Answer,
    Bench,
    Check,
    Measurement,
    Reading,
    Way,
    run_rounds,
)


class Log:
    """Ways that write down what is called, and counters that only they move."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.counters = Reading(0, 0)

    def way(
        self, name: str, answer: Callable[[], object] = lambda: 1, *, on_cluster: bool = True
    ) -> Way:
        def run() -> Answer:
            self.events.append(("run", name))
            tasks, nbytes = self.counters
            self.counters = Reading(tasks + 3, (nbytes or 0) + 8)
            return Answer(answer(), {"part": 0.5})

        return Way(
            name,
            run,
            prepare=lambda: self.events.append(("prepare", name)),
            release=lambda: self.events.append(("release", name)),
            on_cluster=on_cluster,
        )

    def run(self, *ways: Way, rounds: int = 3, seed: int = 0) -> list[Measurement]:
        names = tuple(way.name for way in ways)
        return self.run_some(*ways, left=dict.fromkeys(range(1, rounds + 1), names), seed=seed)

    def run_some(
        self, *ways: Way, left: Mapping[int, Sequence[str]], seed: int = 0
    ) -> list[Measurement]:
        bench = Bench(
            {way.name: way for way in ways},
            Check(operator.eq),
            reading=lambda: self.counters,
            wait_until_idle=lambda: self.events.append(("idle", "")),
        )
        return list(
            run_rounds(
                bench,
                left,
                seed=seed,
                step=lambda name, _: self.events.append(("step", name)),
            )
        )

    def ran(self) -> list[str]:
        return [name for event, name in self.events if event == "run"]


def test_every_way_runs_once_in_every_round_and_once_before() -> None:
    log = Log()
    measurements = log.run(*map(log.way, "abc"), rounds=4)
    ran = log.ran()
    assert len(ran) == 15
    assert all(set(ran[at : at + 3]) == set("abc") for at in range(0, 15, 3))
    assert Counter((run.round, run.way) for run in measurements) == Counter(
        itertools.product([1, 2, 3, 4], "abc")
    )


def test_order_is_shuffled_per_round_and_repeatable() -> None:
    orders = []
    for seed in (1, 1, 2):
        log = Log()
        log.run(*map(log.way, "abcde"), rounds=4, seed=seed)
        orders.append(log.ran())
    assert orders[0] == orders[1] != orders[2]
    rounds = [tuple(orders[0][at : at + 5]) for at in range(0, 25, 5)]
    assert len(set(rounds)) > 1


def test_the_cluster_is_idle_and_a_way_is_prepared_before_its_clock_starts() -> None:
    log = Log()
    log.run(log.way("a"), rounds=1)
    once = [("idle", ""), ("prepare", "a"), ("run", "a"), ("release", "a"), ("step", "a")]
    assert log.events == once * 2


def test_counters_are_differences_and_none_off_the_cluster() -> None:
    log = Log()
    inside, outside = sorted(
        log.run(log.way("a"), log.way("b", on_cluster=False), rounds=1),
        key=lambda run: run.way,
    )
    assert (inside.tasks, inside.nbytes) == (3, 8)
    assert (outside.tasks, outside.nbytes) == (None, None)
    assert inside.phases == {"part": 0.5}


def test_what_was_prepared_is_released_when_a_way_fails() -> None:
    log = Log()

    def fail() -> object:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        log.run(log.way("a", fail))
    assert log.events[-1] == ("release", "a")


def test_way_with_another_answer_is_named() -> None:
    log = Log()
    with pytest.raises(WaysDisagreeError, match=r"wrong differs from|differs from wrong"):
        log.run(log.way("right"), log.way("wrong", lambda: 2), log.way("also"))


def test_answer_that_changes_in_a_later_round_is_noticed() -> None:
    log = Log()
    answers = iter([1, 1, 7])
    with pytest.raises(WaysDisagreeError, match="changing differs from"):
        log.run(log.way("steady"), log.way("changing", lambda: next(answers)))
    assert len(log.ran()) in (5, 6)


def test_a_check_remembers_from_one_blocking_to_the_next() -> None:
    check = Check(operator.eq)
    check.check_equal("a", 1)
    check.check_equal("b", 1)
    with pytest.raises(WaysDisagreeError, match="a differs from its own first result"):
        check.check_equal("a", 2)


def test_only_what_is_left_runs_and_warms_up() -> None:
    log = Log()
    found = log.run_some(*map(log.way, "abc"), left={2: ["a"], 3: ["b", "a"]})
    assert [(run.round, run.way) for run in found[:1]] == [(2, "a")]
    assert {(run.round, run.way) for run in found[1:]} == {(3, "a"), (3, "b")}
    assert [run.position for run in found] == [0, 1, 2]
    assert sorted(log.ran()[:2]) == ["a", "b"]
    assert len(log.ran()) == 5


def test_peak_of_memory_is_recorded_where_it_is_known() -> None:
    held = iter([5, 9, *[7] * 1000])
    bench = Bench({"a": Way("a", lambda: Answer(1))}, memory=lambda: next(held))
    found = bench.measure("a")
    assert found.peak == 9
