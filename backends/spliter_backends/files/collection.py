"""Mark stored blocks to be read by Dask workers, each of which reads its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spliter import InvalidArgumentError
from spliter_backends._shared.stored import OnWorkers, StoredCollection

if TYPE_CHECKING:
    from distributed import Client


class FilesOnWorkers(OnWorkers):
    """Files and the cluster that reads them; returned by :func:`on_workers`."""


def on_workers(blocks: StoredCollection, client: Client | None = None) -> FilesOnWorkers:
    """Mark files to be read by Dask workers, for :func:`spliter.split`.

    Nothing is read. (Without it, threads of this process read the files.)

    Parameters
    ----------
    blocks : StoredCollection
        From :func:`open_blocks`, on a file system or object store that all workers can open.
    client : distributed.Client, optional
        By default the current one.

    Returns
    -------
    FilesOnWorkers
        Each worker gets a contiguous range of blocks, workers sorted by address, in proportion to
        its threads and balanced by bytes. It reads the same blocks in every pass.

    Raises
    ------
    InvalidArgumentError
        If `blocks` are not from :func:`open_blocks`.

    Examples
    --------
    >>> on_workers([1, 2])
    Traceback (most recent call last):
        ...
    spliter._errors.InvalidArgumentError: on_workers() takes a result of open_blocks(), got list...
    """
    if not isinstance(blocks, StoredCollection):
        raise InvalidArgumentError(
            f"on_workers() takes a result of open_blocks(), got {type(blocks).__name__}; for a "
            "Zarr array call spliter_backends.zarr.on_workers(array)"
        )
    return FilesOnWorkers(blocks, client)
