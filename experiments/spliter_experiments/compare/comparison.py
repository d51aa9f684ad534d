"""Stage a comparison: the cluster, the blockings, the rounds. What is computed, an app says.

An :class:`App` poses one problem, an engine (:mod:`.engine`) has ways to solve it. All the rest is
the same for all of them and is here: at each blocking the data are loaded, every way runs in
interleaved rounds (:mod:`.runner`), and before each run the cluster is brought to rest. Several
sets of data take their turns at each blocking.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

from spliter_experiments.compare.data.blocks import NO_LABELS, cut_rows, no_points
from spliter_experiments.compare.data.datasets import InputChoice
from spliter_experiments.compare.data.sources import Dataset, Rows
from spliter_experiments.compare.engines.engine import (
    ClusterChoice,
    Engine,
    EngineKind,
    Meter,
    Resting,
    Ways,
)
from spliter_experiments.compare.engines.placement import Placement
from spliter_experiments.compare.floor import Floor, start_floor
from spliter_experiments.compare.results import Comparison, Stand, Value
from spliter_experiments.compare.ways import FLOOR, OFF_CLUSTER, SKLEARN
from spliter_experiments.harness.errors import OptionError
from spliter_experiments.harness.facts import facts
from spliter_experiments.harness.runner import Answer, Contender, Judge, Measurement, run_rounds

UNPOSED = object()
"""In place of a problem that no app has posed yet."""


@dataclass(frozen=True)
class Settings:
    """What all comparisons can be told.

    Parameters
    ----------
    engine : EngineKind
        On what.
    cluster : ClusterChoice
        Where.
    ways : tuple of str or None
        Which ways, None for all that can be compared there.
    blocks_per_core : tuple of int
        Blockings.
    rounds, seed : int
        Rounds that count, seed of the order of the ways.
    placement : Placement
        How the blocks are spread over the workers.
    command : str
        The command line, to be kept beside the results.
    """

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


@dataclass(frozen=True)
class Listener:
    """Who is told how far the comparison is.

    Parameters
    ----------
    begin : callable
        Told the number of runs to come.
    step : callable
        Told what has just been done, and by how many runs it gets on.
    note : callable
        Told what the user should know.
    interrupted : callable
        Told what has been measured so far when Ctrl-C ends the comparison, before the cluster is
        closed; not called if no round was complete.
    """

    begin: Callable[[int], None] = field(default=lambda _: None)
    step: Callable[[str, int], None] = field(default=lambda _, __: None)
    note: Callable[[str], None] = field(default=lambda _: None)
    interrupted: Callable[[Comparison], None] = field(default=lambda _: None)


EngineT_co = TypeVar("EngineT_co", bound=Engine, covariant=True)


@dataclass(frozen=True)
class Site(Generic[EngineT_co]):
    """What the ways of an app find at one blocking.

    Parameters
    ----------
    engine : Engine
        The cluster.
    dataset : Dataset
        Where the points and what goes with them come from.
    array : collection of float64, shape (rows, columns)
        The points, a collection of the engine's.
    labels : collection of int64, shape (rows,), or None
        Their classes, where the points are.
    floor : Floor or None
        A plain process for each core, if that way is asked for.
    machine : Floor or None
        One plain process with a thread for each core, if scikit-learn is asked for.
    note : callable
        Told what the user should know about the data.
    """

    engine: EngineT_co
    dataset: Dataset
    array: Any
    labels: Any = None
    floor: Floor | None = None
    machine: Floor | None = None
    note: Callable[[str], None] = field(default=lambda _: None)

    @property
    def row_chunks(self) -> tuple[int, ...]:
        """Rows of each block."""
        chunks: tuple[int, ...] = self.array.chunks[0]
        return chunks

    def contender_in_processes(
        self, way: str, run: Callable[[Floor], Answer], *aligned: Rows
    ) -> Contender:
        """Return a way that runs in plain processes.

        They hold the points only while they are measured: with the blocks on the cluster and what
        a rechunk makes of them, memory would otherwise hold the points three times.

        Parameters
        ----------
        way : str
            ``FLOOR``, for a process for each core with its share of the blocks, or ``SKLEARN``,
            for one process with all rows in one block.
        run : callable
            What is timed; gets the processes, in which the points are loaded.
        *aligned : Rows
            What is loaded with the points.
        """
        processes = self.floor if way == FLOOR else self.machine
        assert processes is not None
        row_chunks = self.row_chunks if way == FLOOR else (sum(self.row_chunks),)
        points = self.dataset.points
        return Contender(
            way,
            lambda: run(processes),
            prepare=lambda: processes.load(points, row_chunks, *aligned),
            release=processes.drop,
            on_cluster=False,
        )


ProblemT = TypeVar("ProblemT")


class App(Protocol[ProblemT]):
    """What is compared: one problem, the ways to solve it, and when two answers are the same."""

    @property
    def name(self) -> str:
        """What the user calls it."""

    @property
    def ways(self) -> tuple[str, ...]:
        """All ways there are on some engine, in the order in which they are shown."""

    def open(self, choice: InputChoice) -> AbstractContextManager[Dataset]:
        """Open the input, for the time of the comparison."""

    def check(self, dataset: Dataset) -> None:
        """Raise an :class:`.errors.ExperimentError` if the data are not for this app."""

    def pose(self, site: Site[Engine]) -> ProblemT:
        """Return the problem, the same at every site of the data; asked once, at the first one."""

    def in_processes(self, way: str, site: Site[Engine], problem: ProblemT) -> Contender:
        """Return one of the ways off the cluster."""

    def same(self, left: Any, right: Any) -> bool:
        """Tell whether two answers are the same."""

    def kept(self) -> Mapping[str, Value]:
        """Return the settings to be kept in the results."""

    def detail(self) -> str:
        """Return what the title says beside the size of the data."""


@dataclass
class _Subject:
    """A set of data: the problem posed of it, and what its answers are."""

    dataset: Dataset
    judge: Judge
    problem: Any = UNPOSED


@dataclass(frozen=True)
class _Stage:
    """What stays the same from one blocking to the next."""

    app: App[Any]
    engine: Engine
    table: Ways
    subjects: Sequence[_Subject]
    settings: Settings
    ways: tuple[str, ...]
    floor: Floor | None
    machine: Floor | None
    listener: Listener
    meter: Meter
    empty: Resting

    def contender(self, way: str, site: Site[Engine], problem: Any) -> Contender:
        """Return one of the ways, to be run at a site."""
        if way in OFF_CLUSTER:
            return self.app.in_processes(way, site, problem)
        return Contender(way, lambda: self.table.run[way](site, problem))


def ways_on(kind: EngineKind, app: App[Any]) -> tuple[str, ...]:
    """Return those ways of an app that there are on an engine, in the order of showing.

    Those that the engine alone has come after the others, and before those off the cluster.
    """
    table = kind.ways[app.name]
    on_cluster = [way for way in app.ways if way in table.run]
    off_cluster = [way for way in app.ways if way in OFF_CLUSTER]
    return (*on_cluster, *table.own, *off_cluster)


def run_comparison(
    app: App[Any], settings: Settings, datasets: Sequence[Dataset], listener: Listener
) -> Comparison:
    """Solve the problem of an app every way and return what each took.

    Parameters
    ----------
    app : App
        Poses the problem.
    settings : Settings
        What the user asked for.
    datasets : sequence of Dataset
        One, or several with as many rows; rounds of later ones are numbered on.
    listener : Listener
        Is told how far it is.

    Returns
    -------
    Comparison
        All runs.

    Raises
    ------
    ExperimentError
        If the input, the options or the cluster cannot be used, or the ways disagree.
    """
    for dataset in datasets:
        app.check(dataset)
    rows = datasets[0].points.rows
    if settings.cluster.address is None:  # its size is known before it is started
        started = settings.cluster.workers * settings.cluster.threads
        cut_rows(rows, max(settings.blocks_per_core) * started)
    with _staged(app, settings, datasets, listener) as stage:
        blockings = [
            (per_core, cut_rows(rows, per_core * stage.engine.cores))
            for per_core in settings.blocks_per_core
        ]
        rounds = len(datasets) * (settings.rounds + 1)
        listener.begin(len(blockings) * len(stage.ways) * rounds)
        stands: list[Stand] = []
        try:
            for per_core, row_chunks in blockings:
                stands.append(Stand(per_core, len(row_chunks), ()))
                for measurements in _measured(stage, per_core, row_chunks):
                    more = (*stands[-1].measurements, *measurements)
                    stands[-1] = replace(stands[-1], measurements=more)
        except KeyboardInterrupt:
            # Tasks are cancelled now, and those who wait for them would complain.
            logging.disable()
            listener.note("interrupted; closing the cluster")
            complete = tuple(stand for stand in stands if stand.measurements)
            if complete:
                kept = {**_settings_to_keep(stage), "interrupted": True}
                listener.interrupted(Comparison(app.name, kept, stage.ways, complete, facts()))
            raise
        kept = _settings_to_keep(stage)
    return Comparison(app.name, kept, stage.ways, tuple(stands), facts())


@contextmanager
def _staged(
    app: App[Any], settings: Settings, datasets: Sequence[Dataset], listener: Listener
) -> Iterator[_Stage]:
    with ExitStack() as stack:
        listener.step("starting the cluster", 0)
        engine = stack.enter_context(settings.engine.connect(settings.cluster))
        ways = _ways_here(app, settings, engine, listener)
        floor = stack.enter_context(start_floor(engine.cores)) if FLOOR in ways else None
        machine = None
        if SKLEARN in ways:
            machine = stack.enter_context(start_floor(1, threads=engine.cores))
        meter = stack.enter_context(engine.meter())
        yield _Stage(
            app=app,
            engine=engine,
            table=settings.engine.ways[app.name],
            subjects=[_Subject(dataset, Judge(app.same)) for dataset in datasets],
            settings=settings,
            ways=ways,
            floor=floor,
            machine=machine,
            listener=listener,
            meter=meter,
            empty=engine.rest(),
        )


def _ways_here(
    app: App[Any], settings: Settings, engine: Engine, listener: Listener
) -> tuple[str, ...]:
    """Leave out what is not installed, and plain processes where workers are elsewhere."""
    absent = dict(settings.engine.ways[app.name].absent(engine))
    if not engine.is_on_this_machine():
        absent |= dict.fromkeys(
            OFF_CLUSTER, "needs workers on the machine where this command runs, to be comparable"
        )
    if settings.ways is not None:
        for way in settings.ways:
            if way in absent:
                raise OptionError(f"--ways {way}: {absent[way]}")
        return settings.ways
    known = ways_on(settings.engine, app)
    for way in known:
        if way in absent:
            listener.note(f"{way} is left out: {absent[way]}")
    return tuple(way for way in known if way not in absent)


def _measured(
    stage: _Stage, per_core: int, row_chunks: Sequence[int]
) -> Iterator[list[Measurement]]:
    """Measure one blocking, on one set of data after the other, a round at a time."""
    rounds = stage.settings.rounds
    for number in range(len(stage.subjects)):
        for runs in _measured_on(stage, number, per_core, row_chunks):
            yield [replace(run, round=run.round + number * rounds) for run in runs]


def _measured_on(
    stage: _Stage, number: int, per_core: int, row_chunks: Sequence[int]
) -> Iterator[list[Measurement]]:
    """Measure one set of data; its problem is posed at the first blocking, for all."""
    engine, settings, subject = stage.engine, stage.settings, stage.subjects[number]
    dataset = subject.dataset
    stage.listener.step(f"loading {len(row_chunks)} blocks", 0)
    stage.empty.wait()  # the blocks of the last one go before the new ones come
    with ExitStack() as stack:

        def load(source: Rows, like: Any) -> Any:
            loading = engine.persisted(source, row_chunks, like, settings.placement)
            return stack.enter_context(loading)

        array = load(dataset.points, no_points(dataset.points))
        labels = None if dataset.labels is None else load(dataset.labels, NO_LABELS)
        note = stage.listener.note
        site = Site(engine, dataset, array, labels, stage.floor, stage.machine, note)
        loaded = engine.rest([array] if labels is None else [array, labels])
        if subject.problem is UNPOSED:
            subject.problem = stage.app.pose(site)
        yield from run_rounds(
            [stage.contender(way, site, subject.problem) for way in stage.ways],
            rounds=settings.rounds,
            seed=settings.seed + number,
            reading=stage.meter.reading,
            rest=loaded.wait,
            judge=subject.judge,
            step=lambda way: stage.listener.step(f"{per_core} blocks per core: {way}", 1),
        )


def _settings_to_keep(stage: _Stage) -> dict[str, Value]:
    settings, points = stage.settings, stage.subjects[0].dataset.points
    return {
        "command": settings.command,
        "input": points.origin,
        "rows": points.rows,
        "columns": list(points.columns.names),
        **stage.app.kept(),
        "backend": settings.engine.name,
        "placement": settings.placement.value,
        "cluster": settings.cluster.address or "embedded",
        "workers": stage.engine.workers,
        "cores": stage.engine.cores,
        "rounds": settings.rounds,
        "datasets": len(stage.subjects),
        "seed": settings.seed,
    }
