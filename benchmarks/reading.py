"""Reading ahead: of stores far away, of a worker's disk, of copies by COMPSs, of records by key."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
import timeit
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import dask.array as da
import numpy as np
import numpy.typing as npt
import zarr
from distributed import wait
from zarr.abc.store import Store
from zarr.storage import LocalStore, WrapperStore

from benchmarks.measure import Place, benchmark, dask_cluster
from spliter import Partition, Split, gather, split
from spliter_experiments.harness.runner import Answer
from spliter_experiments.harness.table import Run

if TYPE_CHECKING:
    from zarr.core.buffer import Buffer

STANDIN = Path(__file__).resolve().parent.parent / "tests" / "compss_backend" / "standin"

COLUMNS: Final = 1000

ROWS: Final = 500
"""Of a block of 4 MB: reading it from disk takes several times as long as a task for a thread."""

FAR_ROWS: Final = 163
"""Of a block of 1.3 MB in a store that is far away."""

FITTING: Final = 1 / 4
"""Part of the memory limit that blocks may take, next to what Python takes, below the target."""

VALUES: Final = 20_000
"""Numbers that a loop sorts again and again, in 0.2 ms each time, without the interpreter lock."""


class Delayed(WrapperStore[Store]):
    """A store that answers after some seconds, any number of requests at once."""

    def __init__(self, store: Store, seconds: float) -> None:
        super().__init__(store)
        self.seconds = seconds

    def _with_store(self, store: Store) -> Delayed:
        return Delayed(store, self.seconds)

    async def get(self, key: str, *args: Any, **kwargs: Any) -> Buffer | None:
        await asyncio.sleep(self.seconds)
        return await super().get(key, *args, **kwargs)


def work(blocks: Iterable[Any], sorts: int, seconds: float = 0.0) -> int:
    """Sort some numbers so many times for each block, and wait; return the number of blocks."""
    values, count = np.random.default_rng(0).random(VALUES), 0
    for _ in blocks:
        for _ in range(sorts):
            np.sort(values)
        time.sleep(seconds)
        count += 1
    return count


def seconds_per_sort() -> float:
    values = np.random.default_rng(0).random(VALUES)
    return min(timeit.repeat(lambda: np.sort(values), number=100, repeat=5)) / 100


def run(parts: Split, *on_each: float) -> int:
    """Make a pass over all blocks; further arguments are those of :func:`work`."""
    return sum(gather(parts.map(work, *on_each)))


@contextmanager
def two_ways(collection: Any, **options: Any) -> Iterator[dict[str, Split]]:
    """Split a collection with and without reading ahead."""
    options |= {"partitions_per_location": 1}
    with (
        split(collection, prefetch="auto", **options) as ahead,
        split(collection, prefetch=False, **options) as plain,
    ):
        yield {'prefetch="auto"': ahead, "prefetch=False": plain}


def passes(label: str, ways: dict[str, Split], *on_each: float, **more: Any) -> Place:
    """Return the place that compares passes over the same blocks."""
    calls = {name: partial(run, parts, *on_each) for name, parts in ways.items()}
    return Place(label, calls, same=int.__eq__, **more)


def by_hand(x: Any, sorts: int, depth: int) -> int:
    """Loop over the chunks of an array, so many of which threads have begun to read."""
    count, rows = -(-x.shape[0] // x.chunks[0]), x.chunks[0]

    def read(number: int) -> Any:
        return x[number * rows : (number + 1) * rows]

    def window() -> Iterator[Any]:
        with ThreadPoolExecutor(depth) as pool:
            pending = deque(pool.submit(read, number) for number in range(min(depth, count)))
            for number in range(depth, count + depth):
                yield pending.popleft().result()
                if number < count:
                    pending.append(pool.submit(read, number))

    return work(window(), sorts)


def in_slices(x: Any, sorts: int, chunks: int = 8) -> int:
    """Loop over the chunks of an array, several of which are read at once."""
    rows = x.chunks[0]
    slices = (x[at : at + chunks * rows] for at in range(0, x.shape[0], chunks * rows))
    return work(
        (some[at : at + rows] for some in slices for at in range(0, len(some), rows)), sorts
    )


def in_graph(x: Any, sorts: int) -> int:
    """Compute a lazy Dask array, whose worker's threads read and work."""
    lazy = da.from_zarr(x, inline_array=True)
    chunks = ((1,) * lazy.numblocks[0], (1,))
    worked = lazy.map_blocks(
        lambda block: np.full((1, 1), work([block], sorts)), dtype=np.int64, chunks=chunks
    )
    return int(worked.sum().compute())


@benchmark
def prefetch(
    blocks: int = 64, latency: float = 20.0, ms: float = 5.0, threads: int = 1, depth: int = 8
) -> Iterator[Place]:
    """Loop on a Dask worker over a Zarr array behind a delay, read in several ways.

    `latency` and `ms` are milliseconds of each read and of the work on a block.
    """
    from spliter_backends.zarr import on_workers

    sorts = max(round(ms / 1000 / seconds_per_sort()), 1)
    with (
        tempfile.TemporaryDirectory() as folder,
        dask_cluster(1, threads) as client,
        ExitStack() as stack,
    ):
        data = np.random.default_rng(0).random((blocks * FAR_ROWS, COLUMNS))
        zarr.create_array(LocalStore(folder), data=data, chunks=(FAR_ROWS, COLUMNS))
        x = zarr.open_array(Delayed(LocalStore(folder), latency / 1000), mode="r")
        ahead, plain = (
            stack.enter_context(split(on_workers(x), prefetch=how)) for how in ("auto", False)
        )

        def task(loop: Callable[..., int], *more: Any) -> int:
            return int(client.submit(loop, x, sorts, *more, pure=False).result())

        label = f"{blocks} blocks, {latency:g} ms away, {ms:g} ms of work"
        yield Place(
            label,
            {
                "prefetch=auto": partial(run, ahead, sorts),
                "prefetch=False": partial(run, plain, sorts),
                "window by hand": partial(task, by_hand, depth),
                "slices of 8": partial(task, in_slices),
                "Dask's graph": partial(in_graph, x, sorts),
                "work alone": partial(work, range(blocks), sorts),
            },
            same=int.__eq__,
        )


def add_up(partition: Partition) -> float:
    return float(sum(block.sum() for block in partition))


def in_memory(plain: Partition, ahead: Partition, label: str, rounds: int) -> list[Run]:
    """Compare passes over two partitions of the same blocks, at their worker."""
    ways = {"prefetch=False": partial(add_up, plain), 'prefetch="auto"': partial(add_up, ahead)}
    return Place(label, ways).runs(rounds)


@benchmark
def prefetch_memory(rounds: int, blocks: int = 8000) -> Iterator[list[Run]]:
    """Compare passes over blocks of 8 kB in memory that may and may not read ahead."""
    with dask_cluster():
        x = da.ones(blocks * 1000, chunks=1000).persist()
        wait(x)
        with split(x, prefetch=False) as plain, split(x, prefetch="auto") as ahead:
            label = f"{len(plain[0]):,} blocks of 8 kB"
            yield plain[0].submit(in_memory, ahead[0], label, rounds).result()


@benchmark
def prefetch_spilled(megabytes: int = 1000, sorts: int = 20) -> Iterator[Place]:
    """Compare passes over spilled blocks, with the worker's memory full and with room in it."""
    from tests.dask_backend.conftest import start
    from tests.scale.passes import spill_all

    limit = megabytes * 10**6
    nbytes = 8 * ROWS * COLUMNS
    with ExitStack() as stack:
        client = start(stack, n_workers=1, memory_limit=limit)
        for label, blocks, before in (
            ("twice as much data as memory", 2 * limit // nbytes, lambda: None),
            (
                "all on disk, with room in memory",
                round(FITTING * limit / nbytes),
                partial(client.run, spill_all),
            ),
        ):
            shape, chunks = (blocks * ROWS, COLUMNS), (ROWS, COLUMNS)
            x = da.random.default_rng(0).random(shape, chunks=chunks).persist()
            wait(x)
            with two_ways(x) as ways:
                yield passes(label, ways, sorts, before=before)
            del x


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
        yield "the stand-in for COMPSs" if standin else "COMPSs"


@benchmark
def prefetch_compss(blocks: int = 40) -> Iterator[Place]:
    """Compare COMPSs tasks that work on a block of 4 MB as long as they copy it from dataClay.

    Without COMPSs, the stand-in of the tests runs the tasks.
    """
    numbers = np.random.default_rng(0)
    with dataclay_and_compss() as name:
        from spliter_backends.dataclay import distribute

        x = distribute([numbers.random((ROWS, COLUMNS)) for _ in range(blocks)])
        with two_ways(x, backend="compss") as ways:
            plain = ways["prefetch=False"]
            for _ in range(6):  # each process connects in its first task
                run(plain, 0)
            (one,) = plain.metrics()
            seconds = one.waiting_seconds / one.blocks
            sorts = round(seconds / seconds_per_sort())
            yield passes(f"{name}: loops that compute", ways, sorts)
            yield passes(f"{name}: loops that wait", ways, 0, seconds)


RECORDS, WINDOW = 5000, 8

Block: TypeAlias = npt.NDArray[np.int64]
Items: TypeAlias = Iterator[tuple[Block, list[Any]]]


def by_lookup(url: str, part: Partition, prefetch: Any = "auto") -> Items:
    from spliter_backends.records.redis import RedisSource

    return part.lookup(RedisSource(url, "person:{}", json.loads), lambda block: block, prefetch)


def by_batches(url: str, part: Partition) -> Items:
    """Fetch a batch for each block, those of the next blocks in threads."""
    import redis

    client = redis.Redis.from_url(url)

    def fetch(keys: Sequence[int]) -> dict[int, Any]:
        distinct = list(dict.fromkeys(keys))
        values: Any = client.mget([f"person:{key}" for key in distinct])
        return {key: json.loads(value) for key, value in zip(distinct, values, strict=True)}

    pending: deque[tuple[Block, list[int], Future[dict[int, Any]]]] = deque()
    with ThreadPoolExecutor(WINDOW) as pool:
        blocks = iter(part)
        while True:
            while len(pending) < WINDOW and (block := next(blocks, None)) is not None:
                keys = block.tolist()
                pending.append((block, keys, pool.submit(fetch, keys)))
            if not pending:
                return
            block, keys, request = pending.popleft()
            found = request.result()
            yield block, [found[key] for key in keys]


def by_single_gets(url: str, part: Partition) -> Items:
    import redis

    client = redis.Redis.from_url(url)
    for block in part:
        values: Any = map(client.get, (f"person:{key}" for key in block.tolist()))
        yield block, [json.loads(value) for value in values]


@benchmark
def records(
    blocks: int = 200, keys: int = 100, latency: float = 1.0, ms: float = 1.0
) -> Iterator[Place]:
    """Compare lookup of a Redis server behind a latency with code by hand: seconds of a block.

    `ms` is the work on a block. Of single gets, as few blocks are timed as take as long.
    """
    import redis

    from spliter_experiments.ahead.proxy import delayed
    from tests.records.servers import redis_server

    drawn = np.random.default_rng(0).integers(0, RECORDS, (blocks, keys))

    def seconds_per_block(way: Callable[[str, Partition], Items], most: int) -> Answer:
        part = split(list(drawn), partitions_per_location=1)[0].at_location()
        start = time.perf_counter()
        for number, (block, found) in enumerate(way(url, part), start=1):
            assert found[0]["id"] == block[0] and len(found) == len(block)
            until = time.perf_counter() + ms / 1000
            while time.perf_counter() < until:
                np.sort(np.tile(block, 20))
            if number == most:
                break
        return Answer(None, seconds=(time.perf_counter() - start) / number)

    with redis_server() as server, delayed(server.port, latency / 1000) as port:
        client = redis.Redis.from_url(server.url)
        client.mset({f"person:{one}": json.dumps({"id": one}) for one in range(RECORDS)})
        url = server.url.replace(str(server.port), str(port))
        yield Place(
            f"{keys} records, {latency:g} ms away, {ms:g} ms of work",
            {
                "lookup": partial(seconds_per_block, by_lookup, blocks),
                "prefetch=False": partial(
                    seconds_per_block, partial(by_lookup, prefetch=False), blocks
                ),
                "batches by hand": partial(seconds_per_block, by_batches, blocks),
                "single gets": partial(seconds_per_block, by_single_gets, max(blocks // 40, 2)),
            },
        )
