"""Values of options on Dask: a pipeline over a Split, dask.array, and a task per block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import dask
import dask.array as da
import numpy as np
from distributed import Future, futures_of

from benchmarks.measure import benchmark
from spliter import split
from spliter.pipeline import pipeline
from spliter_experiments.compare.data.sources import Floats, GeneratedPoints, cut_rows
from spliter_experiments.compare.engines.dask_engine import DaskEngine, connect, persist, wait_for
from spliter_experiments.compare.engines.engine import ClusterChoice
from spliter_experiments.harness.equal import same
from spliter_experiments.harness.runner import Answer, Bench, Check, Measurement, Way, run_rounds
from spliter_experiments.harness.table import Grid, quartiles, size
from spliter_experiments.pipelines.arrays import black_scholes

RANGES: Final = ((10.0, 200.0), (10.0, 200.0), (0.1, 3.0), (0.01, 0.08), (0.05, 0.6))
"""Prices, strikes, years, rates and volatilities."""


@dataclass(frozen=True)
class Column(GeneratedPoints):
    """Uniform random numbers between two bounds, shape (rows,)."""

    low: float = 0.0
    high: float = 1.0

    def read(self, start: int, stop: int) -> Floats:
        found: Floats = self.low + (self.high - self.low) * super().read(start, stop)[:, 0]
        return found


def by_pipeline(columns: Sequence[da.Array]) -> list[da.Array]:
    """Run one task per partition; the Split stays open until they are done."""
    with split(*columns) as partitions:
        results = list(pipeline(black_scholes)(partitions))
        wait_for([future for one in results for future in results_of(one)])
    return results


def by_dask(columns: Sequence[Any]) -> list[da.Array]:
    return list(dask.persist(*black_scholes(*columns)))


def per_block(columns: Sequence[da.Array]) -> list[da.Array]:
    """Run one task per block, which computes calls and puts."""
    both = da.map_blocks(
        lambda *blocks: np.stack(black_scholes(*blocks)),
        *columns,
        dtype=np.float64,
        new_axis=0,
        chunks=((2,), columns[0].chunks[0]),
    )
    return [both.persist()]


RUNS: Final[dict[str, Callable[[Sequence[da.Array]], list[da.Array]]]] = {
    "pipeline": by_pipeline,
    "dask": by_dask,
    "per-block": per_block,
}


def results_of(array: da.Array) -> list[Future[Any]]:
    """Return the futures of a persisted array, or of the tasks whose results hold its blocks."""
    tasks = dict(array.__dask_graph__()).values()
    held = {one for task in tasks for one in getattr(task, "args", ()) if isinstance(one, Future)}
    return [*futures_of(array), *held]


def measure(engine: DaskEngine, rows: int, blocks: int, rounds: int) -> list[Measurement]:
    """Check that all ways give the same bits, then run them in interleaved rounds."""
    columns = [
        persist(engine.client, Column(rows, 1, seed, *ends), cut_rows(rows, blocks), np.empty(0))
        for seed, ends in enumerate(RANGES)
    ]
    check = Check(lambda left, right: same(left, right, exact=True))
    for way, run in RUNS.items():
        check.check_equal(way, np.vstack([one.compute() for one in run(columns)]))

    def solve(run: Callable[[Sequence[da.Array]], list[da.Array]]) -> Answer:
        """End when all results are at the workers, and keep none."""
        for one in run(columns):
            wait_for(results_of(one))
        return Answer(None)

    ways = {way: Way(way, lambda run=run: solve(run)) for way, run in RUNS.items()}  # type: ignore[misc]
    with engine.meter() as meter:
        idle = engine.idle_state(columns).wait
        bench = Bench(ways, reading=meter.reading, wait_until_idle=idle)
        planned = {number: [*RUNS] for number in range(1, rounds + 1)}
        return list(run_rounds(bench, planned, seed=0))


@benchmark
def pipeline_split(
    rounds: int, rows: int = 8_000_000, blocks_per_core: int = 192
) -> Iterator[Grid]:
    """Compare the ways on two workers; tasks and bytes sent between workers are counted."""
    with connect(ClusterChoice(None, 2, 1)) as engine:
        runs = measure(engine, rows, blocks_per_core * engine.cores, rounds)
    lines = []
    base = {one.round: one.seconds for one in runs if one.way == "pipeline"}
    for way in RUNS:
        found = [one for one in runs if one.way == way]
        over = quartiles([one.seconds / base[one.round] for one in found])
        tasks = " to ".join(f"{n:,}" for n in sorted({one.tasks or 0 for one in found}))
        moved = size(max(one.nbytes or 0 for one in found))
        lines.append((way, quartiles([one.seconds for one in found]), over, tasks, moved))
    yield Grid(("way", "seconds", "over pipeline", "tasks", "bytes moved"), tuple(lines))
