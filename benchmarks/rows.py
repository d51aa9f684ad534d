"""Measure rows and columns of small blocks: one packed answer per partition, one copy per block.

    python benchmarks/rows.py take dask --rounds 5      # rows by global index, from two workers
    python benchmarks/rows.py take ray --rounds 7
    python benchmarks/rows.py take dataclay --rounds 7
    python benchmarks/rows.py columns --rounds 21       # of blocks in this process
    python benchmarks/rows.py messages --rounds 21      # blocks that one Dask worker has of another

Interleaved rounds; prints medians and quartiles over the rounds. ``take`` starts two workers of one
thread each, and compares :meth:`spliter.Split.take` with what the engine's users write: on Dask
``x[rows].compute()``, on Ray a task for each block with rows of it, on dataClay a copy of each.
``columns`` also copies whole blocks, into new memory, which the system has to clear, and into used
memory. ``messages`` fetches 200 blocks in one packed message, and as Dask serializes them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

sys.path.append(str(Path(__file__).resolve().parent.parent))

from benchmarks.even import interleaved, show, two_workers
from spliter import split

Array: TypeAlias = npt.NDArray[Any]
Take: TypeAlias = Callable[[Array], Array]
"""Returns rows by their global index."""

COLUMNS, WANTED = 20, 5000
CHOSEN: Final = [3, 7, 11]


def block_of(number: int, rows: int) -> Array:
    """Return a block; its values are different everywhere."""
    first = number * rows * COLUMNS
    return np.arange(first, first + rows * COLUMNS, dtype=np.float64).reshape(rows, COLUMNS)


def by_block(wanted: Array, rows: int) -> tuple[list[int], list[Array], Array]:
    """Return the blocks that have wanted rows, the rows in each, and where each belongs."""
    order = np.argsort(wanted, kind="stable")
    numbers, first = np.unique(wanted[order] // rows, return_index=True)
    return numbers.tolist(), np.split(wanted[order] % rows, first[1:]), np.argsort(order)


@contextmanager
def on_dask(blocks: int, rows: int) -> Iterator[tuple[Any, Take]]:
    """Make a Dask array."""
    import dask.array as da
    from distributed import wait

    with two_workers():
        x = da.arange(float(blocks * rows * COLUMNS), chunks=rows * COLUMNS)
        x = x.reshape(-1, COLUMNS).persist()
        wait(x)
        yield x, lambda wanted: x[wanted].compute()


@contextmanager
def on_ray(blocks: int, rows: int) -> Iterator[tuple[Any, Take]]:
    """Make references to blocks on two nodes of Ray."""
    import ray

    from spliter_experiments.compare.engines.engine import ClusterChoice
    from spliter_experiments.compare.engines.ray_cluster import connected

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
    """Make persistent objects at two backends of dataClay."""
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


ENGINES = {
    "dask": (on_dask, "x[rows].compute()"),
    "ray": (on_ray, "a task per block"),
    "dataclay": (on_dataclay, "a copy per block"),
}


def take(engine: str, rounds: int, blocks: int, rows: int) -> None:
    """Compare rows by global index with what users of an engine write."""
    start, name = ENGINES[engine]
    wanted = np.random.default_rng(0).integers(0, blocks * rows, WANTED)
    with start(blocks, rows) as (x, loop), split(x) as parts:
        np.testing.assert_array_equal(parts.take(wanted), loop(wanted))
        print(f"{WANTED} of {blocks * rows} rows in {blocks} blocks, {len(parts)} partitions")
        ways = {"take": partial(parts.take, wanted), name: partial(loop, wanted)}
        show(interleaved(ways, rounds), "take")


def columns(rounds: int, blocks: int, rows: int) -> None:
    """Compare columns copied straight into the result with what users of NumPy write."""
    made = [block_of(number, rows) for number in range(blocks)]
    used = np.concatenate(made)
    with split(made, partitions_per_location=1) as (part,):
        ours: dict[str, Callable[[], Array]] = {
            "materialize(columns=)": lambda: part.materialize(columns=CHOSEN),
            "select, then concatenate": lambda: np.concatenate([one[:, CHOSEN] for one in made]),
            "concatenate, then select": lambda: np.concatenate(made)[:, CHOSEN],
        }
        assert all(np.array_equal(way(), used[:, CHOSEN]) for way in ours.values())
        print(f"{len(CHOSEN)} of {COLUMNS} columns, {blocks} blocks of {rows} rows")
        show(interleaved(ours, rounds), "materialize(columns=)")
    copies: dict[str, Callable[[], Array]] = {
        "into used memory": lambda: np.concatenate(made, out=used),
        "into new memory": lambda: np.concatenate(made),
    }
    print(f"all columns, {used.nbytes / 1e6:g} MB")
    show(interleaved(copies, rounds), "into used memory")


def fetches(keys: list[Any], address: str, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each way to read arrays from another worker; runs in a task."""
    from distributed import get_worker
    from distributed.utils import sync

    from spliter_backends.dask.internals.worker import read_from_peers
    from spliter_backends.dask.worker.packing import read_packed

    worker, holders = get_worker(), {key: [address] for key in keys}

    def read(way: Callable[..., Any]) -> None:
        found, *_ = sync(worker.loop, way, worker, holders)
        assert len(found) == len(keys)

    ways = {"packed": partial(read, read_packed), "by key": partial(read, read_from_peers)}
    return interleaved(ways, rounds)


def messages(rounds: int, blocks: int, rows: int) -> None:
    """Compare packed messages with what Dask sends for as many keys."""
    from distributed import wait

    with two_workers() as client:
        here, there = client.has_what()
        for number, kib in ((blocks, 1), (blocks, 10), (blocks, 32), (rows, 32)):
            made = [
                client.submit(np.full, 128 * kib, float(at), workers=[there], pure=False)
                for at in range(number)
            ]
            wait(made)
            keys = [future.key for future in made]
            print(f"{number} blocks of {kib} KiB")
            task = client.submit(fetches, keys, there, rounds, workers=[here], pure=False)
            show(task.result(), "packed")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    commands = parser.add_subparsers(required=True)
    for command, blocks, rows in ((take, 2000, 200), (columns, 2000, 400), (messages, 200, 16)):
        sub = commands.add_parser(command.__name__)
        if command is take:
            sub.add_argument("engine", choices=ENGINES)
        sub.add_argument("--rounds", type=int, default=7)
        sub.add_argument("--blocks", type=int, default=blocks)
        sub.set_defaults(command=command, rows=rows)
    options = vars(parser.parse_args())
    options.pop("command")(**options)


if __name__ == "__main__":
    main()
