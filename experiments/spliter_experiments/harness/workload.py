"""Workloads and their cases; run those, and record each run.

A *workload* is one computation with its options. Its *cases* are the places of the table: the same
data, on which all ways run in interleaved rounds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeAlias

import typer

from spliter_experiments.harness.console import Listener
from spliter_experiments.harness.facts import Facts, facts
from spliter_experiments.harness.records import COMPARE, Record, ResultsFolder, digest_of, record_of
from spliter_experiments.harness.runner import Bench, run_rounds
from spliter_experiments.harness.summary import Summary, summarise
from spliter_experiments.harness.table import Grid, summary_grid

Value: TypeAlias = "str | int | float | list[str] | None"

NOT_COMPUTED = ("command", "cluster", "rounds")
"""Settings that do not change what a run computes, so they are not part of the plan's digest."""


@dataclass(frozen=True)
class Options:
    """Options that all workloads share."""

    ways: Annotated[
        str | None, typer.Option(help="Only these ways, between commas; without it, all.")
    ] = None
    rounds: Annotated[int, typer.Option(min=1, help="Interleaved rounds, after a warm-up.")] = 5
    seed: Annotated[int, typer.Option(min=0, help="Of the data and of the order of the ways.")] = 0
    output: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the records of all runs, results.parquet and a plot. Runs that it "
            "holds are not measured again."
        ),
    ] = None

    @property
    def numbers(self) -> range:
        return range(1, self.rounds + 1)


@dataclass(frozen=True)
class Case:
    """One place of the table, with its ways in the order of the columns.

    The label tells it from the other cases of its workload in the names of records. `columns` are
    those of its records that are known in advance (see :class:`.records.Record`), `about` the
    settings of the whole workload, `rounds` the numbers of its rounds; the seed is that of the
    order of the ways. `open` loads the data, and is only called if runs are left. `versions` are
    those of what runs in other environments.
    """

    label: str
    columns: Mapping[str, Any]
    about: Mapping[str, Value]
    ways: tuple[str, ...]
    rounds: Sequence[int]
    seed: int | str
    open: Callable[[], AbstractContextManager[Bench]] = field(repr=False)
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Hash of all that decides what a run computes."""
        return digest_of({k: v for k, v in self.about.items() if k not in NOT_COMPUTED})

    @property
    def plan(self) -> str:
        app, size = self.columns["app"], self.columns["size"]
        return "-".join(filter(None, (app, size, self.digest))).replace(" ", "-")

    def run_id(self, way: str, number: int) -> str:
        return f"{self.plan}-{self.label}-{way}-r{number}"


Cases: TypeAlias = Generator[Case, None, None]
"""Cases of a workload; what all need is open until it is closed."""


class Workload(ABC):
    """A computation to compare; subclasses are frozen dataclasses whose fields are its options."""

    name: ClassVar[str]
    shared: ClassVar[type[Options]] = Options
    """Options that it takes in addition to its own fields."""
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Defaults of those options that are its own."""
    x: ClassVar[str]
    """What `Record.x` is, for the headings of tables and plots."""

    is_plotted: ClassVar[bool] = False
    """Whether the times are drawn as a function of the blocks per core."""

    @property
    def subject(self) -> str:
        """Which of several programs it runs, for records and names of files."""
        return ""

    def each(self) -> Sequence[Self]:
        """Return the workloads that are run one after the other, with a table for each."""
        return [self]

    def launch(self, options: Any, arguments: Sequence[str]) -> int | None:
        """Run the command inside an engine and return its status; None if there is no need to."""
        return None

    @abstractmethod
    def cases(self, options: Any, listener: Listener, command: str) -> Cases:
        """Yield the cases."""

    @abstractmethod
    def title(self, found: Comparison) -> str:
        """Return the title of the table."""

    def grid(self, found: Comparison) -> Grid:
        """Return the table."""
        return summary_grid(found.summaries(), self.x, "times in seconds")

    def overview(self, found: Sequence[Comparison]) -> Sequence[Grid]:
        """Return tables of all workloads that were run one after the other."""
        return []

    def settings(self) -> dict[str, Value]:
        """Return the values of its fields."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}  # type: ignore[arg-type]


@dataclass
class Comparison:
    """Records of a workload, complete or not, and its settings."""

    app: str = ""
    size: str = ""
    about: Mapping[str, Value] = field(default_factory=dict)
    ways: tuple[str, ...] = ()
    records: list[Record] = field(default_factory=list)

    @property
    def stem(self) -> str:
        return "-".join(filter(None, (self.app, self.size)))

    def summaries(self) -> list[Summary]:
        return summarise(self.records, self.ways)

    def rounds(self) -> str:
        if not self.about.get("interrupted"):
            return str(self.about["rounds"])
        return f"interrupted after {min((one.runs for one in self.summaries()), default=0)}"


def run_cases(
    cases: Iterable[Case],
    found: Comparison,
    listener: Listener,
    folder: ResultsFolder | None = None,
) -> None:
    """Run what is left of each case, and add the records to `found`, with those of the folder."""
    at_start = facts()
    done: dict[str, Record] | None = None
    for case in cases:
        here = replace(at_start, versions={**at_start.versions, **case.versions})
        found.app, found.size = case.columns["app"], case.columns["size"]
        found.about, found.ways = case.about, tuple(dict.fromkeys((*found.ways, *case.ways)))
        if folder is not None:
            if done is None:  # of the first case: reading all records takes time
                done = folder.done_so_far(here)
            folder.keep_plan(case.plan, case.about)
        for record in run_case(case, here, listener, folder, done or {}):
            found.records.append(record)


def run_case(
    case: Case,
    here: Facts,
    listener: Listener,
    folder: ResultsFolder | None,
    done: Mapping[str, Record],
) -> Iterator[Record]:
    """Yield the records of a case: first those that are done, then those of new runs."""
    left: dict[int, list[str]] = {}
    for number in case.rounds:
        for way in case.ways:
            record = done.get(case.run_id(way, number))
            if record is None:
                left.setdefault(number, []).append(way)
            else:
                yield record
    if not left:
        return
    with case.open() as bench:
        runs = run_rounds(
            bench,
            left,
            seed=case.seed,
            step=lambda way, _: listener.step(f"{case.label}: {way}", 1),
        )
        for run in runs:
            record = record_of(
                run,
                here,
                str(case.about.get("command", "")),
                **{"figure": COMPARE, "plan_digest": case.digest, "queries": 0, **case.columns},
                run_id=case.run_id(run.way, run.round),
                configuration=run.way,
                way=run.way,
            )
            if folder is not None:
                folder.append(record)
            yield record
