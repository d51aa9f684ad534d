"""Rounds interleave the ways, warm up, and stop when answers differ; medians are medians."""

from __future__ import annotations

import itertools
import operator
from collections import Counter
from collections.abc import Callable

import pytest

from spliter_experiments.compare.engines.engine import Reading
from spliter_experiments.harness.errors import OptionError, WaysDisagreeError
from spliter_experiments.harness.runner import (
    Answer,
    Contender,
    Judge,
    Measurement,
    ratio,
    run_rounds,
    summarise,
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
        done = run_rounds(
            contenders,
            rounds=rounds,
            seed=seed,
            reading=lambda: self.counters,
            rest=lambda: self.events.append(("rest", "")),
            judge=Judge(operator.eq),
            step=lambda name: self.events.append(("step", name)),
        )
        return list(itertools.chain.from_iterable(done))

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
    with pytest.raises(WaysDisagreeError, match="wrong differ from right, also"):
        log.run(log.contender("right"), log.contender("wrong", lambda: 2), log.contender("also"))


def test_answer_that_changes_in_a_later_round_is_noticed() -> None:
    log = Log()
    answers = iter([1, 1, 7])
    with pytest.raises(WaysDisagreeError, match="changing differ from steady"):
        log.run(log.contender("steady"), log.contender("changing", lambda: next(answers)))
    assert len(log.ran()) == 6


def test_judge_remembers_from_one_blocking_to_the_next() -> None:
    judge = Judge(operator.eq)
    judge.hear({"a": 1, "b": 1})
    judge.hear({"a": 1})
    with pytest.raises(WaysDisagreeError, match="a differ from what a gave before"):
        judge.hear({"a": 2})


def test_rounds_must_be_at_least_one() -> None:
    log = Log()
    with pytest.raises(OptionError, match="--rounds"):
        log.run(log.contender("a"), rounds=0)


def runs(way: str, *seconds: float, tasks: int | None = 4) -> list[Measurement]:
    return [
        Measurement(number, way, value, tasks, None if tasks is None else 10 * number, {"p": value})
        for number, value in enumerate(seconds, start=1)
    ]


def test_summary_is_median_and_quartiles() -> None:
    summary, other = summarise(runs("a", 5.0, 1.0, 2.0, 4.0, 3.0) + runs("b", 6.0, tasks=None))
    assert (summary.lower, summary.median, summary.upper) == (2.0, 3.0, 4.0)
    assert (summary.rounds, summary.tasks, summary.nbytes) == (5, 4, 30)
    assert summary.phases == {"p": 3.0}
    assert (other.way, other.lower, other.median, other.upper) == ("b", 6.0, 6.0, 6.0)
    assert (other.tasks, other.nbytes) == (None, None)


def test_quartiles_of_an_even_number_are_interpolated() -> None:
    (summary,) = summarise(runs("a", 1.0, 2.0, 3.0, 4.0))
    assert (summary.lower, summary.median, summary.upper) == (1.75, 2.5, 3.25)


def test_phase_that_only_some_runs_report() -> None:
    some = [Measurement(1, "a", 1.0, 1, 0, {"p": 3.0}), Measurement(2, "a", 1.0, 1, 0)]
    (summary,) = summarise(some)
    assert summary.phases == {"p": 3.0}


def test_ratio() -> None:
    slow, fast = summarise(runs("slow", 3.0) + runs("fast", 1.5))
    assert ratio(slow, fast) == 2.0
    assert ratio(slow, None) is None
