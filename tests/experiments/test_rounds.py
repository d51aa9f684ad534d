"""Rounds interleave the ways, warm up, and stop when answers differ; medians are medians."""

from __future__ import annotations

import itertools
import operator
from collections import Counter
from collections.abc import Callable

import pytest

from spliter_experiments.harness.errors import WaysDisagreeError
from spliter_experiments.harness.runner import (
    Answer,
    Bench,
    Contender,
    Judge,
    Measurement,
    Reading,
    run_rounds,
)


class Log:
    """Contenders that write down what is called, and counters that only they move."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.counters = Reading(0, 0)

    def contender(
        self, name: str, answer: Callable[[], object] = lambda: 1, *, on_cluster: bool = True
    ) -> Contender:
        def run() -> Answer:
            self.events.append(("run", name))
            tasks, nbytes = self.counters
            self.counters = Reading(tasks + 3, (nbytes or 0) + 8)
            return Answer(answer(), {"part": 0.5})

        return Contender(
            name,
            run,
            prepare=lambda: self.events.append(("prepare", name)),
            release=lambda: self.events.append(("release", name)),
            on_cluster=on_cluster,
        )

    def run(self, *contenders: Contender, rounds: int = 3, seed: int = 0) -> list[Measurement]:
        names = [contender.name for contender in contenders]
        return self.run_some(
            *contenders, left=dict.fromkeys(range(1, rounds + 1), names), seed=seed
        )

    def run_some(
        self, *contenders: Contender, left: dict[int, list[str]], seed: int = 0
    ) -> list[Measurement]:
        bench = Bench(
            Judge(operator.eq),
            reading=lambda: self.counters,
            rest=lambda: self.events.append(("rest", "")),
        )
        return list(
            run_rounds(
                bench,
                contenders,
                left,
                seed=seed,
                step=lambda name, _: self.events.append(("step", name)),
            )
        )

    def ran(self) -> list[str]:
        return [name for event, name in self.events if event == "run"]


def test_every_way_runs_once_in_every_round_and_once_before() -> None:
    log = Log()
    measurements = log.run(*map(log.contender, "abc"), rounds=4)
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
        log.run(*map(log.contender, "abcde"), rounds=4, seed=seed)
        orders.append(log.ran())
    assert orders[0] == orders[1] != orders[2]
    rounds = [tuple(orders[0][at : at + 5]) for at in range(0, 25, 5)]
    assert len(set(rounds)) > 1


def test_cluster_rests_and_a_way_is_prepared_before_its_clock_starts() -> None:
    log = Log()
    log.run(log.contender("a"), rounds=1)
    once = [("rest", ""), ("prepare", "a"), ("run", "a"), ("release", "a"), ("step", "a")]
    assert log.events == once * 2


def test_counters_are_differences_and_none_off_the_cluster() -> None:
    log = Log()
    inside, outside = sorted(
        log.run(log.contender("a"), log.contender("b", on_cluster=False), rounds=1),
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
        log.run(log.contender("a", fail))
    assert log.events[-1] == ("release", "a")


def test_way_with_another_answer_is_named() -> None:
    log = Log()
    with pytest.raises(WaysDisagreeError, match=r"wrong differs from|differs from wrong"):
        log.run(log.contender("right"), log.contender("wrong", lambda: 2), log.contender("also"))


def test_answer_that_changes_in_a_later_round_is_noticed() -> None:
    log = Log()
    answers = iter([1, 1, 7])
    with pytest.raises(WaysDisagreeError, match="changing differs from"):
        log.run(log.contender("steady"), log.contender("changing", lambda: next(answers)))
    assert len(log.ran()) in (5, 6)


def test_judge_remembers_from_one_blocking_to_the_next() -> None:
    judge = Judge(operator.eq)
    judge.hear("a", 1)
    judge.hear("b", 1)
    with pytest.raises(WaysDisagreeError, match="a differs from its own first result"):
        judge.hear("a", 2)


def test_only_what_is_left_runs_and_warms_up() -> None:
    log = Log()
    found = log.run_some(*map(log.contender, "abc"), left={2: ["a"], 3: ["b", "a"]})
    assert [(run.round, run.way) for run in found[:1]] == [(2, "a")]
    assert {(run.round, run.way) for run in found[1:]} == {(3, "a"), (3, "b")}
    assert [run.position for run in found] == [0, 1, 2]
    assert sorted(log.ran()[:2]) == ["a", "b"]
    assert len(log.ran()) == 5


def test_peak_of_memory_is_recorded_where_it_is_known() -> None:
    held = iter([5, 9, *[7] * 1000])
    bench = Bench(Judge(operator.eq), memory=lambda: next(held))
    found = bench.measure(Contender("a", lambda: Answer(1)))
    assert found.peak == 9
