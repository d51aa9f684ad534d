"""Run a comparison: for each number of blocks, load the data and run every way in rounds.

Runs recorded in the results folder are not repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from spliter_experiments.compare.data.blocks import cut_rows
from spliter_experiments.compare.data.sources import Dataset
from spliter_experiments.compare.engines.engine import (
    ClusterChoice,
    Engine,
    EngineKind,
    Meter,
    Resting,
)
from spliter_experiments.compare.engines.placement import Placement
from spliter_experiments.compare.floor import start_floor
from spliter_experiments.compare.registry import ways_of, ways_on
from spliter_experiments.compare.ways import FLOOR, IDEAL, OFF_CLUSTER, ONE_PROCESS
from spliter_experiments.compare.workloads.workload import App, Site, Value
from spliter_experiments.harness.console import Listener
from spliter_experiments.harness.errors import OptionError
from spliter_experiments.harness.facts import Facts, facts
from spliter_experiments.harness.records import (
    COMPARE,
    Record,
    ResultsFolder,
    digest_of,
    record_of,
)
from spliter_experiments.harness.runner import Bench, Contender, Judge, run_rounds
from spliter_experiments.harness.summary import Summary, summarise

UNPOSED = object()
"""Placeholder for a problem that the app has not posed yet."""

NOT_COMPUTED = ("command", "cluster", "rounds")
"""Settings that do not change what a run computes, so they are not part of the plan's digest."""


@dataclass(frozen=True)
class Settings:
    """Options common to all comparisons; without `ways`, all available ones run."""

    engine: EngineKind
    cluster: ClusterChoice
    ways: tuple[str, ...] | None
    blocks_per_core: tuple[int, ...]
    rounds: int
    seed: int
    placement: Placement = Placement.EVEN
    command: str = ""

    def __post_init__(self) -> None:
        self.engine.check(self.placement)
        if self.rounds < 1:
            raise OptionError(f"--rounds must be at least 1, got {self.rounds}")
        if not self.blocks_per_core or min(self.blocks_per_core) < 1:
            raise OptionError(
                f"there must be at least 1 block per core, got {self.blocks_per_core}"
            )


@dataclass
class Comparison:
    """Settings and records of a comparison, complete or not."""

    app: str
    settings: Mapping[str, Value]
    ways: tuple[str, ...]
    records: list[Record] = field(default_factory=list)
    subject: str = ""

    def summaries(self) -> list[Summary]:
        """Return medians and quartiles per way and number of blocks."""
        return summarise(self.records, self.ways)

    def complete_rounds(self) -> int:
        """Return the least number of finished runs of any way at any number of blocks."""
        return min((one.runs for one in self.summaries()), default=0)


@dataclass
class _Subject:
    """A data set, the problem posed on it, and the judge of its answers."""

    dataset: Dataset
    judge: Judge
    problem: Any = UNPOSED


@dataclass(frozen=True)
class _Stage:
    """State that does not depend on the number of blocks."""

    app: App[Any]
    settings: Settings
    subjects: Sequence[_Subject]
    listener: Listener
    engine: Engine
    ways: tuple[str, ...]
    processes: Mapping[str, Any]
    meter: Meter
    empty: Resting

    def contender(self, way: str, site: Site[Engine], problem: Any) -> Contender:
        """Return a way as a contender for the runner."""
        if way in OFF_CLUSTER:
            return self.app.in_processes(way, site, problem)
        run = ways_of(self.settings.engine, type(self.app)).run[way]
        return Contender(way, lambda: run(site, problem))

    def about(self) -> dict[str, Value]:
        """Return the settings to record."""
        settings, points = self.settings, self.subjects[0].dataset.points
        return {
            "command": settings.command,
            "input": points.origin,
            "rows": points.rows,
            "columns": list(points.columns.names),
            **self.app.kept(),
            "backend": settings.engine.name,
            "placement": settings.placement.value,
            "cluster": settings.cluster.address or "embedded",
            "workers": self.engine.workers,
            "cores": self.engine.cores,
            "rounds": settings.rounds,
            "datasets": len(self.subjects),
            "seed": settings.seed,
        }


def run_comparison(
    app: App[Any],
    settings: Settings,
    datasets: Sequence[Dataset],
    listener: Listener,
    folder: ResultsFolder | None = None,
    interrupted: Callable[[Comparison], None] = lambda _: None,
) -> Comparison:
    """Run every way of an app in interleaved rounds, for each number of blocks per core.

    All data sets have the same number of rows, and round numbers continue from one to the next.
    Runs that the folder holds are not repeated. On Ctrl-C `interrupted` receives the comparison so
    far, before the cluster is closed.
    """
    for dataset in datasets:
        app.check(dataset)
    rows = datasets[0].points.rows
    if settings.cluster.address is None:  # its size is known before it is started
        started = settings.cluster.workers * settings.cluster.threads
        cut_rows(rows, max(settings.blocks_per_core) * started)
    with _staged(app, settings, datasets, listener) as stage:
        found = Comparison(app.name, stage.about(), stage.ways, subject=app.subject)
        blockings = {
            per_core: cut_rows(rows, per_core * stage.engine.cores)
            for per_core in settings.blocks_per_core
        }
        journal = _Journal(stage, found, folder, facts())
        total = len(datasets) * (settings.rounds + 1)
        listener.begin(len(blockings) * len(stage.ways) * total)
        try:
            for per_core, row_chunks in blockings.items():
                for number in range(len(datasets)):
                    _measure(stage, journal, number, per_core, row_chunks)
        except KeyboardInterrupt:
            # Tasks are cancelled now; silence the warnings of code that waits for them.
            logging.disable()
            listener.note("interrupted; closing the cluster")
            if found.records:
                found.settings = {**found.settings, "interrupted": True}
                interrupted(found)
            raise
    return found


class _Journal:
    """Turns measurements into records, stores them, and knows the runs already recorded."""

    def __init__(
        self, stage: _Stage, found: Comparison, folder: ResultsFolder | None, here: Facts
    ) -> None:
        computed = {k: v for k, v in found.settings.items() if k not in NOT_COMPUTED}
        self._digest = digest_of(computed)
        self._name = f"{found.app}-{self._digest}"
        self._stage, self._found, self._folder, self._here = stage, found, folder, here
        self._done: dict[str, Record] = {}
        if folder is not None:
            folder.check_fits(COMPARE, "", self._digest, here)
            folder.keep_plan(self._name, found.settings)
            there = folder.records() if folder.done() else []
            self._done = {one.run_id: one for one in there if one.plan_digest == self._digest}

    def left(self, per_core: int, rounds: Sequence[int]) -> dict[int, list[str]]:
        """Return the ways left to run in each round; add the recorded runs to the comparison."""
        left: dict[int, list[str]] = {}
        for number in rounds:
            for way in self._stage.ways:
                done = self._done.get(self._id(per_core, way, number))
                if done is None:
                    left.setdefault(number, []).append(way)
                else:
                    self._found.records.append(done)
        return left

    def keep(self, run: Any, per_core: int, blocks: int, dataset: Dataset) -> None:
        """Add the record of a run."""
        engine, settings = self._stage.engine, self._stage.settings
        record = record_of(
            run,
            self._here,
            settings.command,
            run_id=self._id(per_core, run.way, run.round),
            figure=COMPARE,
            app=self._found.app,
            size=self._found.subject,
            plan_digest=self._digest,
            engine=settings.engine.name,
            configuration=run.way,
            way=run.way,
            nodes=engine.workers,
            workers=engine.workers,
            threads=engine.cores // engine.workers,
            blocks=blocks,
            blocks_per_core=float(per_core),
            rows=dataset.points.rows,
            queries=0 if dataset.held_out is None else dataset.held_out.rows,
            seed=settings.seed,
            x=float(per_core),
        )
        self._found.records.append(record)
        if self._folder is not None:
            self._folder.append(record)

    def _id(self, per_core: int, way: str, number: int) -> str:
        return f"{self._name}-b{per_core}-{way}-r{number}"


def _measure(
    stage: _Stage, journal: _Journal, number: int, per_core: int, row_chunks: Sequence[int]
) -> None:
    """Run the missing runs of one data set at one number of blocks."""
    settings, subject, listener = stage.settings, stage.subjects[number], stage.listener
    first = number * settings.rounds
    left = journal.left(per_core, range(first + 1, first + settings.rounds + 1))
    if not left:
        return
    listener.step(f"loading {len(row_chunks)} blocks", 0)
    stage.empty.wait()  # the blocks of the last one go before the new ones come
    dataset = subject.dataset
    with stage.app.loaded(
        stage.engine, dataset, row_chunks, settings.placement, **stage.processes
    ) as data:
        if subject.problem is UNPOSED:
            subject.problem = stage.app.pose(data.site)
        runs = run_rounds(
            Bench(subject.judge, stage.meter.reading, data.resting.wait),
            [stage.contender(way, data.site, subject.problem) for way in stage.ways],
            left,
            seed=settings.seed + number,
            step=lambda way, _: listener.step(f"{per_core} blocks per core: {way}", 1),
        )
        for run in runs:
            journal.keep(run, per_core, len(row_chunks), dataset)


@contextmanager
def _staged(
    app: App[Any], settings: Settings, datasets: Sequence[Dataset], listener: Listener
) -> Iterator[_Stage]:
    with ExitStack() as stack:
        listener.step("starting the cluster", 0)
        engine = stack.enter_context(settings.engine.connect(settings.cluster))
        ways = _ways_here(app, settings, engine, listener)
        processes = {}
        if {FLOOR, IDEAL} & set(ways):
            processes["floor"] = stack.enter_context(start_floor(engine.cores))
        if set(ONE_PROCESS) & set(ways):
            processes["machine"] = stack.enter_context(start_floor(1, threads=engine.cores))
        meter = stack.enter_context(engine.meter())
        subjects = [_Subject(dataset, app.judge()) for dataset in datasets]
        empty = engine.rest()
        yield _Stage(app, settings, subjects, listener, engine, ways, processes, meter, empty)


def _ways_here(
    app: App[Any], settings: Settings, engine: Engine, listener: Listener
) -> tuple[str, ...]:
    """Drop ways that are not installed, and local processes if the workers are elsewhere."""
    absent = {**app.absent(), **ways_of(settings.engine, type(app)).absent(engine)}
    if not engine.is_on_this_machine():
        absent |= dict.fromkeys(
            OFF_CLUSTER, "needs workers on the machine where this command runs, to be comparable"
        )
    if settings.ways is not None:
        for way in settings.ways:
            if way in absent:
                raise OptionError(f"--ways {way}: {absent[way]}")
        return settings.ways
    known = [way for way in ways_on(settings.engine, app) if way not in app.on_request]
    for way in known:
        if way in absent:
            listener.note(f"{way} is left out: {absent[way]}")
    return tuple(way for way in known if way not in absent)
