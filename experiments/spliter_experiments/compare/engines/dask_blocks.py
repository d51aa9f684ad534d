"""Put rows on a Dask cluster as the blocks of an array, in as many blocks as asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import dask
import dask.array as da
import numpy.typing as npt
from dask.core import flatten
from distributed import Client, Future, futures_of, wait

from spliter_experiments.compare.data.sources import Rows
from spliter_experiments.compare.engines.placement import Placement, seats
from spliter_experiments.harness.errors import ClusterError, InputError

LOAD_SECONDS = 1800


@dataclass(frozen=True)
class SeatOfBlock:
    """Tells Dask where to make each block of an array.

    Parameters
    ----------
    seats : tuple of str
        The worker's address for each block.
    """

    seats: tuple[str, ...]

    def __call__(self, key: tuple[Any, ...]) -> str:
        """Return the worker for a block's key; called on the scheduler."""
        return self.seats[int(key[1])]


def _pins(client: Client, nblocks: int, placement: Placement) -> AbstractContextManager[Any]:
    if placement is Placement.DASK:
        return nullcontext()
    threads = dict(sorted(client.nthreads().items()))
    seat_of_block = SeatOfBlock(tuple(seats(nblocks, threads, placement)))
    pinned: AbstractContextManager[Any] = dask.annotate(workers=seat_of_block)
    return pinned


def persist(
    client: Client,
    source: Rows,
    row_chunks: Sequence[int],
    like: npt.NDArray[Any],
    placement: Placement = Placement.EVEN,
) -> da.Array:
    """Load rows at the workers.

    But for :attr:`Placement.DASK` blocks of the same number are at the same worker, whatever the
    source.

    Parameters
    ----------
    client : Client
        Of the cluster.
    source : Rows
        Where the rows come from.
    row_chunks : sequence of int
        Rows of each block.
    like : ndarray
        A block without rows.
    placement : Placement
        How the blocks are spread over the workers.

    Returns
    -------
    dask.array.Array
        Persisted; chunked in rows only.

    Raises
    ------
    InputError
        If the workers cannot read the rows.
    ClusterError
        If loading takes longer than half an hour.
    """
    chunks = (tuple(row_chunks), *((size,) for size in like.shape[1:]))
    lazy = da.map_blocks(load_rows, source=source, chunks=chunks, dtype=like.dtype, meta=like)
    with _pins(client, len(row_chunks), placement):
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
