"""How SplIter's own work grows with the number of blocks and of locations."""

from __future__ import annotations

import itertools
import pickle
import time
import tracemalloc
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import dask
import dask.array as da
import numpy as np
from distributed import Client, wait

from benchmarks.measure import Call, Place, benchmark, dask_cluster
from spliter import Location, Partition, gather, split
from spliter.backend import BlockGrid, BlockIndexes, Placement, plan
from spliter_apps.kmeans import KMeans
from spliter_experiments.compare.data.sources import GeneratedPoints
from spliter_experiments.compare.engines.dask_engine import DaskEngine, persist
from spliter_experiments.compare.workloads.kmeans import add_partials, sum_block, sum_blocks
from spliter_experiments.compare.workloads.site import Parts
from spliter_experiments.harness.table import Grid

REPLICAS: Final = (1, 3)
LOCATIONS: Final = (100, 10_000)
CORES: Final = 4
"""Sizes of the plans: holders of each block, locations, and cores of each location."""

MOST_TRACED: Final = 10**6
"""Maximum number of blocks for measuring memory, which makes Python ten times as slow."""


def placement_of(blocks: int, locations: int, replicas: int) -> Placement:
    """Return a placement with blocks of random size, each at `replicas` adjacent locations."""
    random = np.random.default_rng(0)
    first = random.integers(0, locations, blocks)
    holders = (first[:, None] + np.arange(replicas)) % locations
    names = tuple(Location(f"tcp://10.{n // 256}.{n % 256}.1:8786") for n in range(locations))
    starts = np.arange(blocks + 1, dtype=np.int64) * replicas
    return Placement(names, starts, holders.ravel(), random.integers(1, 2**27, blocks))


def plan_once(replicas: int, locations: int, blocks: int, traced: bool) -> tuple[float, float]:
    """Return the seconds of planning, and those of all indexes; or bytes per block: kept, peak."""
    placement = placement_of(blocks, locations, replicas)
    if traced:
        tracemalloc.start()
    start = time.perf_counter()
    planned = plan(placement, dict.fromkeys(placement.locations, CORES))
    between = time.perf_counter()
    grid = BlockGrid.from_chunks(((50,) * blocks, (20,)))
    indexes = [BlockIndexes.of(grid, part.positions) for part in planned]
    end = time.perf_counter()
    assert sum(len(found.positions) for found in indexes) == blocks
    if not traced:
        return between - start, end - between
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return kept / blocks, peak / blocks


@benchmark
def scale_planner(
    blocks: tuple[int, ...] = (10**4, 10**5, 10**6, 10**7), image: Path = Path()
) -> Iterator[Grid]:
    """Measure time and memory of the planner and the indexes, without an engine; plot them."""
    rows, points = [], []
    for replicas, locations, number in itertools.product(REPLICAS, LOCATIONS, blocks):
        size = replicas, locations, number
        planned, indexed = plan_once(*size, traced=False)
        peak = plan_once(*size, traced=True)[1] if number <= MOST_TRACED else 0.0
        points.append((*size, planned + indexed, peak))
        seconds = (planned, indexed)
        memory = f"{peak:.0f}" if peak else "-"
        rows.append((*map(str, size), *(f"{each:.3g}" for each in seconds), memory))
    headings = ("holders", "locations", "blocks", "plan, s", "indexes, s", "bytes per block")
    if image.suffix:
        draw(points, image)
    yield Grid(headings, tuple(rows))


def draw(points: list[tuple[int, int, int, float, float]], image: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for replicas, locations in itertools.product(REPLICAS, LOCATIONS):
        of_it = [point[2:] for point in points if point[:2] == (replicas, locations)]
        style: dict[str, Any] = {
            "label": f"{replicas} holders, {locations:,} locations",
            "marker": "o",
            "linestyle": "-" if replicas == 1 else "--",
        }
        left.plot([one[0] for one in of_it], [one[1] for one in of_it], **style)
        traced = [one for one in of_it if one[2]]
        right.plot([one[0] for one in traced], [one[2] for one in traced], **style)
    left.set(xscale="log", yscale="log", xlabel="blocks", ylabel="seconds for plan and indexes")
    right.set(xscale="log", xlabel="blocks", ylabel="most bytes per block", ylim=(0, None))
    left.legend(fontsize="small")
    figure.savefig(image, dpi=100)


@benchmark
def scale_split(
    rounds: int, blocks: int = 100_000, workers: int = 2, processes: int = 1
) -> Iterator[Place | str]:
    """Compare ``split`` of a persisted array with ``client.who_has``; count what a pass sends.

    With ``--processes 0`` all workers are in this process: there can be hundreds of them.
    """
    settings: dict[str, Any] = {} if processes else {"processes": False, "memory_limit": 0}
    # Heartbeats of hundreds of workers in one process are late.
    with (
        dask.config.set({"distributed.scheduler.worker-ttl": None}),
        dask_cluster(workers, **settings) as client,
    ):
        x = da.ones((blocks, 4), chunks=(1, 4)).persist()
        wait(x)
        label = f"{blocks:,} blocks, {workers} workers"
        yield Place(label, {"who_has": lambda: client.who_has(x), "split": lambda: split(x)})
        tracemalloc.start()
        parts = split(x)
        kept, peak = (nbytes / blocks for nbytes in tracemalloc.get_traced_memory())
        tracemalloc.stop()
        sent = max(len(pickle.dumps(part)) / len(part) for part in parts)
        found = gather(parts.map(count_blocks))
        assert sum(found) == blocks
        yield (
            f"A Split: {kept:.0f} bytes per block at the client, {peak:.0f} while it is made, "
            f"{sent:.0f} sent. A pass: {len(found)} tasks."
        )


def count_blocks(partition: Partition) -> int:
    return len(partition)


def sums_of(partition: Partition, centers: Any) -> Any:
    return sum_blocks(list(partition), centers)


def points_at(client: Client, rows: int, blocks: int) -> da.Array:
    sizes = [rows // blocks] * blocks
    return persist(client, GeneratedPoints(sum(sizes), 20, 0), sizes, np.empty((0, 20)))


@benchmark
def scale_kmeans(rows: int = 16_000_000, blocks: int = 36_864) -> Iterator[Place]:
    """Compare k-means on few and on many blocks of the same data, and passes of other ways."""
    centers = np.random.default_rng(1).random((8, 20))
    with dask_cluster() as client:
        many, few = points_at(client, rows, blocks), points_at(client, rows, 96)

        def fit(x: da.Array) -> None:
            KMeans(8, init=centers, n_init=1, max_iter=10, tol=0, materialize=False).fit(x)

        yield Place("k-means", {"96 blocks": partial(fit, few), "all": partial(fit, many)})
        del few  # memory for the chunks of the rechunk

        def by_blocks(x: da.Array) -> None:
            parts = Parts(DaskEngine(client), x, None, ())
            parts.merge(add_partials, parts.call(sum_block, centers=centers))

        def by_rechunk() -> None:
            by_blocks(many.rechunk((-(-rows // 2), 20), method="tasks").persist())

        def by_spliter() -> None:
            add_partials(gather(split(many).map(sums_of, centers)))

        by_hand = partial(by_blocks, many)
        ways: dict[str, Call] = {"SplIter": by_spliter, "per-block": by_hand, "rechunk": by_rechunk}
        yield Place("one pass", ways)
