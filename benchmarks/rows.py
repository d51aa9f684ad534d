"""Rows and columns of small blocks: one packed answer per partition, one copy per block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from benchmarks.measure import Place, benchmark, dask_cluster
from spliter import split
from spliter_experiments.harness.table import Run

Array: TypeAlias = npt.NDArray[Any]
Take: TypeAlias = Callable[[Array], Array]
"""Returns rows by their global index."""

COLUMNS, WANTED = 20, 5000
CHOSEN: Final = [3, 7, 11]


def block_of(number: int, rows: int) -> Array:
    first = number * rows * COLUMNS
    return np.arange(first, first + rows * COLUMNS, dtype=np.float64).reshape(rows, COLUMNS)


def by_block(wanted: Array, rows: int) -> tuple[list[int], list[Array], Array]:
    """Return the blocks that have wanted rows, the rows in each, and where each belongs."""
    order = np.argsort(wanted, kind="stable")
    numbers, first = np.unique(wanted[order] // rows, return_index=True)
    return numbers.tolist(), np.split(wanted[order] % rows, first[1:]), np.argsort(order)


@contextmanager
def on_dask(blocks: int, rows: int) -> Iterator[tuple[Any, Take]]:
    import dask.array as da
    from distributed import wait

    with dask_cluster():
        x = da.arange(float(blocks * rows * COLUMNS), chunks=rows * COLUMNS)
        x = x.reshape(-1, COLUMNS).persist()
        wait(x)
        yield x, lambda wanted: x[wanted].compute()


@contextmanager
def on_ray(blocks: int, rows: int) -> Iterator[tuple[Any, Take]]:
    import ray

    from spliter_experiments.compare.engines.engine import ClusterChoice
    from spliter_experiments.compare.engines.ray_engine import connected

    with connected(ClusterChoice(None, workers=2, threads=1)):
        make = ray.remote(block_of).options(scheduling_strategy="SPREAD")
        pick = ray.remote(lambda block, chosen: block[chosen])
        x = [make.remote(number, rows) for number in range(blocks)]
        ray.wait(x, num_returns=blocks, fetch_local=False)

        def loop(wanted: Array) -> Array:
            numbers, chosen, places = by_block(wanted, rows)
            pairs = zip(numbers, chosen, strict=True)
            found = ray.get([pick.remote(x[number], some) for number, some in pairs])
            return np.concatenate(found)[places]

        yield x, loop


@contextmanager
def on_dataclay(blocks: int, rows: int) -> Iterator[tuple[Any, Take]]:
    from spliter_backends.dataclay import distribute
    from spliter_backends.dataclay.cluster import EmbeddedDataClay

    with EmbeddedDataClay(2) as cluster:
        cluster.client()
        x = distribute([block_of(number, rows) for number in range(blocks)])
        objects = x.blocks

        def loop(wanted: Array) -> Array:
            numbers, chosen, places = by_block(wanted, rows)
            pairs = zip(numbers, chosen, strict=True)
            return np.concatenate([objects[at].content[some] for at, some in pairs])[places]

        yield x, loop


ENGINES: Final = {
    "dask": (on_dask, "x[rows].compute()"),
    "ray": (on_ray, "a task per block"),
    "dataclay": (on_dataclay, "a copy per block"),
}


@benchmark
def take(engine: str = "dask", blocks: int = 2000, rows: int = 200) -> Iterator[Place]:
    """Compare rows by global index with what users of an engine write."""
    start, name = ENGINES[engine]
    wanted = np.random.default_rng(0).integers(0, blocks * rows, WANTED)
    with start(blocks, rows) as (x, loop), split(x) as parts:
        label = f"{WANTED:,} of {blocks * rows:,} rows in {blocks:,} blocks"
        ways = {"take": partial(parts.take, wanted), name: partial(loop, wanted)}
        yield Place(label, ways, same=np.array_equal)


@benchmark
def columns(blocks: int = 2000, rows: int = 400) -> Iterator[Place]:
    """Compare columns copied straight into the result with what users of NumPy write."""
    made = [block_of(number, rows) for number in range(blocks)]
    with split(made, partitions_per_location=1) as (part,):
        yield Place(
            f"{len(CHOSEN)} of {COLUMNS} columns, {blocks:,} blocks of {rows} rows",
            {
                "materialize(columns=)": lambda: part.materialize(columns=CHOSEN),
                "select, concatenate": lambda: np.concatenate([one[:, CHOSEN] for one in made]),
                "concatenate, select": lambda: np.concatenate(made)[:, CHOSEN],
            },
            same=np.array_equal,
        )


def fetch(label: str, keys: list[Any], address: str, rounds: int) -> list[Run]:
    """Read arrays from another worker each way; runs in a task."""
    from distributed import get_worker
    from distributed.utils import sync

    from spliter_backends.dask.internals.worker import read_from_peers
    from spliter_backends.dask.worker.packing import read_packed

    worker, holders = get_worker(), {key: [address] for key in keys}

    def read(way: Callable[..., Any]) -> None:
        found, *_ = sync(worker.loop, way, worker, holders)
        assert len(found) == len(keys)

    ways = {"packed": partial(read, read_packed), "by key": partial(read, read_from_peers)}
    return Place(label, ways).runs(rounds)


@benchmark
def messages(rounds: int, blocks: int = 200, few: int = 16) -> Iterator[list[Run]]:
    """Compare packed messages from one Dask worker to another with what Dask sends for the keys."""
    from distributed import wait

    with dask_cluster() as client:
        here, there = client.has_what()
        for number, kib in ((blocks, 1), (blocks, 10), (blocks, 32), (few, 32)):
            made = [
                client.submit(np.full, 128 * kib, float(at), workers=[there], pure=False)
                for at in range(number)
            ]
            wait(made)
            label, keys = f"{number} of {kib} KiB", [future.key for future in made]
            task = client.submit(fetch, label, keys, there, rounds, workers=[here], pure=False)
            yield task.result()
