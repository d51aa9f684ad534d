"""``spliter compare prefetch``: loop over a Zarr array behind a delay, read in several ways.

Tasks of Dask workers iterate over the chunks. The array is in files, and each read of a chunk waits
for a given time first, as for a store that is far away.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import zarr
from zarr.abc.store import Store
from zarr.storage import LocalStore, WrapperStore

from spliter import split
from spliter_backends.zarr import on_workers
from spliter_experiments.compare.data.datasets import InputChoice
from spliter_experiments.compare.data.sources import Dataset, Floats
from spliter_experiments.compare.data.uneven import burn, sines_per_second
from spliter_experiments.compare.engines.engine import Engine, result_of
from spliter_experiments.compare.ways import WAYS
from spliter_experiments.compare.workloads.workload import App, Parts, Site, Way
from spliter_experiments.harness.errors import OptionError
from spliter_experiments.harness.runner import Answer, Contender

if TYPE_CHECKING:
    from zarr.core.buffer import Buffer

IN_SLICE: Final = 8
"""Chunks of a larger slice."""

UNIT: Final = np.ones(1)


class Delayed(WrapperStore[Store]):
    """A store that answers after some time, any number of requests at once.

    Parameters
    ----------
    store : Store
        Where the data are.
    seconds : float
        Time before each answer.
    """

    def __init__(self, store: Store, seconds: float) -> None:
        super().__init__(store)
        self.seconds = seconds

    def _with_store(self, store: Store) -> Delayed:
        return Delayed(store, self.seconds)

    async def get(self, key: str, *args: Any, **kwargs: Any) -> Buffer | None:
        """Return a value, later."""
        await asyncio.sleep(self.seconds)
        return await super().get(key, *args, **kwargs)


@dataclass(frozen=True)
class Loop:
    """What all ways do.

    Parameters
    ----------
    array : zarr.Array
        Its chunks are the blocks.
    sines : int
        Amount of work on a block, in sines that NumPy computes.
    depth : int
        Blocks that the window by hand reads ahead.
    """

    array: Any
    sines: int
    depth: int

    @property
    def rows(self) -> int:
        """Rows of a chunk."""
        found: int = self.array.chunks[0]
        return found

    def read(self, number: int, count: int = 1) -> Floats:
        """Read so many chunks, from a number on."""
        found: Floats = self.array[number * self.rows : (number + count) * self.rows]
        return found

    def work(self, block: Floats) -> int:
        """Work on one block."""
        burn(UNIT, self.sines)
        return len(block)

    def work_all(self, blocks: Iterable[Floats]) -> int:
        """Work on blocks, one after the other."""
        return sum(map(self.work, blocks))

    def read_in_window(self) -> Iterator[Floats]:
        """Yield the blocks, so many of which threads have begun to read."""
        count = -(-self.array.shape[0] // self.rows)
        with ThreadPoolExecutor(self.depth) as pool:
            window = deque(pool.submit(self.read, number) for number in range(self.depth))
            for number in range(self.depth, count + self.depth):
                yield window.popleft().result()
                if number < count:
                    window.append(pool.submit(self.read, number))

    def read_slices(self) -> Iterator[Floats]:
        """Yield the blocks of slices, each of which is read as one."""
        count = -(-self.array.shape[0] // self.rows)
        for first in range(0, count, IN_SLICE):
            several = self.read(first, min(IN_SLICE, count - first))
            for at in range(0, len(several), self.rows):
                yield several[at : at + self.rows]


def reading_ahead(prefetch: Any) -> Way:
    """Return the way that iterates over a partition."""

    def way(site: Site[Engine], loop: Loop) -> Answer:
        blocks = on_workers(loop.array)
        with split(blocks, prefetch=prefetch) as partitions:
            return Answer(sum(map(result_of, partitions.map(loop.work_all))))

    return way


def in_window(site: Site[Any], loop: Loop) -> Answer:
    """Read with a window over a pool of threads, written by hand."""
    run = site.engine.client.submit(lambda: loop.work_all(loop.read_in_window()), pure=False)
    return Answer(result_of(run))


def in_slices(site: Site[Any], loop: Loop) -> Answer:
    """Read slices of several chunks."""
    run = site.engine.client.submit(lambda: loop.work_all(loop.read_slices()), pure=False)
    return Answer(result_of(run))


def in_graph(site: Site[Any], loop: Loop) -> Answer:
    """Compute a lazy Dask array at the workers, whose threads read as well."""
    import dask.array as da

    lazy = da.from_zarr(loop.array, inline_array=True)
    worked = lazy.map_blocks(
        lambda block: np.full((1, 1), loop.work(block)),
        dtype=np.int64,
        chunks=((1,) * lazy.numblocks[0], (1,)),
    )
    return Answer(int(result_of(site.engine.client.compute(worked.sum()))))


ON_DASK: Final[dict[str, Way]] = {
    "spliter": reading_ahead("auto"),
    "spliter-plain": reading_ahead(False),
    "window": in_window,
    "slices": in_slices,
    "dask": in_graph,
}


@dataclass(frozen=True)
class Prefetch(App[Loop]):
    """Comparison of ways to read blocks while others are worked on."""

    latency: float = 20.0
    ms: float = 5.0
    depth: int = 8

    name: ClassVar = "prefetch"
    ways: ClassVar = WAYS["prefetch"]
    split_ways: ClassVar[Mapping[str, Way]] = {}
    on_request: ClassVar = ("per-block",)

    def __post_init__(self) -> None:
        if not 0 <= self.latency < np.inf:
            raise OptionError(f"--latency must be 0 or more, got {self.latency}")
        if not 0 < self.ms < np.inf:
            raise OptionError(f"--ms must be positive, got {self.ms}")
        if self.depth < 1:
            raise OptionError(f"--depth must be at least 1, got {self.depth}")

    @contextmanager
    def open(self, choice: InputChoice) -> Iterator[Dataset]:
        """Generate points; none are read from an input."""
        if choice.source is not None:
            raise OptionError("--input does not go with prefetch, which writes its own array")
        with super().open(choice) as dataset:
            yield dataset

    def pose(self, site: Site[Engine]) -> Loop:
        """Write the blocks to files; return the array behind the delay."""
        folder = tempfile.mkdtemp(prefix="spliter-prefetch-")
        points, rows = site.dataset.points, site.row_chunks
        values = points.read(0, sum(rows))
        zarr.create_array(LocalStore(folder), data=values, chunks=(rows[0], values.shape[1]))
        array = zarr.open_array(Delayed(LocalStore(folder), self.latency / 1000), mode="r")
        loop = Loop(array, round(sines_per_second() * self.ms / 1000), self.depth)
        weakref.finalize(loop, shutil.rmtree, folder, ignore_errors=True)
        return loop

    @staticmethod
    def by_parts(parts: Parts, loop: Loop) -> Answer:
        """Work on the blocks in memory, one task for each."""
        return Answer(parts.merge(sum, parts.call(loop.work)))

    def in_processes(self, way: str, site: Site[Engine], loop: Loop) -> Contender:
        """Return the contender for the work alone, in this process."""
        blocks = np.split(np.empty(sum(site.row_chunks)), np.cumsum(site.row_chunks)[:-1])
        return Contender(way, lambda: Answer(loop.work_all(blocks)), on_cluster=False)

    def same(self, left: int, right: int) -> bool:
        """Return whether results are equal."""
        return left == right

    def detail(self) -> str:
        """Return delay and work."""
        return f"{self.latency:g} ms to read a block, {self.ms:g} ms to work on it"
