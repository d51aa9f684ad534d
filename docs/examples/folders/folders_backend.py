"""A backend for SplIter: blocks are .npy files, and their location is the folder they are in.

Meant for folders on different disks: each has threads of its own, which read its files and
nobody else's, so that the disks work side by side and none is asked for everything at once.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from spliter import (
    Backend,
    BlockGrid,
    BlockLostError,
    BlocksMade,
    Location,
    Movement,
    Partition,
    PartitionNotLocalError,
    Placement,
    PlannedPartition,
    UnsupportedCollectionError,
)

THREADS_PER_FOLDER = 2


@dataclass(frozen=True)
class Files:
    """The collection: arrays in .npy files, one after the other along axis 0."""

    paths: tuple[Path, ...]


@dataclass(frozen=True)
class Header:
    """What the first bytes of a file tell."""

    shape: tuple[int, ...]
    nbytes: int


def read_header(path: Path) -> Header:
    """Read as little of a file as tells how large its array is."""
    with _opened(path) as file:
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    return Header(shape, math.prod(shape) * dtype.itemsize)


def read(path: Path) -> npt.NDArray[Any]:
    """Read a file."""
    with _opened(path) as file:
        return np.lib.format.read_array(file)


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise BlockLostError(f"{path} is gone; make the file again, then split again") from error


# --- the locator: where are the blocks? ---------------------------------------------------------


@dataclass(eq=False)
class Kept:
    """A partition's blocks as one: made by the first task that asks, while others wait."""

    lock: Lock = field(default_factory=Lock)
    value: Any = None


@dataclass(frozen=True, eq=False)
class FileSource:
    """What goes with a partition: the names of its files, cheap to pickle."""

    rows: tuple[tuple[Path, ...], ...]
    """For each block its file, and those of the collections that are aligned with it."""
    kept: Kept
    process: int = field(default_factory=os.getpid)

    def read(self) -> Iterator[Any]:
        """Yield the blocks in order; tuples where collections are aligned."""
        self._check_process()
        for paths in self.rows:
            blocks = tuple(read(path) for path in paths)
            yield blocks if len(blocks) > 1 else blocks[0]

    def materialized(self) -> Any:
        """Return the blocks as one, made once."""
        self._check_process()
        with self.kept.lock:
            if self.kept.value is None:
                columns = zip(*self.rows, strict=True)
                ones = tuple(np.concatenate([read(path) for path in paths]) for paths in columns)
                self.kept.value = ones if len(ones) > 1 else ones[0]
            return self.kept.value

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the names alone."""
        return _unpickled, (self.rows, self.process)

    def _check_process(self) -> None:
        # Another process could read the files, past the threads that share out their disk.
        if self.process != os.getpid():
            raise PartitionNotLocalError(
                f"the threads of these folders are in process {self.process}, and this is process "
                f"{os.getpid()}; use the partition there, or pass a result"
            )


def _unpickled(rows: tuple[tuple[Path, ...], ...], process: int) -> FileSource:
    return FileSource(rows, Kept(), process)


class FileBlocks:
    """The blocks of one or several aligned collections, opened."""

    def __init__(self, collections: Sequence[Files]) -> None:
        self._collections = collections
        self._headers = [[read_header(path) for path in files.paths] for files in collections]
        self.grids = [_grid(headers) for headers in self._headers]
        self._kept: dict[bytes, Kept] = {}

    def locate(self) -> Placement:
        """Each block is in its folder; of files nobody has to be asked."""
        holders = [[str(path.parent)] for path in self._collections[0].paths]
        return Placement.of(holders, [header.nbytes for header in self._headers[0]])

    def sources(self, planned: Sequence[PlannedPartition]) -> Sequence[FileSource]:
        """Return the names of the files of each partition."""
        return [
            FileSource(
                tuple(
                    tuple(files.paths[at] for files in self._collections) for at in part.positions
                ),
                self._kept.setdefault(part.positions.tobytes(), Kept()),
            )
            for part in planned
        ]

    def moved(self) -> Movement:
        """Count the aligned blocks that are read from another folder than the first one's."""
        first, *aligned = self._collections
        away = [
            header.nbytes
            for files, headers in zip(aligned, self._headers[1:], strict=True)
            for mine, theirs, header in zip(first.paths, files.paths, headers, strict=True)
            if mine.parent != theirs.parent
        ]
        return Movement(aligned_blocks=len(away), aligned_nbytes=sum(away))

    def has_drifted(self) -> bool:
        """Files do not move by themselves."""
        return False

    def close(self) -> None:
        """Let go of what was kept."""
        self._kept.clear()


def _grid(headers: Sequence[Header]) -> BlockGrid:
    """Return the grid of blocks along axis 0; further axes are whole if all agree on them."""
    further = {header.shape[1:] for header in headers}
    whole = further.pop() if len(further) == 1 else ()
    return BlockGrid.from_chunks([[h.shape[0] for h in headers], *([size] for size in whole)])


class FolderLocator:
    """Finds the blocks of `Files`."""

    def recognises(self, collection: Any) -> bool:
        """Go by the type alone."""
        return isinstance(collection, Files)

    def open(self, collections: Sequence[Any]) -> FileBlocks:
        """Open collections that are split together."""
        for files in collections:
            if not isinstance(files, Files) or not files.paths:
                raise UnsupportedCollectionError(
                    f"{files!r} is not a folders_backend.Files of at least one file"
                )
        return FileBlocks(collections)

    def executor_for(self, blocks: Any) -> FolderExecutor:
        """Return the one executor."""
        return folder_executor()


# --- the executor: run this there ---------------------------------------------------------------


class FolderFuture(Future[Any]):
    """A future of a task at a folder."""

    def __init__(self, location: Location | None) -> None:
        super().__init__()
        self.location = location


class FolderExecutor:
    """Runs tasks on threads, a few for each folder.

    A task waits in its thread for futures among its arguments. That comes to an end, because
    each pool runs its tasks in the order in which they were submitted, and a future can be an
    argument only of what is submitted after it.
    """

    def __init__(self) -> None:
        self._pools: dict[Location | None, ThreadPoolExecutor] = {}
        self._lock = Lock()

    def capacities(self, locations: Collection[Location]) -> Mapping[Location, int]:
        """Return the number of threads of each folder."""
        return dict.fromkeys(locations, THREADS_PER_FOLDER)

    def free_memory(self, locations: Collection[Location]) -> Mapping[Location, int | None]:
        """Return that nobody has counted."""
        return dict.fromkeys(locations)

    def submit(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        location: Location | None = None,
    ) -> FolderFuture:
        """Run a function on a thread of the folder."""
        future = FolderFuture(location)
        arriving = [_arriving(value) for value in args]
        named = {name: _arriving(value) for name, value in kwargs.items()}
        with self._lock:  # the order of futures is the order of tasks, whoever submits
            if location not in self._pools:
                name = f"folder {location or 'none'}"
                self._pools[location] = ThreadPoolExecutor(THREADS_PER_FOLDER, name)
            self._pools[location].submit(_run, future, fn, arriving, named)
        return future

    def gather(self, futures: Sequence[Any]) -> list[Any]:
        """Wait for all."""
        return [future.result() for future in futures]

    def location_of(self, future: Any) -> Location | None:
        """Return the folder that the task was sent to."""
        return future.location if isinstance(future, FolderFuture) else None

    def assemble(
        self, results: Sequence[tuple[npt.NDArray[np.int64], Any]], made: BlocksMade
    ) -> list[Any]:
        """Return the new blocks as a list, in the order of the collection."""
        blocks: list[Any] = [None] * len(made.rows)
        for positions, future in results:
            result = future.result()
            new = result if made.output is None else result[made.output]
            for position, block in zip(positions.tolist(), new, strict=True):
                blocks[position] = block
        return blocks

    def blocking_call_allowed(self) -> bool:
        """There is no event loop to hold up."""
        return True


def _arriving(value: Any) -> Any:
    """Turn a partition into what its location sees; leave everything else."""
    if isinstance(value, Partition) and value.executor is not None:
        return value.at_location(as_one=value.begin_pass())
    return value


def _resolved(value: Any) -> Any:
    """Put results in the place of futures, also directly inside a list, tuple or dict."""
    if isinstance(value, Future):
        return value.result()
    if type(value) in {list, tuple}:
        return type(value)(_resolved(v) if isinstance(v, Future) else v for v in value)
    if type(value) is dict:
        return {key: _resolved(v) if isinstance(v, Future) else v for key, v in value.items()}
    return value


def _run(
    future: FolderFuture, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = fn(*map(_resolved, args), **{k: _resolved(v) for k, v in kwargs.items()})
    except BaseException as error:  # noqa: BLE001 -- it belongs to whoever asks for the result
        future.set_exception(error)
    else:
        future.set_result(result)


# --- the backend: both halves, and how its futures are known ------------------------------------


@cache
def folder_executor() -> FolderExecutor:
    """Return the executor that all Splits of this process share."""
    return FolderExecutor()


def executor_of_future(future: Any) -> FolderExecutor | None:
    """`spliter.reduce` and `gather` find the executor by this."""
    return folder_executor() if isinstance(future, FolderFuture) else None


BACKEND = Backend("folders", FolderLocator(), executor_of_future)
