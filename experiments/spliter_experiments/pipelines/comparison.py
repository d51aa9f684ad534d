"""Run the ways of a workload in interleaved rounds, in this process."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from spliter_experiments.harness.console import Listener
from spliter_experiments.harness.errors import MissingLibraryError, OptionError
from spliter_experiments.harness.facts import facts
from spliter_experiments.harness.records import (
    COMPARE,
    Record,
    ResultsFolder,
    digest_of,
    record_of,
)
from spliter_experiments.harness.runner import (
    Answer,
    Bench,
    Contender,
    Judge,
    Measurement,
    run_rounds,
)
from spliter_experiments.pipelines.catalog import CATALOG
from spliter_experiments.pipelines.workload import OURS, PLAIN, Workload, cores, same

PIP: Final = 'pip install "pyspliter[pipelines]"'

NOT_WRITTEN: Final = "the program is not written for it"

M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8
"""Parameters of glibc's ``mallopt``, from its ``malloc.h``."""


@dataclass(frozen=True)
class Choice:
    """What to run: a workload, or the rows that are its default, and all ways or some."""

    workload: str
    rows: int | None = None
    rounds: int = 5
    seed: int = 0
    ways: tuple[str, ...] | None = None
    command: str = ""

    def __post_init__(self) -> None:
        for name, value in (("--rows", self.rows), ("--rounds", self.rounds)):
            if value is not None and value < 1:
                raise OptionError(f"{name} must be at least 1, got {value}")

    @property
    def size(self) -> int:
        """Rows to run on."""
        return CATALOG[self.workload].rows if self.rows is None else self.rows


def run_workload(
    choice: Choice, listener: Listener, folder: ResultsFolder | None = None
) -> list[Record]:
    """Run the ways of a workload and return the records, also of runs that the folder holds.

    Every answer is compared with that of `PLAIN`, which is computed once more, before the rounds.

    Raises
    ------
    MissingLibraryError
        If a library of the workload itself is missing.
    OptionError
        If a library of a requested way is missing.
    WaysDisagreeError
        If a way gives another result; `OURS`, if it gives other bits where it must not.
    """
    retain_memory()
    journal = _Journal(choice, folder)
    contenders = _contenders(choice, listener.note)
    left = journal.left([*contenders])
    if left:
        judge = Judge(lambda first, other: same(first[1], other[1], exact=other[0]))
        judge.hear(PLAIN, contenders[PLAIN].run().value)
        listener.begin((choice.rounds + 1) * len(contenders))
        runs = run_rounds(
            Bench(judge),
            [*contenders.values()],
            left,
            seed=choice.seed,
            step=lambda way, _: listener.step(f"{choice.workload}: {way}", 1),
        )
        for run in runs:
            journal.keep(run)
    return journal.records


class _Journal:
    """Turns measurements into records, stores them, and knows the runs already recorded."""

    def __init__(self, choice: Choice, folder: ResultsFolder | None) -> None:
        plan = {"workload": choice.workload, "rows": choice.size, "seed": choice.seed}
        self._choice, self._folder, self._here = choice, folder, facts()
        self._digest = digest_of(plan)
        self._name = f"pipeline-{choice.workload}-{self._digest}"
        self._done: dict[str, Record] = {}
        self.records: list[Record] = []
        if folder is not None:
            folder.check_fits(COMPARE, "", self._digest, self._here)
            folder.keep_plan(self._name, plan)
            self._done = {one.run_id: one for one in folder.records()} if folder.done() else {}

    def left(self, ways: Sequence[str]) -> dict[int, list[str]]:
        """Return the ways left to run in each round; add the records of the others."""
        left: dict[int, list[str]] = {}
        for number in range(1, self._choice.rounds + 1):
            for way in ways:
                done = self._done.get(self._id(way, number))
                if done is None:
                    left.setdefault(number, []).append(way)
                else:
                    self.records.append(done)
        return left

    def keep(self, run: Measurement) -> None:
        """Add the record of a run."""
        choice = self._choice
        record = record_of(
            run,
            self._here,
            choice.command,
            run_id=self._id(run.way, run.round),
            figure=COMPARE,
            app="pipeline",
            size=choice.workload,
            plan_digest=self._digest,
            engine="process",
            configuration=run.way,
            way=run.way,
            nodes=1,
            workers=1,
            threads=cores(),
            blocks=1,
            blocks_per_core=1 / cores(),
            rows=choice.size,
            queries=0,
            seed=choice.seed,
            x=float(choice.size),
        )
        self.records.append(record)
        if self._folder is not None:
            self._folder.append(record)

    def _id(self, way: str, number: int) -> str:
        return f"{self._name}-{way}-r{number}"


def _contenders(choice: Choice, note: Callable[[str], None]) -> dict[str, Contender]:
    """Prepare the ways; leave out those whose libraries are missing.

    `PLAIN` is always among them: the answers of the others are compared with its own.
    """
    workload = CATALOG[choice.workload]
    try:
        arguments = workload.make(choice.size, choice.seed)
        found = {PLAIN: _contender(PLAIN, workload, arguments)}
    except ModuleNotFoundError as error:
        raise MissingLibraryError(
            f"--workload {choice.workload} needs more: {error}; {PIP}"
        ) from error
    for way in choice.ways or dict.fromkeys([*workload.ways, *workload.absent]):
        if way not in workload.ways or way in workload.absent:
            note(f"{way} is left out: {workload.absent.get(way, NOT_WRITTEN)}")
            continue
        try:
            found[way] = _contender(way, workload, arguments)
        except ModuleNotFoundError as error:
            if choice.ways is not None:
                raise OptionError(f"--ways {way}: {error}; {PIP}") from error
            note(f"{way} is left out: {error}; {PIP}")
    return found


def _contender(way: str, workload: Workload, arguments: Sequence[Any]) -> Contender:
    run = workload.ways[way](*arguments)
    exact = way == PLAIN or (way == OURS and workload.exact)
    return Contender(way, lambda: Answer((exact, run())), on_cluster=False)


def retain_memory() -> None:
    """Tell glibc to keep memory that is freed, for all ways alike.

    Else each large temporary of NumPy is new memory that the system clears page by page, which
    takes longer than the arithmetic, and differs from one system to the next. A new thread may
    take an arena that has kept nothing yet; with one per core it takes one that others used.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, -1)
        libc.mallopt(M_ARENA_MAX, cores())
