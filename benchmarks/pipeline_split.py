"""Values of options on a Dask cluster: a pipeline over a Split, dask.array, and a task per block.

    python benchmarks/pipeline_split.py                     # 192 blocks per core
    python benchmarks/pipeline_split.py --sweep 4 48 192

All ways run the same function of NumPy. Tasks and bytes sent between workers are counted.
"""

from __future__ import annotations

import argparse
import operator
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dask
import dask.array as da
import numpy as np
from distributed import Future, futures_of

from spliter import split
from spliter.pipeline import pipeline
from spliter_experiments.compare.data.blocks import cut_rows
from spliter_experiments.compare.data.sources import Floats, GeneratedPoints
from spliter_experiments.compare.engines.dask_engine import (
    DaskEngine,
    connect,
    persist,
    wait_for,
)
from spliter_experiments.compare.engines.engine import ClusterChoice
from spliter_experiments.harness.runner import (
    Answer,
    Bench,
    Contender,
    Judge,
    Measurement,
    run_rounds,
)
from spliter_experiments.harness.table import Grid, seconds, size, times
from spliter_experiments.pipelines.arrays import black_scholes
from spliter_experiments.pipelines.workload import same

RANGES = ((10.0, 200.0), (10.0, 200.0), (0.1, 3.0), (0.01, 0.08), (0.05, 0.6))
"""Prices, strikes, years, rates and volatilities."""


@dataclass(frozen=True)
class Column(GeneratedPoints):
    """Uniform random numbers between two bounds, shape (rows,)."""

    low: float = 0.0
    high: float = 1.0

    def read(self, start: int, stop: int) -> Floats:
        """Generate rows `start` to `stop`."""
        found: Floats = self.low + (self.high - self.low) * super().read(start, stop)[:, 0]
        return found


def load(engine: DaskEngine, rows: int, blocks: int) -> list[da.Array]:
    """Return the five columns of the options, blocks of one number at one worker."""
    sizes = cut_rows(rows, blocks)
    return [
        persist(engine.client, Column(rows, 1, seed, low, high), sizes, np.empty(0))
        for seed, (low, high) in enumerate(RANGES)
    ]


def by_pipeline(columns: Sequence[da.Array]) -> list[da.Array]:
    """Run one task per partition; the Split stays open until they are done."""
    with split(*columns) as partitions:
        results = list(pipeline(black_scholes)(partitions))
        wait_for([future for one in results for future in results_of(one)])
    return results


def by_dask(columns: Sequence[Any]) -> list[da.Array]:
    """Run the graph of dask.array."""
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


RUNS: dict[str, Callable[[Sequence[da.Array]], list[da.Array]]] = {
    "pipeline": by_pipeline,
    "dask": by_dask,
    "per-block": per_block,
}


def results_of(array: da.Array) -> list[Future[Any]]:
    """Return the futures of a persisted array, or of the tasks whose results hold its blocks."""
    tasks = dict(array.__dask_graph__()).values()
    held = {one for task in tasks for one in getattr(task, "args", ()) if isinstance(one, Future)}
    return [*futures_of(array), *held]


def contender(way: str, columns: Sequence[da.Array]) -> Contender:
    """Return a way whose time ends when all results are at the workers; it keeps none."""

    def run() -> Answer:
        for one in RUNS[way](columns):
            wait_for(results_of(one))
        return Answer(None)

    return Contender(way, run)


def check_results(columns: Sequence[da.Array]) -> None:
    """Raise if not all ways give the same bits."""
    judge = Judge(lambda left, right: same(left, right, exact=True))
    for way, run in RUNS.items():
        judge.hear(way, np.vstack([one.compute() for one in run(columns)]))


def measure(engine: DaskEngine, rows: int, blocks: int, rounds: int) -> list[Measurement]:
    """Check the results, then run all ways in interleaved rounds."""
    columns = load(engine, rows, blocks)
    check_results(columns)
    with engine.meter() as meter:
        bench = Bench(Judge(operator.eq), meter.reading, engine.rest(columns).wait)
        ways = [contender(way, columns) for way in RUNS]
        planned = {number: [*RUNS] for number in range(1, rounds + 1)}
        return list(run_rounds(bench, ways, planned, seed=0))


def table(runs: Mapping[int, Sequence[Measurement]]) -> Grid:
    """Return medians, and the counts of the runs of each way, which are all alike or a range."""
    rows = []
    for per_core, found in runs.items():
        of = {way: [run for run in found if run.way == way] for way in RUNS}
        medians = {way: statistics.median(run.seconds for run in of[way]) for way in RUNS}
        for way in RUNS:
            tasks = sorted({run.tasks or 0 for run in of[way]})
            moved = max(run.nbytes or 0 for run in of[way])
            over = times(medians[way] / medians["pipeline"])
            shown = " to ".join(f"{count:,}" for count in dict.fromkeys((tasks[0], tasks[-1])))
            rows.append((str(per_core), way, seconds(medians[way]), over, shown, size(moved)))
    headings = ("blocks per core", "way", "median, s", "over pipeline", "tasks", "bytes moved")
    return Grid(headings, tuple(rows))


def main() -> None:
    """Parse the options, measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--sweep", type=int, nargs="+", default=[192], help="blocks per core")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each")
    chosen = parser.parse_args()
    with connect(ClusterChoice(None, chosen.workers, 1)) as engine:
        runs = {
            per_core: measure(engine, chosen.rows, per_core * engine.cores, chosen.rounds)
            for per_core in chosen.sweep
        }
    print("\n".join(table(runs).markdown()))


if __name__ == "__main__":
    main()
