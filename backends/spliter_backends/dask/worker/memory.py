"""Read blocks from a Dask worker's memory or disk, and check that a copy fits into memory.

When a spilled value is read, Dask returns it to memory and spills the least recently used one. If a
loop reads more blocks than fit into memory, Dask spills blocks that this pass still needs, so every
pass reads *and writes* all of the data. Here a spilled block returns to memory only if there is
room; otherwise it is read, used and released, and its file stays::

    in memory   A B C   on disk   D E         a pass reads D and E, and writes nothing
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from dask.typing import Key
from distributed import Status, Worker
from distributed.spill import SpillBuffer

from spliter import NotEnoughMemoryError
from spliter_backends.dask.internals.worker import (
    in_memory,
    is_below_target,
    memory_limit,
    read_spilled,
)

READ_ATTEMPTS: Final = 6
"""Attempts to read a key: if two threads unspill it concurrently, zict's buffer raises KeyError."""

MISSING: Final = object()
"""Returned for a value that this worker does not have."""


def read_local(worker: Worker, key: Key) -> Any:
    """Read a value from a worker's memory or spill file, in a task's thread, or :data:`MISSING`."""
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
    """Return whether a worker has all of some values, in memory or spilled."""
    memory = in_memory(worker)
    return all(key in memory or key in worker.data for key in keys)


_concatenation_lock = threading.Lock()


@contextmanager
def memory_for(worker: Worker, nbytes: int) -> Iterator[None]:
    """Check that values can be concatenated in memory; one concatenation at a time.

    Concurrent ones would each take twice the size of their values before Dask notices and spills.
    """
    limit = memory_limit(worker)
    if limit is not None and 2 * nbytes > limit:
        raise NotEnoughMemoryError(
            f"the partition has {nbytes} bytes, and concatenating it takes as much again; the "
            f"limit of {worker.address} is {int(limit)} bytes. Iterate over the blocks, or "
            "increase partitions_per_location"
        )
    with _concatenation_lock:
        yield


def nbytes_of(worker: Worker, key: Key) -> int:
    """Return the bytes of a value as recorded by the worker; 0 if the worker does not have it."""
    task = worker.state.tasks.get(key)
    return 0 if task is None else int(task.nbytes or 0)


def has_memory_to_spare(worker: Worker) -> bool:
    """Return whether a worker is running and below its memory target."""
    return worker.status == Status.running and is_below_target(worker)


def can_take(worker: Worker, nbytes: int) -> bool:
    """Return whether a worker can keep more data, in memory or by spilling."""
    if isinstance(worker.data, SpillBuffer):
        return True
    limit = memory_limit(worker)
    return limit is None or worker.monitor.get_process_memory() + nbytes <= limit
