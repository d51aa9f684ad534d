"""A Dask worker's memory, as tasks use it: read blocks where they are, make room for a copy.

Dask brings a spilled value back to memory for good when it is read, and spills the one that was
used longest ago to have room for it. Under a loop over more blocks than memory holds that is the
worst that can be done: each block is spilled just before its turn comes, so every pass reads
*and writes* all of the data. Here a spilled block comes back for good only where there is room;
otherwise it is read, used and let go, and its file stays::

    in memory   A B C   on disk   D E         a pass reads D and E, and writes nothing
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from dask.typing import Key
from distributed import Worker
from distributed.spill import SpillBuffer

from spliter import NotEnoughMemoryError
from spliter_backends.dask.internals import in_memory, memory_limit, read_spilled

READ_ATTEMPTS: Final = 6
"""Reads of one key before it is taken for one that is not here. Two threads that unspill the
same key at once make zict's buffer raise KeyError for a key it has."""

MISSING: Final = object()
"""Stands for a value that this worker does not have."""


def read_local(worker: Worker, key: Key) -> Any:
    """Read a value from a worker's memory, or from its spill file, in a task's thread.

    Parameters
    ----------
    worker : distributed.Worker
        The one that the calling task runs at.
    key : key
        Of the value.

    Returns
    -------
    object
        The value; :data:`MISSING` if the worker does not have it.
    """
    memory = in_memory(worker)
    for attempt in range(READ_ATTEMPTS):
        try:
            return memory[key]
        except KeyError:
            if key not in worker.data:
                return MISSING
        try:
            return read_spilled(worker, key)
        except KeyError:
            time.sleep(0.001 * 2**attempt)
    return MISSING


def holds_all(worker: Worker, keys: Iterable[Key]) -> bool:
    """Tell whether a worker has some values, in memory or spilled.

    Parameters
    ----------
    worker : distributed.Worker
        The one that the calling task runs at.
    keys : iterable of key
        Of the values.

    Returns
    -------
    bool
        Whether it has all of them.
    """
    memory = in_memory(worker)
    return all(key in memory or key in worker.data for key in keys)


_concatenation_lock = threading.Lock()


@contextmanager
def memory_for(worker: Worker, nbytes: int) -> Iterator[None]:
    """Refuse to put values into one that the worker has not the memory for; one at a time.

    Several at once would each need twice their size, before Dask knows of any of it and spills.

    Parameters
    ----------
    worker : distributed.Worker
        The one that the calling task runs at.
    nbytes : int
        Of all values together.

    Yields
    ------
    None

    Raises
    ------
    NotEnoughMemoryError
        If the worker would be paused, or ended, half way.
    """
    limit = memory_limit(worker)
    if limit is not None and 2 * nbytes > limit:
        raise NotEnoughMemoryError(
            f"the partition has {nbytes} bytes, and takes as much again as one block: more than "
            f"the {int(limit)} bytes up to which {worker.address} goes on working; iterate over "
            "its blocks, or split into more partitions_per_location"
        )
    with _concatenation_lock:
        yield


def nbytes_of(worker: Worker, key: Key) -> int:
    """Return the size of a value as the worker knows it.

    Parameters
    ----------
    worker : distributed.Worker
        The one that the calling task runs at.
    key : key
        Of the value.

    Returns
    -------
    int
        Bytes, 0 if the worker does not have it.
    """
    task = worker.state.tasks.get(key)
    return 0 if task is None else int(task.nbytes or 0)


def can_take(worker: Worker, nbytes: int) -> bool:
    """Tell whether a worker can keep more data: memory has room, or Dask makes room by spilling.

    Parameters
    ----------
    worker : distributed.Worker
        The one that this runs on.
    nbytes : int
        Bytes of the data.

    Returns
    -------
    bool
        Whether it can.
    """
    if isinstance(worker.data, SpillBuffer):
        return True
    limit = memory_limit(worker)
    return limit is None or worker.monitor.get_process_memory() + nbytes <= limit
