"""Run several ways to compute the same result, in interleaved rounds with checked answers.

Every round runs each way once, in a newly shuffled order, so that a slower or busier machine
affects all ways alike. Round 0 warms up and does not count. Before each run the cluster becomes
idle, and every answer must equal the first one.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from spliter_experiments.harness.errors import WaysDisagreeError
from spliter_experiments.harness.memory import Peak, watched


def _nothing() -> None:
    """Do nothing: most ways need no preparation."""


class Reading(NamedTuple):
    """Counters of finished tasks and bytes moved; None if an engine does not count bytes."""

    tasks: int
    nbytes: int | None

    def since(self, earlier: Reading) -> Reading:
        """Return the difference to the counters at `earlier`.

        >>> Reading(5, 80).since(Reading(2, 30))
        Reading(tasks=3, nbytes=50)
        """
        tasks = self.tasks - earlier.tasks
        if self.nbytes is None or earlier.nbytes is None:
            return Reading(tasks, None)
        return Reading(tasks, self.nbytes - earlier.nbytes)


@dataclass(frozen=True)
class Answer:
    """Result of a run, to be compared, and the seconds of its separately timed phases.

    A bound that is computed has `seconds`, recorded instead of the time that computing it took.
    """

    value: Any
    phases: Mapping[str, float] = field(default_factory=dict)
    seconds: float | None = None


@dataclass(frozen=True)
class Way:
    """One way to compute the result, with untimed calls before and after it.

    Tasks and bytes are not recorded unless it runs on the cluster.
    """

    name: str
    run: Callable[[], Answer]
    prepare: Callable[[], None] = _nothing
    release: Callable[[], None] = _nothing
    on_cluster: bool = True


@dataclass(frozen=True)
class Measurement:
    """One run of one way, with the seconds of its separately timed phases.

    Tasks, bytes sent between workers and peak memory of the workers are None if not counted. Rounds
    count from 1, positions in the order of all runs from 0.
    """

    round: int
    way: str
    seconds: float
    tasks: int | None = None
    nbytes: int | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    peak: int | None = None
    position: int = 0


class Check:
    """Compares all answers with the first one; `same` returns whether two are equal."""

    def __init__(self, same: Callable[[Any, Any], bool] = lambda _, __: True) -> None:
        self._same = same
        self._first: tuple[str, Any] | None = None

    def check_equal(self, way: str, answer: Any) -> None:
        """Raise a `WaysDisagreeError` if an answer differs from the first one."""
        if self._first is None:
            self._first = (way, answer)
        source, expected = self._first
        if not self._same(expected, answer):
            raise WaysDisagreeError(
                f"not all ways gave the same result: {way} differs from "
                f"{source if source != way else 'its own first result'}"
            )


@dataclass(frozen=True)
class Bench:
    """Ways on loaded data, and the environment of their runs.

    It reads the counters of the cluster, waits until that is idle, and samples the bytes that the
    workers hold. `phases` are seconds that all its runs share, such as those to load the data.
    """

    ways: Mapping[str, Way]
    check: Check = field(default_factory=Check)
    reading: Callable[[], Reading] = field(default=lambda: Reading(0, 0))
    wait_until_idle: Callable[[], None] = _nothing
    memory: Callable[[], int | None] | None = None
    phases: Mapping[str, float] = field(default_factory=dict)

    def measure(self, name: str, number: int = 1) -> Measurement:
        """Run a way once, check its answer, and return the measurement."""
        way = self.ways[name]
        self.wait_until_idle()
        watching = nullcontext(Peak()) if self.memory is None else watched(self.memory)
        with watching as peak:
            way.prepare()
            try:
                before = self.reading()
                start = time.perf_counter()
                answer = way.run()
                seconds = time.perf_counter() - start
                spent = self.reading().since(before)
            finally:
                way.release()
        self.check.check_equal(name, answer.value)
        tasks, nbytes = spent if way.on_cluster else (None, None)
        phases = {**answer.phases, **self.phases}
        seconds = seconds if answer.seconds is None else answer.seconds
        return Measurement(number, name, seconds, tasks, nbytes, phases, peak.nbytes)


def run_rounds(
    bench: Bench,
    rounds: Mapping[int, Sequence[str]],
    *,
    seed: int | str,
    step: Callable[[str, int], None] = lambda _, __: None,
) -> Iterator[Measurement]:
    """Warm up each way that has runs left, run the rounds, and yield each run.

    `rounds` has for each round, from 1, the ways left to run in it, in the order of the `seed`.
    `step` is called after each run with the way's name and the round, 0 for the warm-up.
    """
    order = random.Random(seed)
    left = {name for names in rounds.values() for name in names}
    position = 0
    for number, names in [
        (0, [name for name in bench.ways if name in left]),
        *sorted(rounds.items()),
    ]:
        for name in order.sample(list(names), len(names)):
            found = bench.measure(name, number)
            if number:
                yield replace(found, position=position)
                position += 1
            step(name, number)
