"""Make one chaos run: place the data, inject the faults, judge the answers."""

from __future__ import annotations

import enum
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from spliter import SplIterError
from tests.chaos.cases import Case, Fault, draw_case
from tests.chaos.programs import PROGRAMS, Answer, Array, Collections, rounds

T = TypeVar("T")

HANG_SECONDS: Final = 120.0
"""A program that has not ended then hangs. Far above any bound of an engine here, so that a busy
machine is not taken for a hang."""

STOP_SECONDS: Final = 60.0
"""For the last fault to be over: each has bounds of its own."""

FRESH_AFTER: Final = 100
"""Runs after which a new cluster starts."""


class NoTargetError(Exception):
    """A fault has found no worker, block or task that it could hit."""


class FaultyCluster(Protocol):
    @property
    def engine_errors(self) -> tuple[type[BaseException], ...]:
        """Documented errors of the engine that a program may end in, as in those of SplIter."""

    def place(self, case: Case, arrays: tuple[Array, ...]) -> Collections:
        """Repair the cluster, connect to it, and make one collection per array as the case says."""

    def inject(self, fault: Fault) -> str:
        """Do a fault; return what it hit. If it lasts, :meth:`recover` ends it."""

    def recover(self, fault: Fault) -> None:
        """End a fault that lasts."""

    def clean_up(self) -> str:
        """Delete the data of the run; return what the workers wrongly keep."""

    def state(self) -> str:
        """Describe running work, to find out why it does not end."""

    def close(self, *, abandoned: bool = False) -> None:
        """End the cluster; by force where a program still hangs on it."""


class Outcome(enum.StrEnum):
    """How a run ends; the first two keep the promise."""

    RIGHT = "right"
    TYPED = "typed error"
    WRONG = "WRONG"
    HANG = "HANG"
    UNTYPED = "UNTYPED ERROR"


class WrongAnswerError(AssertionError):
    """An application has returned something else than NumPy or scikit-learn."""


@dataclass(frozen=True)
class Injected:
    """A fault that the cluster has suffered, or that failed (`what` says why)."""

    kind: str
    at: float
    what: str
    done: bool


@dataclass(frozen=True)
class Run:
    """A case and its outcome.

    `left` is what the workers kept after the program had released everything; empty if all is well.
    """

    case: Case
    outcome: Outcome
    error: str
    message: str
    injected: tuple[Injected, ...]
    rounds: int
    left: str

    @property
    def is_good(self) -> bool:
        return self.outcome in {Outcome.RIGHT, Outcome.TYPED} and not self.left

    def __str__(self) -> str:
        """Return the faults and the command that runs the seed again."""
        case = self.case
        faults = [f"  {one.at:6.3f} s {one.kind}: {one.what}" for one in self.injected]
        lines = [
            f"{self.outcome}: {case.app} on {case.backend}, after {self.rounds} right rounds",
            *([f"left behind: {self.left}"] if self.left else []),
            *faults,
            f"{self.error} {self.message}",
            f"replay: python -m tests.chaos --backend {case.backend} --app {case.app} --runs 1 "
            f"--seed {case.seed}",
        ]
        return "\n".join(lines)


class FaultInjector:
    """Inject the faults of a case from a thread, each at its time."""

    def __init__(self, cluster: FaultyCluster, faults: Sequence[Fault]) -> None:
        self._cluster = cluster
        self._injected: list[Injected] = []
        self._lasting: list[threading.Thread] = []
        self._stop = threading.Event()
        self._start = time.monotonic()
        self._thread = _started("chaos-injector", self._run, faults)

    @property
    def is_done(self) -> bool:
        """Whether all faults have happened, and those that last are over."""
        return not any(thread.is_alive() for thread in [self._thread, *self._lasting])

    def stop(self) -> tuple[Injected, ...]:
        """Recover from lasting faults, inject no more; return what was done."""
        self._stop.set()
        self._thread.join(STOP_SECONDS)
        for lasting in self._lasting:
            lasting.join(STOP_SECONDS)
        return tuple(self._injected)

    def _run(self, faults: Sequence[Fault]) -> None:
        for fault in faults:
            if self._stop.wait(max(0.0, self._start + fault.at - time.monotonic())):
                return
            if self._inject(fault):
                # In another thread: the next fault may have to wait for a worker frozen now.
                self._lasting.append(_started("chaos-recovery", self._recover, fault))

    def _inject(self, fault: Fault) -> bool:
        try:
            what, done = self._cluster.inject(fault), True
        except Exception as error:  # noqa: BLE001 -- a damaged cluster may raise anything
            what, done = repr(error)[:200], False
        at = round(time.monotonic() - self._start, 3)
        self._injected.append(Injected(fault.kind, at, what, done))
        return done

    def _recover(self, fault: Fault) -> None:
        self._stop.wait(fault.seconds)
        self._cluster.recover(fault)


class _Program:
    """A program in a thread of its own, which a hang leaves behind."""

    def __init__(self, case: Case, cluster: FaultyCluster) -> None:
        program = PROGRAMS[case.app]
        arrays = program.data(np.random.default_rng(case.seed), sum(case.rows))
        expected = program.expected(arrays)
        self.right = 0
        self.failure: BaseException | None = None
        self._is_last = False

        def judge(answer: Answer) -> None:
            difference = program.difference(answer, expected, arrays)
            if difference:
                raise WrongAnswerError(difference)
            self.right += 1

        def run(collections: Collections) -> None:
            try:
                rounds(case, collections, arrays, self._goes_on, judge)
            except BaseException as error:  # noqa: BLE001 -- the outcome of the run
                self.failure = error

        collections = cluster.place(case, arrays)
        self._injector = FaultInjector(cluster, case.faults)
        # The thread releases its arguments when it ends.
        self.thread = _started("chaos-program", run, collections)

    def _goes_on(self) -> bool:
        """One more round begins after the last fault is over."""
        was_last, self._is_last = self._is_last, self._injector.is_done
        return not was_last

    def stop_faults(self) -> tuple[Injected, ...]:
        return self._injector.stop()


def run_case(case: Case, cluster: FaultyCluster, hang_seconds: float = HANG_SECONDS) -> Run:
    """Run one case; after a hang the cluster has to be abandoned."""
    program = _Program(case, cluster)
    program.thread.join(hang_seconds)
    hangs = program.thread.is_alive()
    stacks = f"{cluster.state()}\n{_stacks()}" if hangs else ""
    injected = program.stop_faults()
    if hangs:
        return Run(case, Outcome.HANG, "", stacks, injected, program.right, "all of it")
    failure, program.failure = program.failure, None
    outcome, error, message = _judged(failure, cluster.engine_errors)
    del failure  # its traceback refers to what the program used
    return Run(case, outcome, error, message, injected, program.right, cluster.clean_up())


def run_seeds(backend: str, seeds: Iterable[int], app: str = "") -> Iterator[Run]:
    """Run the cases of seeds one after the other, on as few clusters as possible."""
    clusters = _Clusters()
    try:
        for number, seed in enumerate(seeds):
            yield clusters.run(draw_case(backend, seed, app), number // FRESH_AFTER)
    finally:
        clusters.close()


class _Clusters:
    """One cluster at a time, used as long as it is good for the next case."""

    def __init__(self) -> None:
        self._cluster: FaultyCluster | None = None
        self._serves: tuple[bool, int] | None = None

    def run(self, case: Case, batch: int) -> Run:
        """Run a case; on another cluster, once, if this one cannot be repaired before it."""
        try:
            return self._run(case, batch)
        except (OSError, TimeoutError):
            self.close(abandoned=True)
            return self._run(case, batch)

    def _run(self, case: Case, batch: int) -> Run:
        wanted = (case.nannies, batch)
        if self._serves != wanted:
            self.close()
        if self._cluster is None:
            self._cluster, self._serves = _started_cluster(case), wanted
        done = run_case(case, self._cluster)
        if done.outcome is Outcome.HANG or done.left:
            self.close(abandoned=True)
        return done

    def close(self, *, abandoned: bool = False) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close(abandoned=abandoned)


def _started_cluster(case: Case) -> FaultyCluster:
    if case.backend == "dask":
        from tests.chaos.dask_cluster import DaskCluster

        return DaskCluster(case.nannies)
    from tests.chaos.dataclay_cluster import DataClayCluster

    return DataClayCluster()


def pick(fault: Fault, candidates: Sequence[T]) -> T:
    """Return the candidate that a fault hits; sort them, so that the same fault hits the same."""
    if not candidates:
        raise NoTargetError(f"{fault.kind} finds nothing to hit")
    return candidates[fault.target % len(candidates)]


def cut(array: Array, case: Case) -> list[Array]:
    """Return an array's blocks of the heights of a case, as copies."""
    return [block.copy() for block in np.split(array, np.cumsum(case.rows)[:-1])]


def _judged(
    error: BaseException | None, engine_errors: tuple[type[BaseException], ...]
) -> tuple[Outcome, str, str]:
    if error is None:
        return Outcome.RIGHT, "", ""
    name = type(error).__name__
    if isinstance(error, (SplIterError, *engine_errors)):
        return Outcome.TYPED, name, str(error)[:400]
    outcome = Outcome.WRONG if isinstance(error, WrongAnswerError) else Outcome.UNTYPED
    return outcome, name, "".join(traceback.format_exception(error))[-4000:]


def _started(name: str, target: Any, *args: Any) -> threading.Thread:
    thread = threading.Thread(target=target, args=args, name=name, daemon=True)
    thread.start()
    return thread


def _stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"--- {names.get(ident, ident)}\n{''.join(traceback.format_stack(frame)[-12:])}"
        for ident, frame in sys._current_frames().items()
    )
