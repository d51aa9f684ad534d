"""Open collections that live in this process: lists, memory maps, Zarr arrays, block values.

An opened collection consists of its block grid, the bytes of each block, and a function that reads
the block at a position.
"""

from __future__ import annotations

import math
import mmap
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from spliter import BlockGrid, BlockLostError, Partition, UnsupportedCollectionError
from spliter.backend import (
    UNKNOWN,
    WINDOW_NBYTES,
    Fetches,
    IntArray,
    Prefetch,
    concatenate,
    count_rows,
    has_rows,
)

MEMMAP_BLOCK_BYTES = 32 * 2**20
"""Approximate size of a block cut from a memory map: large enough to read at disk speed, small
enough that every thread can hold some in memory."""

_WARNINGS_LOCK = threading.Lock()
"""Threads must not leave `warnings.catch_warnings` in another order than they enter it."""

ADVISED_NBYTES = 2**17
"""Bytes of one call of ``madvise``: with its usual settings Linux reads no more for one call."""


@dataclass(frozen=True)
class ReadableCollection:
    """An opened collection.

    nbytes (ndarray of int64, shape (nblocks,)): Bytes of each block.
    read: Takes a block's position in C order and returns the block.
    join: Concatenates an iterable of blocks.
    stored: Whether `read` reads a file or an object store.
    slow: Whether it has the bytes only once it has returned; a memory map has them later.
    will_need: Takes the position of a block that is mapped from a file; the operating system then
        begins to read it.
    """

    grid: BlockGrid
    nbytes: IntArray
    read: Callable[[int], Any]
    join: Callable[[Iterable[Any]], Any] = concatenate
    stored: bool = False
    slow: bool = False
    will_need: Callable[[int], None] | None = None


def fetches_of(
    collections: Sequence[ReadableCollection],
    positions: IntArray,
    prefetch: Prefetch,
    location: str = "",
    has_memory: Callable[[], bool] = lambda: True,
) -> Fetches | None:
    """Return the reads of a partition's blocks, with their aligned blocks.

    ``None`` if nothing is read ahead: if blocks are in memory, and if blocks next to each other
    share an aligned one, which is then read once.
    """
    first, *aligned = collections
    if prefetch is False or not any(one.slow for one in collections):
        return None
    numbers = positions.tolist()
    rows = first.grid.rows(positions)
    if aligned and len(np.unique(rows)) < len(rows):
        return None

    def read(number: int) -> Any:
        block = first.read(numbers[number])
        row = int(rows[number])
        return (block, *(other.read(row) for other in aligned)) if aligned else block

    nbytes = first.nbytes[positions] + sum(other.nbytes[rows] for other in aligned)
    return Fetches(read, nbytes.tolist(), prefetch, location, has_memory)


def in_turn(
    collection: ReadableCollection, positions: IntArray, prefetch: Prefetch
) -> Iterable[int]:
    """Return positions for a loop that reads each when it gets it; files are read before that.

    The next blocks of a collection that is mapped from a file are requested with ``madvise``:
    `prefetch` blocks, for "auto" as many as a window holds, at least one.
    """
    turns: list[int] = positions.tolist()
    if collection.will_need is None or prefetch is False or not turns:
        return turns
    largest = max(int(collection.nbytes[positions].max()), 1)
    depth = max(WINDOW_NBYTES // largest, 1) if prefetch == "auto" else prefetch
    return _advised(turns, collection.will_need, depth)


def _advised(turns: list[int], will_need: Callable[[int], None], depth: int) -> Iterator[int]:
    for number, position in enumerate(turns):
        for later in turns[number + (depth if number else 1) : number + depth + 1]:
            will_need(later)
        yield position


def is_block(value: Any) -> bool:
    """Return whether a value can be a block of a list: has an axis 0, or is itself a list.

    Returns ``True`` for arrays, DataFrames, Series, sparse matrices and lists; ``False`` for
    scalars, strings, partitions, and elements of another engine's collections.
    """
    if isinstance(value, list):
        return True
    if isinstance(value, Partition) or hasattr(type(value), "__dask_graph__"):
        return False
    if "dataclay" in packages_of(value):  # its attributes may be in another process
        return False
    shape = getattr(value, "shape", None)
    return isinstance(shape, tuple) and len(shape) > 0


def packages_of(value: Any) -> set[str]:
    """Return the packages that define the type of a value, and the types it is derived from."""
    return {base.__module__.partition(".")[0] for base in type(value).__mro__}


def block_nbytes(block: Any) -> int:
    """Return the approximate bytes of a block in memory: of its buffers, if it has any."""
    if isinstance(block, np.ma.MaskedArray):
        return int(block.nbytes) + int(np.ma.getmask(block).nbytes)
    nbytes = getattr(block, "nbytes", None)
    if isinstance(nbytes, int | np.integer):
        return int(nbytes)
    if hasattr(block, "memory_usage"):
        return int(np.sum(block.memory_usage()))
    # SciPy's sparse matrices have their buffers in attributes, some of them in tuples.
    buffers = _arrays(getattr(block, "__dict__", {}).values())
    return sum(buffer.nbytes for buffer in buffers) or sys.getsizeof(block)


def _arrays(values: Any) -> Iterator[np.ndarray[Any, Any]]:
    for value in values:
        if isinstance(value, np.ndarray):
            yield value
        elif isinstance(value, tuple):
            yield from _arrays(value)


def open_list(blocks: Sequence[Any]) -> ReadableCollection:
    """Open a list of blocks in memory, whose lengths may differ.

    There is one block along each further axis if the blocks agree on all of them.
    """
    kept = tuple(blocks)
    if not kept:
        raise UnsupportedCollectionError(
            f"an empty {type(blocks).__name__} has no blocks to split; pass at least one "
            "block (it may have no rows)"
        )
    for position, block in enumerate(kept):
        if not is_block(block):
            raise UnsupportedCollectionError(
                f"element {position} of the list is a {type(block).__name__}, not a block; "
                "every element must be an array of at least one axis, a DataFrame or Series, "
                "a sparse matrix or a list, all in memory"
            )
    trailing = {getattr(block, "shape", ())[1:] for block in kept}
    further = trailing.pop() if len(trailing) == 1 else ()
    rows = tuple(count_rows(block) for block in kept)
    grid = BlockGrid((rows, *((int(size),) for size in further)))
    return ReadableCollection(grid, _sizes(kept), kept.__getitem__)


def open_memmap(array: np.memmap[Any, Any], threads: int) -> ReadableCollection:
    """Open a memory map, with rows cut into blocks of about 32 MiB.

    Blocks are smaller if there would be fewer blocks than threads, and have at least one row. They
    are views: bytes are read from the file when a task accesses them.
    """
    length = array.shape[0]
    row_bytes = array.itemsize * math.prod(array.shape[1:])
    rows = min(MEMMAP_BLOCK_BYTES // max(row_bytes, 1), -(-length // threads))
    grid = BlockGrid((cut(length, max(rows, 1)), *((size,) for size in array.shape[1:])))
    starts = (0, *accumulate(grid.chunks[0]))

    def read(position: int) -> Any:
        return array[starts[position] : starts[position + 1]]

    will_need = _advice(array, read) if array.flags.c_contiguous else None
    return ReadableCollection(
        grid, _known(grid, array.itemsize), read, stored=True, will_need=will_need
    )


def _advice(array: np.memmap[Any, Any], read: Callable[[int], Any]) -> Callable[[int], None] | None:
    """Return a function that has the operating system read a block, if it takes such advice."""
    mapped: Any = array
    while isinstance(mapped, np.ndarray):
        mapped = mapped.base
    if not isinstance(mapped, mmap.mmap) or not hasattr(mmap, "MADV_WILLNEED"):
        return None
    first_byte = np.frombuffer(mapped, np.uint8).ctypes.data

    def will_need(position: int) -> None:
        block = read(position)
        start = block.ctypes.data - first_byte
        first = start - start % mmap.PAGESIZE  # advice is given by pages
        for at in range(first, start + block.nbytes, ADVISED_NBYTES):
            mapped.madvise(mmap.MADV_WILLNEED, at, min(ADVISED_NBYTES, start + block.nbytes - at))

    return will_need


def open_zarr(array: Any) -> ReadableCollection:
    """Open a Zarr array with its own grid of shards, or of chunks if it has none.

    Nothing is read until a task requests a block.
    """
    steps = array.shards or array.chunks
    chunks = tuple(cut(size, step) for size, step in zip(array.shape, steps, strict=True))
    grid = BlockGrid(chunks)
    starts = [(0, *accumulate(axis)) for axis in chunks]

    def read(position: int) -> Any:
        index = grid.index(position)
        bounds = tuple(slice(at[i], at[i + 1]) for at, i in zip(starts, index, strict=True))
        try:
            block = array[bounds]
        except Exception as error:
            error.add_note(f"while block {index} of {array.store_path} was read")
            raise
        if _may_be_absent(block, array.fill_value):
            _check_stored(array, index)
        return block

    return ReadableCollection(
        grid, _known(grid, array.dtype.itemsize), read, stored=True, slow=True
    )


def _may_be_absent(block: Any, fill: Any) -> bool:
    """Return whether a block begins and ends as one that was never written, or is deleted."""
    if not block.size:
        return False
    absent = np.full(1, 0 if fill is None else fill, block.dtype)
    ends = (block[(at,) * block.ndim] for at in (0, -1))
    return {repr(end) for end in ends} == {repr(absent[0])}  # NaN, too


def _check_stored(array: Any, index: tuple[int, ...]) -> None:
    """Raise if the store of an array was deleted, in place of which Zarr reads fill values."""
    zarr: Any = sys.modules["zarr"]
    try:
        # Zarr warned of texts and records when the user opened the array.
        with _WARNINGS_LOCK, warnings.catch_warnings(action="ignore"):
            zarr.open_array(store=array.store, path=array.path, mode="r")
    except (FileNotFoundError, KeyError) as error:
        raise BlockLostError(
            f"block {index} cannot be read: there is no array {array.path or '/'!r} in "
            f"{array.store} any more; write it again, open it and split it",
            (index,),
        ) from error


def open_values(grid: BlockGrid, values: Sequence[Any]) -> ReadableCollection:
    """Open blocks in memory, in C order of a given grid; count the rows if they are unknown."""
    kept = tuple(values)
    if not grid.has_known_items:
        across = max(grid.nblocks // max(grid.shape[0], 1), 1)
        rows = [count_rows(it) if has_rows(it) else UNKNOWN for it in kept[::across]]
        grid = grid.with_row_counts(rows)
    return ReadableCollection(grid, _sizes(kept), kept.__getitem__)


def cut(length: int, step: int) -> tuple[int, ...]:
    """Cut an axis into parts of `step` items; the last part has the remainder.

    The sizes of the parts add up to `length`; an axis of length 0 is one part.

    Examples
    --------
    >>> cut(10, 4), cut(0, 4)
    ((4, 4, 2), (0,))
    """
    whole, rest = divmod(length, step)
    return (step,) * whole + ((rest,) if rest or not whole else ())


def _sizes(blocks: Sequence[Any]) -> IntArray:
    return np.fromiter((block_nbytes(block) for block in blocks), np.int64, count=len(blocks))


def _known(grid: BlockGrid, itemsize: int) -> IntArray:
    sizes = grid.block_sizes(itemsize)
    assert sizes is not None, "cut from a shape, so every size is known"
    return sizes
