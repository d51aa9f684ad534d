"""See how SplIter's own work grows with the number of blocks and of locations.

    python benchmarks/scale.py planner --image docs/images/scale.png
    python benchmarks/scale.py split --blocks 100000
    python benchmarks/scale.py workers --workers 256
    python benchmarks/scale.py kmeans --rows 16000000

``planner`` measures time and memory of the planner and the indexes alone, without an engine;
``split`` compares splitting a persisted Dask array with the scheduler's own answer to where its
blocks are, in interleaved rounds; ``workers`` does the same with many in-process workers, and
prints the tasks and blocks of a pass; ``kmeans`` fits the same points in few and in very many
blocks, in turn, and for comparison makes a single pass with one task per block.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import pickle
import statistics
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, wait

from spliter import Location, Partition, Split, split
from spliter.backend import BlockGrid, BlockIndexes, Placement, plan
from spliter_apps.kmeans import KMeans
from spliter_experiments.compare.data.blocks import cut_rows
from spliter_experiments.compare.engines.dask_engine import DaskEngine
from spliter_experiments.compare.workloads.kmeans import add_partials, sum_block, sum_blocks
from spliter_experiments.compare.workloads.workload import Parts
from spliter_experiments.harness.runner import Answer, Bench, Contender, Judge, run_rounds
from spliter_experiments.harness.table import Grid, quartiles

ROWS = 50
COLUMNS = 20

REPLICAS = (1, 3)
LOCATIONS = (100, 10_000)
CORES = 4
"""Sizes of the plans: holders of each block, locations, and cores of each location."""

MOST_TRACED = 10**6
"""Maximum number of blocks for measuring memory, which makes Python ten times as slow."""


def placement_of(blocks: int, locations: int, replicas: int, seed: int) -> Placement:
    """Return a placement with blocks of random size, each at `replicas` adjacent locations."""
    random = np.random.default_rng(seed)
    first = random.integers(0, locations, blocks)
    holders = (first[:, None] + np.arange(replicas)) % locations
    names = tuple(Location(f"tcp://10.{n // 256}.{n % 256}.1:8786") for n in range(locations))
    return Placement(
        names,
        np.arange(blocks + 1, dtype=np.int64) * replicas,
        holders.ravel(),
        random.integers(1, 2**27, blocks),
    )


@dataclass(frozen=True)
class Point:
    """Cost of planning a number of blocks: seconds, and bytes per block (0 if not measured)."""

    replicas: int
    locations: int
    blocks: int
    plan_seconds: float
    index_seconds: float
    kept: float
    peak: float


def measure(replicas: int, locations: int, blocks: int, *, traced: bool) -> Point:
    """Plan once, and compute the indexes of all partitions; tracing memory distorts the times."""
    placement: Placement = placement_of(blocks, locations, replicas, seed=0)
    capacities: dict[Location, int] = dict.fromkeys(placement.locations, CORES)
    chunks = ((ROWS,) * blocks, (20,))
    if traced:
        tracemalloc.start()
    start = time.perf_counter()
    planned = plan(placement, capacities)
    between = time.perf_counter()
    grid = BlockGrid.from_chunks(chunks)
    indexes = [BlockIndexes.of(grid, part.positions) for part in planned]
    end = time.perf_counter()
    if sum(len(found.positions) for found in indexes) != blocks:
        raise RuntimeError("a plan that does not cover the blocks")
    kept, peak = tracemalloc.get_traced_memory() if traced else (0, 0)
    tracemalloc.stop()
    seconds = (between - start, end - between)
    return Point(replicas, locations, blocks, *seconds, kept / blocks, peak / blocks)


def measured(*size: int) -> Point:
    """Measure the times, and memory in a separate run if that is not slow."""
    found = measure(*size, traced=False)
    if found.blocks > MOST_TRACED:
        return found
    memory = measure(*size, traced=True)
    return replace(found, kept=memory.kept, peak=memory.peak)


def planner(options: argparse.Namespace) -> None:
    """Print, and plot, time and memory of planner and indexes."""
    sizes = itertools.product(REPLICAS, LOCATIONS, options.blocks)
    points = [measured(*size) for size in sizes]
    rows = tuple(
        (
            *(str(point.replicas), str(point.locations), str(point.blocks)),
            f"{point.plan_seconds:.3f}",
            f"{point.plan_seconds / point.blocks * 1e6:.2f}",
            f"{point.index_seconds:.3f}",
            *(f"{point.kept:.0f}", f"{point.peak:.0f}"),
        )
        for point in points
    )
    headings = ("replicas", "locations", "blocks", "plan, s", "s per 10^6", "index, s")
    print("\n".join(Grid((*headings, "B kept", "B peak"), rows).markdown()))
    if options.image is not None:
        draw(points, options.image)


def draw(points: Sequence[Point], image: Path) -> None:
    """Plot seconds, and bytes per block, against the number of blocks."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    curves = sorted({(point.replicas, point.locations) for point in points})
    for number, (replicas, locations) in enumerate(curves):
        of_it = [p for p in points if (p.replicas, p.locations) == (replicas, locations)]
        blocks = [point.blocks for point in of_it]
        holders = "1 holder" if replicas == 1 else f"{replicas} holders"
        style: dict[str, Any] = {
            "label": f"{holders}, {locations:,} locations",
            "marker": "os^Dv<>P"[number % 8],
            "color": ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")[number % 6],
            "linestyle": "-" if replicas == 1 else "--",
        }
        left.plot(blocks, [p.plan_seconds + p.index_seconds for p in of_it], **style)
        traced = [p for p in of_it if p.peak]
        right.plot([p.blocks for p in traced], [p.peak for p in traced], **style)
    left.set(xscale="log", yscale="log", xlabel="blocks", ylabel="seconds for plan and indexes")
    right.set(xscale="log", xlabel="blocks", ylabel="most bytes per block", ylim=(0, None))
    left.legend(fontsize="small")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(image, dpi=100)
    print(f"written: {image}")


def compared(title: str, first: Callable[[], Any], second: Callable[[], Any], rounds: int) -> None:
    """Run two actions in interleaved rounds; print medians, and the ratio of each round."""

    def contender(name: str, action: Callable[[], Any]) -> Contender:
        def run() -> Answer:
            action()
            return Answer(None)  # the action's result would be kept alive

        return Contender(name, run)

    contenders = [contender("first", first), contender("second", second)]
    todo = dict.fromkeys(range(1, rounds + 1), ("first", "second"))
    runs = list(run_rounds(Bench(Judge(lambda _, __: True)), contenders, todo, seed=0))
    found = {(run.way, run.round): run.seconds for run in runs}
    one, other = ([found[way, number] for number in todo] for way in ("first", "second"))
    ratios = [a / b for a, b in zip(one, other, strict=True)]
    medians = [f"{1e3 * statistics.median(taken):.1f} ms" for taken in (one, other)]
    print(f"{title}: {' against '.join(medians)}, ratio {quartiles(ratios)}", flush=True)


def seconds(action: Callable[[], Any]) -> float:
    """Return the duration of an action."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def persisted(blocks: int) -> Any:
    """Return an array of small blocks in the workers' memory."""
    x = da.ones((blocks, 4), chunks=(1, 4)).persist()
    wait(x)
    return x


def count_blocks(partition: Partition) -> int:
    """Count the blocks of a partition without reading one."""
    return len(partition)


def compare_split(client: Client, blocks: int, rounds: int) -> None:
    """Time ``split`` of an array against ``client.who_has`` of it, and measure the Split."""
    start = time.perf_counter()
    x = persisted(blocks)
    print(f"{blocks} blocks made in {time.perf_counter() - start:.0f} s")
    title = f"split of {blocks} blocks against who_has"
    compared(title, lambda: split(x), lambda: client.who_has(x), rounds)
    tracemalloc.start()
    parts = split(x)
    kept, peak = (nbytes / blocks for nbytes in tracemalloc.get_traced_memory())
    tracemalloc.stop()
    print(f"a Split keeps {kept:.0f} bytes per block at the client, {peak:.0f} while it is made")
    sent = max(len(pickle.dumps(part)) / len(part) for part in parts)
    print(
        f"{len(parts)} partitions at {len(parts.locations)} locations; "
        f"{sent:.0f} bytes per block are sent"
    )
    report_pass(client, parts)


def report_pass(client: Client, parts: Split) -> None:
    """Time a first pass, which sends the lists of blocks, and a second one."""
    for name in ("first", "second"):
        found: list[int] = []
        taken = seconds(functools.partial(_gather, client, parts, found))
        if sum(found) != parts.nblocks:
            raise RuntimeError(f"{sum(found)} blocks in a pass over {parts.nblocks}")
        print(f"{name} pass: {1e3 * taken:.0f} ms for {len(found)} tasks, {sum(found)} blocks")


def _gather(client: Client, parts: Split, found: list[int]) -> None:
    found += client.gather(parts.map(count_blocks))


def on_cluster(options: argparse.Namespace, **settings: Any) -> None:
    """Run the comparison on a cluster started here."""
    # Heartbeats of hundreds of workers in one process are late.
    with dask.config.set({"distributed.scheduler.worker-ttl": None}):
        start = time.perf_counter()
        with (
            LocalCluster(
                n_workers=options.workers,
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",
                **settings,
            ) as cluster,
            Client(cluster) as client,
        ):
            print(f"{options.workers} workers started in {time.perf_counter() - start:.0f} s")
            compare_split(client, options.blocks, options.rounds)


def points(client: Client, rows: int, blocks: int) -> da.Array:
    """Make points at the workers, with blocks distributed round robin."""
    seats = sorted(client.scheduler_info()["workers"])
    chunks = (cut_rows(rows, blocks), (COLUMNS,))
    x: da.Array = da.map_blocks(_block_of_points, chunks=chunks, dtype=float, meta=np.zeros((0, 0)))
    with dask.annotate(workers=lambda key: seats[key[1] % len(seats)]):
        x = x.persist(optimize_graph=False)
    wait(x)
    return x


def _block_of_points(block_info: Any = None) -> Any:
    (first, stop), _ = block_info[None]["array-location"]
    return np.random.default_rng(first).normal(size=(stop - first, COLUMNS))


def _sums_of(partition: Partition, centers: Any) -> Any:
    return sum_blocks(list(partition), centers)


def kmeans(options: argparse.Namespace) -> None:
    """Compare k-means with few and with many blocks, and single passes of other ways with many."""
    centers = np.random.default_rng(1).normal(size=(8, COLUMNS))
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        many = points(client, options.rows, options.blocks)
        few = [points(client, options.rows, 96)]

        def fit(x: da.Array) -> None:
            KMeans(8, init=centers, n_init=1, max_iter=10, tol=0, materialize=False).fit(x)

        title = f"k-means, {options.blocks} blocks against 96"
        compared(title, lambda: fit(many), lambda: fit(few[0]), options.rounds)
        few.clear()  # free memory for the chunks of the rechunk

        def by_spliter() -> None:
            add_partials(client.gather(split(many).map(_sums_of, centers)))

        def by_blocks(x: da.Array) -> None:
            parts = Parts(DaskEngine(client), x, None, ())
            parts.merge(add_partials, parts.call(sum_block, centers=centers))

        def by_rechunk() -> None:
            by_blocks(many.rechunk((-(-options.rows // 2), COLUMNS), method="tasks").persist())

        passes: dict[str, Callable[[], Any]] = {
            "SplIter, split included": by_spliter,
            "one task per block": functools.partial(by_blocks, many),
            "rechunked to one chunk per core": by_rechunk,
        }
        for name, one_pass in passes.items():
            print(f"one pass, {name}: {seconds(one_pass):.2f} s", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    commands = parser.add_subparsers(required=True)
    curve = commands.add_parser("planner", help="the planner and the indexes, without an engine")
    curve.add_argument("--blocks", type=int, nargs="+", default=[10**4, 10**5, 10**6, 10**7])
    curve.add_argument("--image", type=Path)
    curve.set_defaults(command=planner)
    run: Callable[[argparse.Namespace], None]
    for name, workers, run in (
        ("split", 2, on_cluster),
        ("workers", 256, functools.partial(on_cluster, processes=False, memory_limit=0)),
    ):
        command = commands.add_parser(name, help=f"split against who_has, {workers} workers")
        command.add_argument("--blocks", type=int, default=100_000)
        command.add_argument("--workers", type=int, default=workers)
        command.add_argument("--rounds", type=int, default=7)
        command.set_defaults(command=run)
    command = commands.add_parser("kmeans", help="k-means on few and on very many blocks")
    command.add_argument("--rows", type=int, default=16_000_000)
    command.add_argument("--blocks", type=int, default=36_864)
    command.add_argument("--rounds", type=int, default=5)
    command.set_defaults(command=kmeans)
    options = parser.parse_args(arguments)
    options.command(options)


if __name__ == "__main__":
    main()
