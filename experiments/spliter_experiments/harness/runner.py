"""Run ways to compute the same thing in interleaved rounds, and sum up what they took.

Every round runs every way once, in an order shuffled anew, so that a machine that gets slower or
busier meanwhile does so to all of them. The first round only warms up. Before each run the cluster
has to be at rest, and every answer has to equal all others. Nothing here knows what is computed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spliter_experiments.compare.engines.engine import Reading
from spliter_experiments.harness.errors import OptionError, WaysDisagreeError


def _nothing() -> None:
    """Do nothing: most ways need no preparation."""


@dataclass(frozen=True)
class Answer:
    """What a way returns.

    Parameters
    ----------
    value : object
        The result, to be compared with that of the other ways.
    phases : mapping of str to float
        Seconds of parts of it that are worth showing.
    """

    value: Any
    phases: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Contender:
    """One way to compute the thing.

    Parameters
    ----------
    name : str
        What the user calls it.
    run : callable
        What is timed.
    prepare, release : callable
        Run before and after it, outside the clock.
    on_cluster : bool
        Whether it runs tasks on the cluster, so that they are counted.
    """

    name: str
    run: Callable[[], Answer]
    prepare: Callable[[], None] = _nothing
    release: Callable[[], None] = _nothing
    on_cluster: bool = True


@dataclass(frozen=True)
class Measurement:
    """One run of one way; `tasks` and `nbytes` are None where it ran on no cluster."""

    round: int
    way: str
    seconds: float
    tasks: int | None
    nbytes: int | None
    phases: Mapping[str, float] = field(default_factory=dict)


class Judge:
    """Holds the answer that all ways have to give.

    Parameters
    ----------
    same : callable
        ``same(a, b)``: whether two results are equal.
    """

    def __init__(self, same: Callable[[Any, Any], bool]) -> None:
        self._same = same
        self._agreed: tuple[Any, str] | None = None

    def hear(self, answers: Mapping[str, Any]) -> None:
        """Compare the answers of a round with each other and with earlier ones.

        Raises
        ------
        WaysDisagreeError
            If two differ; names who gave which.
        """
        agreed = self._agreed
        if agreed is None:
            first = next(iter(answers))
            agreed = (answers[first], first)
        value, source = agreed
        wrong = [way for way, answer in answers.items() if not self._same(value, answer)]
        if wrong:
            right = [way for way in answers if way not in wrong]
            raise WaysDisagreeError(
                f"not all ways gave the same result: {', '.join(wrong)} differ from "
                f"{', '.join(right) or f'what {source} gave before'}"
            )
        self._agreed = agreed


def run_rounds(
    contenders: Sequence[Contender],
    *,
    rounds: int,
    seed: int,
    reading: Callable[[], Reading],
    rest: Callable[[], None],
    judge: Judge,
    step: Callable[[str], None],
) -> Iterator[list[Measurement]]:
    """Run every way in every round, after one round that is not counted.

    Parameters
    ----------
    contenders : sequence of Contender
        The ways.
    rounds : int
        Rounds that count.
    seed : int
        Of the order of the ways.
    reading : callable
        Reads the counters of the cluster.
    rest : callable
        Waits until the cluster is as it was before any way ran.
    judge : Judge
        Compares the answers.
    step : callable
        Told the name of each way when it has run.

    Yields
    ------
    list of Measurement
        One of each way after each round that counts, in the order they were taken.

    Raises
    ------
    OptionError
        If `rounds` is less than 1.
    WaysDisagreeError
        If two ways disagree.
    """
    if rounds < 1:
        raise OptionError(f"--rounds must be at least 1, got {rounds}")
    order = random.Random(seed)
    for number in range(rounds + 1):
        measurements: list[Measurement] = []
        answers: dict[str, Any] = {}
        for contender in order.sample(contenders, len(contenders)):
            rest()
            measurement, answers[contender.name] = measure(contender, number, reading)
            measurements.append(measurement)
            step(contender.name)
        judge.hear({contender.name: answers[contender.name] for contender in contenders})
        if number > 0:
            yield measurements


def measure(
    contender: Contender, number: int, reading: Callable[[], Reading]
) -> tuple[Measurement, Any]:
    """Run a contender once.

    Parameters
    ----------
    contender : Contender
        Who; is prepared before the clock runs, and released after.
    number : int
        Of the round.
    reading : callable
        Reads the counters.

    Returns
    -------
    measurement : Measurement
        What it took.
    value : object
        What came of it.
    """
    contender.prepare()
    try:
        before = reading()
        start = time.perf_counter()
        answer = contender.run()
        seconds = time.perf_counter() - start
        spent = reading().since(before)
    finally:
        contender.release()
    if contender.on_cluster:
        counted = Measurement(
            number, contender.name, seconds, spent.tasks, spent.nbytes, dict(answer.phases)
        )
    else:
        counted = Measurement(number, contender.name, seconds, None, None, dict(answer.phases))
    return counted, answer.value


@dataclass(frozen=True)
class Summary:
    """All rounds of one way: median and quartiles, in seconds; medians of the rest."""

    way: str
    rounds: int
    median: float
    lower: float
    upper: float
    tasks: int | None
    nbytes: int | None
    phases: Mapping[str, float]


def summarise(measurements: Sequence[Measurement]) -> list[Summary]:
    """Sum up the rounds of each way, in the order in which ways first appear.

    Examples
    --------
    >>> runs = [Measurement(i, "a", float(i), 3, 0) for i in (1, 2, 3, 4, 5)]
    >>> [(s.way, s.lower, s.median, s.upper) for s in summarise(runs)]
    [('a', 2.0, 3.0, 4.0)]
    """
    ways = dict.fromkeys(measurement.way for measurement in measurements)
    return [_summary([m for m in measurements if m.way == way]) for way in ways]


def _summary(runs: Sequence[Measurement]) -> Summary:
    lower, median, upper = np.quantile([run.seconds for run in runs], [0.25, 0.5, 0.75])
    names = dict.fromkeys(name for run in runs for name in run.phases)
    return Summary(
        way=runs[0].way,
        rounds=len(runs),
        median=float(median),
        lower=float(lower),
        upper=float(upper),
        tasks=_median_count([run.tasks for run in runs]),
        nbytes=_median_count([run.nbytes for run in runs]),
        phases={
            name: float(np.median([run.phases[name] for run in runs if name in run.phases]))
            for name in names
        },
    )


def _median_count(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return round(float(np.median(known))) if known else None


def ratio(summary: Summary, to: Summary | None) -> float | None:
    """Return how many times as long a way takes as another; None without the other."""
    return summary.median / to.median if to is not None and to.median > 0 else None
