"""See how SplIter's own work grows with the number of blocks and of locations.

    python benchmarks/scale.py planner --image docs/images/scale.png
    python benchmarks/scale.py split --blocks 100000
    python benchmarks/scale.py workers --workers 256
    python benchmarks/scale.py kmeans --rows 16000000

``planner`` times the planner and the indexes alone, without an engine, and measures the memory they
take; ``split`` compares splitting a persisted Dask array with the scheduler's own answer to where
its blocks are, in interleaved rounds; ``workers`` does so with many workers, as light as Dask can
make them, and says how many tasks and blocks a pass comes to; ``kmeans`` fits the same points in
few and in very many blocks, in turn, and makes a single pass with one task per block beside it.
"""

from __future__ import annotations

import argparse
import functools
import pickle
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask_overhead import interleaved, persisted, seconds, show
from distributed import Client, LocalCluster, wait
from planner import placement_of

from spliter import Location, Partition, Placement, Split, plan, split
from spliter._grid import BlockGrid
from spliter._partition import BlockIndexes
from spliter_apps.kmeans import KMeans
from spliter_experiments.compare.data.blocks import cut_rows
from spliter_experiments.compare.engines.dask_engine import DaskEngine
from spliter_experiments.compare.workloads.kmeans import add_partials, sum_block, sum_blocks
from spliter_experiments.compare.workloads.workload import Parts

ROWS = 50
COLUMNS = 20

MOST_TRACED = 10**6
"""Blocks up to which memory is measured: that makes Python ten times as slow."""


@dataclass(frozen=True)
class Point:
    """What one size has cost.

    Parameters
    ----------
    replicas, locations, blocks : int
        The size.
    plan_seconds, index_seconds : float
        To plan; to look up the indexes of all partitions, and of all items of one of them.
    kept, peak : float
        Bytes per block that plan and indexes keep, and took on the way; 0 if not measured.
    """

    replicas: int
    locations: int
    blocks: int
    plan_seconds: float
    index_seconds: float
    kept: float
    peak: float


def measure(blocks: int, locations: int, replicas: int, cores: int, *, traced: bool) -> Point:
    """Plan once, and look up all indexes.

    Parameters
    ----------
    blocks, locations, replicas, cores : int
        How many; cores of each location.
    traced : bool
        Whether to measure memory, which makes the seconds meaningless.

    Returns
    -------
    Point
        Zero for what was not measured.
    """
    placement: Placement = placement_of(blocks, locations, replicas, seed=0)
    capacities: dict[Location, int] = dict.fromkeys(placement.locations, cores)
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
    return Point(
        replicas, locations, blocks, between - start, end - between, kept / blocks, peak / blocks
    )


def best_of(runs: int, *size: int) -> Point:
    """Return the fastest of some runs, with the memory of a further one where that is not slow."""
    fastest = min(
        (measure(*size, traced=False) for _ in range(runs)), key=lambda point: point.plan_seconds
    )
    if fastest.blocks > MOST_TRACED:
        return fastest
    memory = measure(*size, traced=True)
    return Point(
        fastest.replicas,
        fastest.locations,
        fastest.blocks,
        fastest.plan_seconds,
        fastest.index_seconds,
        memory.kept,
        memory.peak,
    )


def planner(options: argparse.Namespace) -> None:
    """Print, and draw, time and memory of planner and indexes."""
    row = "{:>9} {:>10} {:>10} {:>8} {:>11} {:>8} {:>11} {:>11}".format
    print(
        row(
            "replicas",
            "locations",
            "blocks",
            "plan, s",
            "s per 10^6",
            "index, s",
            "B kept",
            "B peak",
        )
    )
    points = []
    for replicas in options.replicas:
        for locations in options.locations:
            for blocks in options.blocks:
                point = best_of(options.runs, blocks, locations, replicas, options.cores)
                points.append(point)
                numbers = (
                    f"{point.plan_seconds:.3f}",
                    f"{point.plan_seconds / blocks * 1e6:.2f}",
                    f"{point.index_seconds:.3f}",
                    f"{point.kept:.0f}",
                    f"{point.peak:.0f}",
                )
                print(row(replicas, locations, blocks, *numbers), flush=True)
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
        measured = [p for p in of_it if p.peak]
        right.plot([p.blocks for p in measured], [p.peak for p in measured], **style)
    left.set(xscale="log", yscale="log", xlabel="blocks", ylabel="seconds for plan and indexes")
    right.set(xscale="log", xlabel="blocks", ylabel="most bytes per block", ylim=(0, None))
    left.legend(fontsize="small")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(image, dpi=100)
    print(f"written: {image}")


def count_blocks(partition: Partition) -> int:
    """Count the blocks of a partition without reading one."""
    return len(partition)


def compare_split(client: Client, blocks: int, rounds: int) -> None:
    """Time ``split`` of an array against ``client.who_has`` of it, and measure the Split."""
    start = time.perf_counter()
    x = persisted(blocks)
    print(f"{blocks} blocks made in {time.perf_counter() - start:.0f} s")
    times = interleaved(lambda: split(x), lambda: client.who_has(x), rounds)
    show(f"split of {blocks} blocks against who_has", *times)
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
    """Compare on a cluster started here."""
    # Hundreds of workers in one process are late with their heartbeats.
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
    """Make points at the workers, in blocks that lie in turn on them."""
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
    """Compare k-means on few and on many blocks, and single passes of other ways on many."""
    centers = np.random.default_rng(1).normal(size=(8, COLUMNS))
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        many = points(client, options.rows, options.blocks)
        few = [points(client, options.rows, 96)]

        def fit(x: da.Array) -> None:
            KMeans(8, init=centers, n_init=1, max_iter=10, tol=0, materialize=False).fit(x)

        times = interleaved(lambda: fit(many), lambda: fit(few[0]), options.rounds)
        show(f"k-means, {options.blocks} blocks against 96", *times)
        few.clear()  # room for the chunks of rechunking

        def by_spliter() -> None:
            add_partials(client.gather(split(many).map(_sums_of, centers)))

        def by_blocks(x: da.Array) -> None:
            parts = Parts(DaskEngine(client), x, None, ())
            parts.merge(add_partials, parts.call(sum_block, centers=centers))

        def by_rechunk() -> None:
            by_blocks(many.rechunk((-(-options.rows // 2), COLUMNS), method="tasks").persist())

        passes = {
            "SplIter, split included": by_spliter,
            "one task per block": functools.partial(by_blocks, many),
            "rechunked to one chunk per core": by_rechunk,
        }
        for name, one_pass in passes.items():
            print(f"one pass, {name}: {seconds(one_pass):.2f} s", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one of the commands.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command line; that of the process by default.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    commands = parser.add_subparsers(required=True)
    curve = commands.add_parser("planner", help="the planner and the indexes, without an engine")
    curve.add_argument("--blocks", type=int, nargs="+", default=[10**4, 10**5, 10**6, 10**7])
    curve.add_argument("--replicas", type=int, nargs="+", default=[1, 3])
    curve.add_argument("--locations", type=int, nargs="+", default=[100, 10_000])
    curve.add_argument("--cores", type=int, default=4, help="of each location")
    curve.add_argument("--runs", type=int, default=1)
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
