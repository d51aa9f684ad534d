"""Measure reading ahead where blocks are far away, on a Dask worker's disk, or copied by COMPSs.

    python benchmarks/ahead.py far --rounds 9        # a Zarr array, 20 ms away
    python benchmarks/ahead.py spilled --rounds 7    # a worker with twice the data that it can hold
    python benchmarks/ahead.py compss --rounds 7     # COMPSs over dataClay, on a stand-in
    runcompss ... benchmarks/ahead.py compss         # the same on COMPSs itself

Each loop works as long on any block. Interleaved rounds; prints medians and quartiles over the
rounds. ``spilled`` starts a Dask worker of one thread and makes data of twice its memory limit: it
then stays above its memory target, where nothing is read ahead. The second table is of blocks that
are all on disk and fit into memory, as when other data was deleted after the worker had spilled
them. ``compss`` starts a dataClay backend, unless there is a storage interface, and one node of the
stand-in for PyCOMPSs that the tests use, unless the program is an application of COMPSs: what
COMPSs itself adds to a task is not in the figures of the stand-in. Its first table is of loops that
compute, on cores that dataClay and the threads need for the copies as well, the second of loops
that wait.
"""

from __future__ import annotations

import argparse
import sys
import time
import timeit
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import dask.array as da
import numpy as np
import zarr
from distributed import wait

sys.path.append(str(Path(__file__).resolve().parent.parent))

from benchmarks.even import interleaved, show
from spliter import Partition, Split, gather, split
from tests.dask_backend.conftest import start
from tests.scale.passes import spill_all

STANDIN = Path(__file__).resolve().parent.parent / "tests" / "compss_backend" / "standin"

COLUMNS: Final = 1000

ROWS: Final = 500
"""Of a block."""

NBYTES: Final = 8 * ROWS * COLUMNS
"""4 MB: reading a block from disk takes several times as long as handing it to a thread."""

FITTING: Final = 1 / 4
"""Part of the memory limit that blocks may take, next to what Python takes, below the target."""

LATENCY_SECONDS, WORK_SECONDS, FAR_ROWS = 0.020, 0.005, 163
"""Of a store that is far away: of each read, on each block of 1.3 MB, and rows of a block."""

VALUES: Final = 20_000
"""Numbers that a loop sorts again and again, in 0.2 ms each time, without the interpreter lock."""


def work(partition: Partition, sorts: int, seconds: float = 0.0) -> int:
    """Sort some numbers so many times for each block, and wait; return the number of blocks."""
    values, count = np.random.default_rng(0).random(VALUES), 0
    for _ in partition:
        for _ in range(sorts):
            np.sort(values)
        time.sleep(seconds)
        count += 1
    return count


def seconds_per_sort() -> float:
    """Return the time of one sort of :func:`work`."""
    values = np.random.default_rng(0).random(VALUES)
    return min(timeit.repeat(lambda: np.sort(values), number=100, repeat=5)) / 100


def run(parts: Split, *on_each: float) -> None:
    """Make a pass over all blocks; further arguments are those of :func:`work`."""
    count = sum(gather(parts.map(work, *on_each)))
    assert count == sum(map(len, parts))


@contextmanager
def two_ways(collection: Any, **options: Any) -> Iterator[tuple[Split, Split]]:
    """Split a collection without and with reading ahead."""
    options |= {"partitions_per_location": 1}
    with (
        split(collection, prefetch=False, **options) as plain,
        split(collection, prefetch="auto", **options) as ahead,
    ):
        yield plain, ahead


def milliseconds(parts: Split) -> tuple[float, float]:
    """Return how long the last pass has waited for a block, and worked on it, on average."""
    (one,) = parts.metrics()
    waited = one.waiting_seconds
    return 1000 * waited / one.blocks, 1000 * (one.seconds - waited) / one.blocks


def compare(
    ways: tuple[Split, Split],
    on_each: tuple[float, ...],
    rounds: int,
    before: Callable[[], object] = lambda: None,
) -> None:
    """Print the time of each way, and what it consists of."""
    names = ("prefetch=False", 'prefetch="auto"')
    passes = [partial(run, parts, *on_each) for parts in ways]
    seconds = interleaved(dict(zip(names, passes, strict=True)), rounds, before)
    for name, parts in zip(names, ways, strict=True):
        waited, worked = milliseconds(parts)
        print(
            f"{name}, last pass: {waited:.1f} ms of waiting and {worked:.1f} ms of work per block, "
            f"at most {parts.metrics()[0].read_ahead} blocks ahead"
        )
    show(seconds, names[0])


def far(rounds: int, blocks: int) -> None:
    """Compare loops in this process over blocks that are far away."""
    from zarr.testing.store import LatencyStore

    memory = zarr.storage.MemoryStore()
    data = np.random.default_rng(0).random((blocks * FAR_ROWS, COLUMNS))
    zarr.create_array(memory, data=data, chunks=(FAR_ROWS, COLUMNS))
    x = zarr.open_array(LatencyStore(memory, get_latency=LATENCY_SECONDS), mode="r")
    with two_ways(x) as ways:
        print(f"{blocks} blocks of 1.3 MB, 20 ms away; loops that wait 5 ms at each:")
        compare(ways, (0, WORK_SECONDS), rounds)
        print("loops that compute as long, on the cores that decode the blocks:")
        compare(ways, (round(WORK_SECONDS / seconds_per_sort()),), rounds)


def spilled(rounds: int, megabytes: int, sorts: int) -> None:
    """Compare passes over spilled blocks, with the worker's memory full and with room in it."""
    limit = megabytes * 10**6
    with ExitStack() as stack:
        client = start(stack, n_workers=1, memory_limit=limit)

        def measure(blocks: int, before: Callable[[], object] = lambda: None) -> None:
            shape, chunks = (blocks * ROWS, COLUMNS), (ROWS, COLUMNS)
            x = da.random.default_rng(0).random(shape, chunks=chunks).persist()
            wait(x)
            with two_ways(x) as ways:
                compare(ways, (sorts,), rounds, before)

        print(f"a worker of {megabytes} MB, twice as much data:")
        measure(2 * limit // NBYTES)
        print("all blocks on disk, and room for them in memory:")
        measure(round(FITTING * limit / NBYTES), partial(client.run, spill_all))


@contextmanager
def dataclay_and_compss() -> Iterator[str]:
    """Start what of dataClay and COMPSs is not there; return the name of COMPSs."""
    with ExitStack() as stack:
        standin = "pycompss" not in sys.modules  # an application of COMPSs has imported it
        if standin:
            sys.path.insert(0, str(STANDIN))
            from pycompss.cluster import Cluster

            stack.enter_context(Cluster({"node": "software"}))
        from spliter_backends.compss.api import storage_is_configured
        from spliter_backends.dataclay.cluster import EmbeddedDataClay

        if not storage_is_configured():
            stack.enter_context(EmbeddedDataClay(1)).client()
        yield "COMPSs' STAND-IN" if standin else "COMPSs"


def compss(rounds: int, blocks: int) -> None:
    """Compare tasks that work on a block as long as they copy it."""
    numbers = np.random.default_rng(0)
    with dataclay_and_compss() as name:
        from spliter_backends.dataclay import distribute

        x = distribute([numbers.random((ROWS, COLUMNS)) for _ in range(blocks)])
        with two_ways(x, backend="compss") as ways:
            for _ in range(6):  # each process connects in its first task
                run(ways[0], 0)
            seconds = milliseconds(ways[0])[0] / 1000
            print(f"{blocks} blocks of 4 MB, copied from dataClay by tasks on {name};")
            print("loops that compute as long as a copy takes:")
            compare(ways, (round(seconds / seconds_per_sort()),), rounds)
            print("loops that wait as long:")
            compare(ways, (0, seconds), rounds)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    commands = parser.add_subparsers(required=True)
    for command, option, default in (
        (far, "--blocks", 64),
        (spilled, "--megabytes", 1000),
        (compss, "--blocks", 40),
    ):
        sub = commands.add_parser(command.__name__)
        sub.add_argument("--rounds", type=int, default=7)
        sub.add_argument(option, type=int, default=default)
        if command is spilled:
            sub.add_argument("--sorts", type=int, default=20, help="of work on each block")
        sub.set_defaults(command=command)
    options = vars(parser.parse_args())
    options.pop("command")(**options)


if __name__ == "__main__":
    main()
