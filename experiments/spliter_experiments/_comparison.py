"""Stage a comparison: the cluster, the blockings, the rounds. What is computed, an app says.

An :class:`App` poses one problem and knows the ways to solve it. All the rest is the same for all
of them and is here: at each blocking the data are loaded, every way runs in interleaved rounds
(:mod:`._rounds`), and before each run the cluster is brought to rest (:mod:`._rest`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import dask.array as da
from distributed import Client, Future

from spliter_experiments._blocks import (
    Placement,
    blocks_of,
    cut_rows,
    persist_labels,
    persist_points,
)
from spliter_experiments._cluster import (
    ClusterChoice,
    check_workers,
    connected,
    cores_of,
    is_on_this_machine,
)
from spliter_experiments._datasets import InputChoice
from spliter_experiments._errors import OptionError
from spliter_experiments._facts import facts
from spliter_experiments._floor import Floor, start_floor
from spliter_experiments._inputs import Dataset, Rows
from spliter_experiments._meter import ClusterMeter
from spliter_experiments._rest import Rest
from spliter_experiments._results import Comparison, Stand, Value
from spliter_experiments._rounds import Answer, Contender, Judge, run_rounds

FLOOR = "floor"
"""The way of plain processes, one for each core, without an engine."""

SKLEARN = "sklearn"
"""The way of scikit-learn in one process, with as many threads as there are cores."""

OFF_CLUSTER = (SKLEARN, FLOOR)


@dataclass(frozen=True)
class Settings:
    """What all comparisons can be told.

    Parameters
    ----------
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

    cluster: ClusterChoice
    ways: tuple[str, ...] | None
    blocks_per_core: tuple[int, ...]
    rounds: int
    seed: int
    placement: Placement = Placement.EVEN
    command: str = ""

    def __post_init__(self) -> None:
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
    """

    begin: Callable[[int], None] = field(default=lambda _: None)
    step: Callable[[str, int], None] = field(default=lambda _, __: None)
    note: Callable[[str], None] = field(default=lambda _: None)


@dataclass(frozen=True)
class Site:
    """What the ways of an app find at one blocking.

    Parameters
    ----------
    client : Client
        Of the cluster.
    cores : int
        How many tasks the cluster runs at once.
    dataset : Dataset
        Where the points and what goes with them come from.
    array : dask.array.Array of float64, shape (rows, columns)
        The points, persisted.
    labels : dask.array.Array of int64, shape (rows,), or None
        Their classes, persisted where the points are.
    floor : Floor or None
        A plain process for each core, if that way is asked for.
    machine : Floor or None
        One plain process with a thread for each core, if scikit-learn is asked for.
    """

    client: Client
    cores: int
    dataset: Dataset
    array: da.Array
    labels: da.Array | None = None
    floor: Floor | None = None
    machine: Floor | None = None

    @property
    def row_chunks(self) -> tuple[int, ...]:
        """Rows of each block."""
        chunks: tuple[int, ...] = self.array.chunks[0]
        return chunks

    @property
    def blocks(self) -> list[Future[Any]]:
        """The blocks of the points, in the order of the rows."""
        return blocks_of(self.array)

    @property
    def label_blocks(self) -> list[Future[Any]]:
        """The blocks of the labels, in the order of the rows; none where there are no labels."""
        return [] if self.labels is None else blocks_of(self.labels)

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
        """All ways, in the order in which they are shown."""

    def open(self, choice: InputChoice) -> AbstractContextManager[Dataset]:
        """Open the input, for the time of the comparison."""

    def check(self, dataset: Dataset) -> None:
        """Raise an :class:`._errors.ExperimentError` if the data are not for this app."""

    def absent(self, client: Client) -> Mapping[str, str]:
        """Return the ways that cannot run on a cluster, each with the reason."""

    def pose(self, site: Site) -> ProblemT:
        """Return the problem, the same at every site; asked once, at the first one."""

    def contender(self, way: str, site: Site, problem: ProblemT) -> Contender:
        """Return one of the ways, to be run at a site."""

    def same(self, left: Any, right: Any) -> bool:
        """Tell whether two answers are the same."""

    def kept(self) -> Mapping[str, Value]:
        """Return the settings to be kept in the results."""

    def detail(self) -> str:
        """Return what the title says beside the size of the data."""


@dataclass(frozen=True)
class _Stage:
    """What stays the same from one blocking to the next."""

    app: App[Any]
    client: Client
    dataset: Dataset
    settings: Settings
    ways: tuple[str, ...]
    cores: int
    floor: Floor | None
    machine: Floor | None
    listener: Listener
    judge: Judge
    meter: ClusterMeter
    empty: Rest


def run_comparison(
    app: App[Any], settings: Settings, dataset: Dataset, listener: Listener
) -> Comparison:
    """Solve the problem of an app every way and return what each took.

    Raises
    ------
    ExperimentError
        If the input, the options or the cluster cannot be used, or the ways disagree.
    """
    app.check(dataset)
    with _staged(app, settings, dataset, listener) as stage:
        blockings = [
            (per_core, cut_rows(dataset.points.rows, per_core * stage.cores))
            for per_core in settings.blocks_per_core
        ]
        listener.begin(len(blockings) * len(stage.ways) * (settings.rounds + 1))
        problem: Any = None
        stands: list[Stand] = []
        for per_core, row_chunks in blockings:
            stand, problem = _stand(stage, per_core, row_chunks, problem)
            stands.append(stand)
        kept = _settings_to_keep(stage)
    return Comparison(app.name, kept, stage.ways, tuple(stands), facts())


@contextmanager
def _staged(
    app: App[Any], settings: Settings, dataset: Dataset, listener: Listener
) -> Iterator[_Stage]:
    with ExitStack() as stack:
        listener.step("starting the cluster", 0)
        client = stack.enter_context(connected(settings.cluster))
        check_workers(client)
        cores = cores_of(client)
        ways = _ways_here(app, settings, client, listener)
        floor = stack.enter_context(start_floor(cores)) if FLOOR in ways else None
        machine = None
        if SKLEARN in ways:
            machine = stack.enter_context(start_floor(1, threads=cores))
        meter = stack.enter_context(ClusterMeter(client))
        yield _Stage(
            app=app,
            client=client,
            dataset=dataset,
            settings=settings,
            ways=ways,
            cores=cores,
            floor=floor,
            machine=machine,
            listener=listener,
            judge=Judge(app.same),
            meter=meter,
            empty=Rest.now(client),
        )


def _ways_here(
    app: App[Any], settings: Settings, client: Client, listener: Listener
) -> tuple[str, ...]:
    """Leave out what is not installed, and plain processes where workers are elsewhere."""
    absent = dict(app.absent(client))
    if not is_on_this_machine(client):
        absent |= dict.fromkeys(
            OFF_CLUSTER, "needs workers on the machine where this command runs, to be comparable"
        )
    if settings.ways is not None:
        for way in settings.ways:
            if way in absent:
                raise OptionError(f"--ways {way}: {absent[way]}")
        return settings.ways
    for way in app.ways:
        if way in absent:
            listener.note(f"{way} is left out: {absent[way]}")
    return tuple(way for way in app.ways if way not in absent)


def _stand(
    stage: _Stage, per_core: int, row_chunks: Sequence[int], problem: Any
) -> tuple[Stand, Any]:
    """Measure one blocking; the problem is posed at the first one, for all."""
    client, settings, dataset = stage.client, stage.settings, stage.dataset
    stage.listener.step(f"loading {len(row_chunks)} blocks", 0)
    stage.empty.wait()  # the blocks of the last one go before the new ones come
    array = persist_points(client, dataset.points, row_chunks, settings.placement)
    labels = None
    if dataset.labels is not None:
        labels = persist_labels(client, dataset.labels, row_chunks, settings.placement)
    site = Site(client, stage.cores, dataset, array, labels, stage.floor, stage.machine)
    loaded = Rest.now(client, [*site.blocks, *site.label_blocks])
    if problem is None:
        problem = stage.app.pose(site)
    measurements = run_rounds(
        [stage.app.contender(way, site, problem) for way in stage.ways],
        rounds=settings.rounds,
        seed=settings.seed,
        reading=stage.meter.reading,
        rest=loaded.wait,
        judge=stage.judge,
        step=lambda way: stage.listener.step(f"{per_core} blocks per core: {way}", 1),
    )
    return Stand(per_core, len(row_chunks), tuple(measurements)), problem


def _settings_to_keep(stage: _Stage) -> dict[str, Value]:
    settings, points = stage.settings, stage.dataset.points
    return {
        "command": settings.command,
        "input": points.origin,
        "rows": points.rows,
        "columns": list(points.columns.names),
        **stage.app.kept(),
        "placement": settings.placement.value,
        "cluster": settings.cluster.scheduler or "embedded",
        "workers": len(stage.client.nthreads()),
        "cores": stage.cores,
        "rounds": settings.rounds,
        "seed": settings.seed,
    }
