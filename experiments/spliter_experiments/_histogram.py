"""``spliter compare histogram``: one histogram, every way, at one blocking or several."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import numpy as np
from distributed import Client

from spliter_experiments._blocks import (
    Placement,
    blocks_of,
    bounds_of,
    cut_rows,
    persist_points,
)
from spliter_experiments._cluster import (
    ClusterChoice,
    check_workers,
    connected,
    cores_of,
    is_on_this_machine,
)
from spliter_experiments._errors import OptionError
from spliter_experiments._facts import facts
from spliter_experiments._floor import Floor, start_floor
from spliter_experiments._inputs import Points
from spliter_experiments._kernels import Edges, equal_bins
from spliter_experiments._meter import ClusterMeter
from spliter_experiments._rest import Rest
from spliter_experiments._results import Comparison, Stand, Value
from spliter_experiments._rounds import Contender, Judge, run_rounds
from spliter_experiments._ways import FLOOR, ON_CLUSTER, WAYS, Problem, floor_contender

APP = "histogram"

MOST_CELLS = 10**7
"""Bins of all columns together: every task returns that many counts."""


@dataclass(frozen=True)
class HistogramSettings:
    """What to compare.

    Parameters
    ----------
    cluster : ClusterChoice
        Where.
    ways : tuple of str or None
        Which ways, None for all that can be compared there.
    blocks_per_core : tuple of int
        Blockings.
    bins, rounds, seed : int
        Bins per column, rounds that count, seed of the order of the ways.
    placement : Placement
        How the blocks are spread over the workers.
    command : str
        The command line, to be kept beside the results.
    """

    cluster: ClusterChoice
    ways: tuple[str, ...] | None
    blocks_per_core: tuple[int, ...]
    bins: int
    rounds: int
    seed: int
    placement: Placement = Placement.EVEN
    command: str = ""

    def __post_init__(self) -> None:
        if self.bins < 1:
            raise OptionError(f"--bins must be at least 1, got {self.bins}")
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
class _Stage:
    """What stays the same from one blocking to the next."""

    client: Client
    points: Points
    settings: HistogramSettings
    ways: tuple[str, ...]
    cores: int
    floor: Floor | None
    listener: Listener
    judge: Judge
    meter: ClusterMeter
    empty: Rest


def compare_histogram(
    settings: HistogramSettings, points: Points, listener: Listener
) -> Comparison:
    """Compute the histogram every way and return what each took.

    Raises
    ------
    ExperimentError
        If the input, the options or the cluster cannot be used, or the ways disagree.
    """
    width = len(points.columns)
    if settings.bins**width > MOST_CELLS:
        raise OptionError(
            f"{settings.bins} bins in each of {width} columns are {settings.bins}^{width} bins; "
            f"at most {MOST_CELLS} can be counted: take fewer --bins or fewer columns"
        )
    with _staged(settings, points, listener) as stage:
        blockings = [
            (per_core, cut_rows(points.rows, per_core * stage.cores))
            for per_core in settings.blocks_per_core
        ]
        listener.begin(len(blockings) * len(stage.ways) * (settings.rounds + 1))
        edges: Edges | None = None
        stands: list[Stand] = []
        for per_core, row_chunks in blockings:
            stand, edges = _stand(stage, per_core, row_chunks, edges)
            stands.append(stand)
        kept = _settings_to_keep(stage)
    return Comparison(APP, kept, stage.ways, tuple(stands), facts())


@contextmanager
def _staged(settings: HistogramSettings, points: Points, listener: Listener) -> Iterator[_Stage]:
    with ExitStack() as stack:
        listener.step("starting the cluster", 0)
        client = stack.enter_context(connected(settings.cluster))
        check_workers(client)
        cores = cores_of(client)
        ways = _ways_here(settings, client, listener)
        floor = stack.enter_context(start_floor(cores)) if FLOOR in ways else None
        judge = Judge(lambda left, right: bool(np.array_equal(left, right)))
        meter = stack.enter_context(ClusterMeter(client))
        yield _Stage(
            client=client,
            points=points,
            settings=settings,
            ways=ways,
            cores=cores,
            floor=floor,
            listener=listener,
            judge=judge,
            meter=meter,
            empty=Rest.now(client),
        )


def _ways_here(settings: HistogramSettings, client: Client, listener: Listener) -> tuple[str, ...]:
    """Leave out the floor where plain processes here are no measure for workers elsewhere."""
    if is_on_this_machine(client):
        return settings.ways or WAYS
    if settings.ways is None:
        listener.note("floor is left out: the workers are on other machines than this command")
        return tuple(ON_CLUSTER)
    if FLOOR in settings.ways:
        raise OptionError("--ways floor needs workers on the machine where this command runs")
    return settings.ways


def _stand(
    stage: _Stage, per_core: int, row_chunks: tuple[int, ...], edges: Edges | None
) -> tuple[Stand, Edges]:
    """Measure one blocking; the first one finds the edges for all."""
    client, settings = stage.client, stage.settings
    stage.listener.step(f"loading {len(row_chunks)} blocks", 0)
    stage.empty.wait()  # the blocks of the last one go before the new ones come
    array = persist_points(client, stage.points, row_chunks, settings.placement)
    blocks = blocks_of(array)
    loaded = Rest.now(client, blocks)
    if edges is None:
        edges = equal_bins(bounds_of(client, stage.points, array), settings.bins)
    problem = Problem(client, array, blocks, edges, stage.cores)
    measurements = run_rounds(
        [_contender(stage, way, problem) for way in stage.ways],
        rounds=settings.rounds,
        seed=settings.seed,
        reading=stage.meter.reading,
        rest=loaded.wait,
        judge=stage.judge,
        step=lambda way: stage.listener.step(f"{per_core} blocks per core: {way}", 1),
    )
    return Stand(per_core, len(row_chunks), tuple(measurements)), edges


def _contender(stage: _Stage, way: str, problem: Problem) -> Contender:
    if way == FLOOR:
        assert stage.floor is not None
        return floor_contender(problem, stage.floor, stage.points)
    compute = ON_CLUSTER[way]
    return Contender(way, lambda: compute(problem))


def _settings_to_keep(stage: _Stage) -> dict[str, Value]:
    settings, points = stage.settings, stage.points
    return {
        "command": settings.command,
        "input": points.origin,
        "rows": points.rows,
        "columns": list(points.columns.names),
        "bins": settings.bins,
        "placement": settings.placement.value,
        "cluster": settings.cluster.scheduler or "embedded",
        "workers": len(stage.client.nthreads()),
        "cores": stage.cores,
        "rounds": settings.rounds,
        "seed": settings.seed,
    }
