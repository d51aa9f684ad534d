"""A backend for SplIter: blocks are .npy files, and their location is the folder they are in.

Meant for folders on different disks: each folder has threads of its own, which read its files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from spliter import BlockLostError, Partition, UnsupportedCollectionError
from spliter.backend import (
    Backend,
    BlockGrid,
    Blocks,
    BlockSource,
    Executor,
    Location,
    Locator,
    Movement,
    Placement,
    PlannedPartition,
    call_with_results,
    not_local_error,
)

THREADS_PER_FOLDER = 2


@dataclass(frozen=True)
class Files:
    """The collection: arrays in .npy files, one after the other along axis 0."""

    paths: tuple[Path, ...]


def read(path: Path, mmap_mode: Any = None) -> Any:
    """Read an array from a file; with ``mmap_mode="r"`` only its header is read."""
    try:
        return np.load(path, mmap_mode)
    except FileNotFoundError as error:
        raise BlockLostError(f"{path} is missing; write it again, then split again") from error


# --- the locator: where are the blocks? ---------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FileSource(BlockSource):
    """References to the blocks of a partition: the names of its files."""

    rows: tuple[tuple[Path, ...], ...]
    """For each block its file, and the files of the blocks aligned with it."""
    process: int = field(default_factory=os.getpid)

    def read(self) -> Iterator[Any]:
        """Yield the blocks in order; tuples if collections are aligned."""
        # Another process could read the files too, but not on the threads of their folder.
        if self.process != os.getpid():
            raise not_local_error(f"read by threads of process {self.process}")
        for paths in self.rows:
            blocks = tuple(map(read, paths))
            yield blocks if len(blocks) > 1 else blocks[0]


class FileBlocks(Blocks):
    """The blocks of one or several aligned collections, opened."""

    stored = True  # in files

    def __init__(self, collections: Sequence[Files]) -> None:
        # SplIter refuses collections of different numbers of blocks.
        self._aligned = list(zip(*(files.paths for files in collections), strict=False))
        arrays = [[read(path, "r") for path in files.paths] for files in collections]
        grids = [BlockGrid.from_chunks([map(len, blocks)]) for blocks in arrays]
        super().__init__(grids, folder_executor())
        self._nbytes = [block.nbytes for block in arrays[0]]
        for paths, blocks in zip(self._aligned, zip(*arrays, strict=False), strict=True):
            for path, block in zip(paths, blocks, strict=True):
                if path.parent != paths[0].parent:  # read by the threads of another folder
                    self.counter.add(Movement(aligned_blocks=1, aligned_nbytes=block.nbytes))

    def locate(self) -> Placement:
        """Return the folder of each block, which its path names."""
        return Placement.of([[str(first.parent)] for first, *_ in self._aligned], self._nbytes)

    def sources(self, planned: Sequence[PlannedPartition]) -> Sequence[FileSource]:
        """Return the names of the files of each partition."""
        return [FileSource(tuple(self._aligned[at] for at in part.positions)) for part in planned]


class FolderLocator(Locator):
    """Finds the blocks of `Files`."""

    def recognises(self, collection: Any) -> bool:
        """Return whether the collection is `Files`; checks the type only."""
        return isinstance(collection, Files)

    def open(self, collections: Sequence[Any]) -> FileBlocks:
        """Open collections that are split together."""
        for files in collections:
            if not isinstance(files, Files) or not files.paths:
                raise UnsupportedCollectionError(f"{files!r} is not Files of at least one file")
        return FileBlocks(collections)


# --- the executor: run this there ---------------------------------------------------------------


class FolderExecutor(Executor):
    """Runs tasks on threads, a few for each folder.

    A task waits in its thread for futures among its arguments. This cannot deadlock: each pool
    runs its tasks in the order of submission, and a task can only get futures that were
    submitted before it.
    """

    def __init__(self) -> None:
        self._pools: dict[Location | None, ThreadPoolExecutor] = {}
        self._lock = Lock()
        self.locations: WeakKeyDictionary[Future[Any], Location | None] = WeakKeyDictionary()

    def capacities(self, locations: Collection[Location]) -> Mapping[Location, int]:
        """Return the number of threads of each folder."""
        return dict.fromkeys(locations, THREADS_PER_FOLDER)

    def submit(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        location: Location | None = None,
    ) -> Future[Any]:
        """Run a function on a thread of the folder."""
        arriving = [_arriving(value) for value in args]
        named = {name: _arriving(value) for name, value in kwargs.items()}
        with self._lock:  # the order of futures is the order of tasks, whoever submits
            pool = self._pools.get(location)
            if pool is None:
                pool = ThreadPoolExecutor(THREADS_PER_FOLDER, f"folder {location or 'none'}")
                self._pools[location] = pool
            future = pool.submit(call_with_results, Future, fn, arriving, named)
            self.locations[future] = location
        return future

    def location_of(self, future: Any) -> Location | None:
        """Return the folder that the task was sent to."""
        return self.locations.get(future)


def _arriving(value: Any) -> Any:
    return value.at_location() if isinstance(value, Partition) else value


@cache
def folder_executor() -> FolderExecutor:
    """Return the one executor."""
    return FolderExecutor()


def executor_of_future(future: Any) -> FolderExecutor | None:
    """Return the executor if it made the future; `reduce` and `gather` call this."""
    executor = folder_executor()
    return executor if isinstance(future, Future) and future in executor.locations else None


BACKEND = Backend("folders", FolderLocator(), executor_of_future)
