"""Put points on a cluster as the blocks of a Dask array, in as many blocks as asked for."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import dask
import dask.array as da
import numpy as np
import numpy.typing as npt
from dask.core import flatten
from distributed import Client, Future, futures_of, wait

from spliter_experiments._errors import ClusterError, InputError
from spliter_experiments._inputs import Floats, Labels, Points, Rows

LOAD_SECONDS = 1800


def cut_rows(rows: int, nblocks: int) -> tuple[int, ...]:
    """Cut rows into blocks of as equal sizes as there are.

    Raises
    ------
    InputError
        If there are fewer rows than blocks.

    Examples
    --------
    >>> cut_rows(10, 4)
    (3, 3, 2, 2)
    """
    if rows < nblocks:
        raise InputError(
            f"{rows} rows cannot be cut into {nblocks} blocks; take fewer blocks per core, "
            "or more rows (--rows, or --tile with --input)"
        )
    size, larger = divmod(rows, nblocks)
    return (size + 1,) * larger + (size,) * (nblocks - larger)


def row_starts(sizes: Sequence[int]) -> list[int]:
    """Return the number of the first row of each block.

    Examples
    --------
    >>> row_starts((3, 3, 2))
    [0, 3, 6]
    """
    return [end - size for end, size in zip(itertools.accumulate(sizes), sizes, strict=True)]


class Placement(StrEnum):
    """How blocks are spread over the workers."""

    EVEN = "even"
    """In turn, each worker as many as it has threads."""
    DASK = "dask"
    """Where Dask happens to make them, which is a tenth uneven or more."""


@dataclass(frozen=True)
class InTurn:
    """Tells Dask where to make each block of an array.

    Parameters
    ----------
    seats : tuple of str
        Workers' addresses, each as often as the worker has threads.
    """

    seats: tuple[str, ...]

    def __call__(self, key: tuple[Any, ...]) -> str:
        """Return the worker for a block's key; called on the scheduler."""
        return self.seats[int(key[1]) % len(self.seats)]


def _pins(client: Client, placement: Placement) -> AbstractContextManager[Any]:
    if placement is Placement.DASK:
        return nullcontext()
    threads = client.nthreads()
    most = max(threads.values())
    seats = tuple(at for turn in range(most) for at in sorted(threads) if threads[at] > turn)
    pinned: AbstractContextManager[Any] = dask.annotate(workers=InTurn(seats))
    return pinned


def persist_points(
    client: Client,
    points: Points,
    row_chunks: Sequence[int],
    placement: Placement = Placement.EVEN,
) -> da.Array:
    """Load points at the workers.

    Parameters
    ----------
    client : Client
        Of the cluster.
    points : Points
        Where the rows come from.
    row_chunks : sequence of int
        Rows of each block.
    placement : Placement
        How the blocks are spread over the workers.

    Returns
    -------
    dask.array.Array of float64, shape (rows, columns)
        Persisted; chunked in rows only.

    Raises
    ------
    InputError
        If the workers cannot read the points.
    ClusterError
        If loading takes longer than half an hour.
    """
    width = len(points.columns)
    chunks = (tuple(row_chunks), (width,))
    return _persist(client, points, chunks, np.empty((0, 0), dtype=np.float64), placement)


def persist_labels(
    client: Client,
    labels: Labels,
    row_chunks: Sequence[int],
    placement: Placement = Placement.EVEN,
) -> da.Array:
    """Load labels at the workers, as :func:`persist_points` does.

    With :attr:`Placement.EVEN` each block is where that of the points is.

    Returns
    -------
    dask.array.Array of int64, shape (rows,)
        Persisted.
    """
    return _persist(client, labels, (tuple(row_chunks),), np.empty(0, dtype=np.int64), placement)


def _persist(
    client: Client,
    source: Rows,
    chunks: tuple[tuple[int, ...], ...],
    meta: npt.NDArray[Any],
    placement: Placement,
) -> da.Array:
    lazy = da.map_blocks(load_rows, source=source, chunks=chunks, dtype=meta.dtype, meta=meta)
    with _pins(client, placement):
        # Not optimized: the keys that the pins look at have to stay.
        array: da.Array = lazy.persist(optimize_graph=False)
    try:
        wait(array, timeout=LOAD_SECONDS)
    except TimeoutError as error:
        raise ClusterError(f"the points are not loaded after {LOAD_SECONDS} s") from error
    for block in blocks_of(array):
        if block.status == "error":
            raise InputError(
                f"the workers cannot read {source.origin}: {block.exception()}; a file has to be "
                "at the same path on every worker"
            )
    return array


def load_rows(source: Rows, block_info: Mapping[Any, Any] | None = None) -> npt.NDArray[Any]:
    """Read the rows of one block; runs on a worker."""
    assert block_info is not None
    start, stop = block_info[None]["array-location"][0]
    return source.read(start, stop)


def blocks_of(array: da.Array) -> list[Future[Any]]:
    """Return the futures of a persisted array's blocks in the order of their rows."""
    futures = {future.key: future for future in futures_of(array)}
    return [futures[key] for key in flatten(array.__dask_keys__())]


def bounds_of(client: Client, points: Points, array: da.Array) -> Floats:
    """Return the lowest and highest finite value of each column, shape (2, columns).

    Raises
    ------
    InputError
        If a column has no finite value.
    """
    each = client.gather(client.map(finite_bounds, blocks_of(array), pure=False))
    low = np.min([bounds[0] for bounds in each], axis=0)
    high = np.max([bounds[1] for bounds in each], axis=0)
    empty = [name for name, least in zip(points.columns.names, low, strict=True) if least == np.inf]
    if empty:
        raise InputError(f"{points.origin}: no finite value in {', '.join(empty)}")
    return np.stack([low, high])


def check_finite(client: Client, points: Points, array: da.Array) -> None:
    """Make sure that all values are finite numbers.

    Raises
    ------
    InputError
        If some are not; names the columns.
    """
    each = client.gather(client.map(has_gaps, blocks_of(array), pure=False))
    gaps = np.any(each, axis=0)
    if gaps.any():
        names = [name for name, gap in zip(points.columns.names, gaps, strict=True) if gap]
        raise InputError(
            f"{points.origin}: missing or infinite values in {', '.join(names)}; choose other "
            "columns with --columns, or fill them in"
        )


def has_gaps(block: Floats) -> npt.NDArray[np.bool_]:
    """Tell which columns hold a value that is not a finite number, shape (columns,)."""
    return np.asarray(np.any(~np.isfinite(block), axis=0))


def finite_bounds(block: Floats) -> Floats:
    """Return the smallest and the largest finite value of each column, shape (2, columns).

    A column without one yields (inf, -inf), which changes nothing when bounds are merged.
    """
    finite = np.isfinite(block)
    low = np.min(block, axis=0, where=finite, initial=np.inf)
    high = np.max(block, axis=0, where=finite, initial=-np.inf)
    return np.stack([low, high])
