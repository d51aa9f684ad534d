"""Mark a Zarr array to be read by Dask workers, each of which reads its own chunks.

A stored chunk has no location in memory that a task would have to go to. Each worker is assigned a
range of chunks, the same in every pass, and reads it::

    chunks in C order   0 1 2 3 4 5 | 6 7 8 9 10 11 | 12 13 14
    worker, by address  A (2 cores) | B (2 cores)   | C (1 core)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import zarr

from spliter import InvalidArgumentError
from spliter_backends._shared.readable import open_zarr
from spliter_backends._shared.stored import OnWorkers, StoredCollection

if TYPE_CHECKING:
    from distributed import Client


class ZarrArray(StoredCollection):
    """A Zarr array as a stored collection, whose blocks are its shards or chunks."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self._opened = open_zarr(array)
        self.grid = self._opened.grid
        self.nbytes = self._opened.nbytes

    def read(self, position: int) -> Any:
        """Read the shard or chunk at a C-order position."""
        return self._opened.read(position)

    def __reduce__(self) -> tuple[Any, ...]:
        return ZarrArray, (self._array,)


class ZarrCollection(OnWorkers):
    """A Zarr array and the cluster that reads it; returned by :func:`on_workers`."""


def on_workers(array: Any, client: Client | None = None) -> ZarrCollection:
    """Mark a Zarr array to be read by Dask workers, for :func:`spliter.split`.

    Nothing is read. (A Zarr array by itself is split in this process, on its threads.)

    Parameters
    ----------
    array : zarr.Array
        In a store that all workers can open: a shared file system, an object store. Its blocks
        are its shards, or its chunks if it has none.
    client : distributed.Client, optional
        By default the current one.

    Returns
    -------
    ZarrCollection
        Each worker gets a contiguous range of blocks in C order, workers sorted by address, in
        proportion to its threads and balanced by the bytes of the decoded blocks. Each block is
        read by one worker, the same in every pass, so it may be in that machine's page cache.
        Call ``Split.refresh`` after workers have joined or left; otherwise the tasks of a departed
        worker run at others.

    Raises
    ------
    InvalidArgumentError
        If `array` is not a Zarr array of at least one axis.

    Examples
    --------
    >>> from distributed import Client
    >>> from spliter import gather, split
    >>> array = zarr.create_array("memory://numbers", shape=(10,), chunks=(2,), dtype="i4")
    >>> array[:] = range(10)
    >>> with Client(n_workers=2, processes=False, dashboard_address="127.0.0.1:0") as client:
    ...     parts = split(on_workers(array, client), partitions_per_location=1)
    ...     sums = gather(parts.map(lambda part: [int(block.sum()) for block in part]))
    >>> sums
    [[1, 5, 9], [13, 17]]
    """
    if not isinstance(array, zarr.Array) or not array.ndim:
        raise InvalidArgumentError(
            f"on_workers() takes a zarr.Array of at least one axis, got {array!r}; open it with "
            "zarr.open_array(...)"
        )
    return ZarrCollection(ZarrArray(array), client)
