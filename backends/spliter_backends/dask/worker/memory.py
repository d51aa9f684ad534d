"""A Dask worker's memory, as tasks use it: read blocks where they are, make room for a copy.

Dask brings a spilled value back to memory for good when it is read, and spills the one that was
used longest ago to have room for it. Under a loop over more blocks than memory holds that is the
worst that can be done: each block is spilled just before its turn comes, so every pass reads
*and writes* all of the data. Here a spilled block comes back for good only where there is room;
otherwise it is read, used and let go, and its file stays::

    in memory   A B C   on disk   D E         a pass reads D and E, and writes nothing
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import dask
from dask.typing import Key
from distributed import Worker
from distributed.spill import SpillBuffer

from spliter import NotEnoughMemoryError
from spliter_backends.dask.internals import in_memory, read_spilled

READ_ATTEMPTS: Final = 6
"""Reads of one key before it is taken for one that is not here. Two threads that unspill the
same key at once make zict's buffer raise KeyError for a key it has."""

LOOKS: Final = (0.0, 0.1, 0.3, 1.0)
"""Seconds before each further look at a process that seems to take too much. What Dask has spilled
a moment ago, or what an error's traceback holds, is often no longer needed and still counted."""

MISSING: Final = object()
"""Stands for a value that this worker does not have."""


def read_here(worker: Worker, key: Key) -> Any:
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


def has_all(worker: Worker, keys: Iterable[Key]) -> bool:
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


class _Room:
    """Memory set aside in this process for values that are being put into one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._taken = 0
        self._before = 0

    @contextmanager
    def of(
        self, worker: Worker, nbytes: int, keys: Collection[Key], timeout: float
    ) -> Iterator[None]:
        limit = _most_memory(worker)
        if limit is None:
            yield
            return
        # What is copied is held meanwhile, so that spilling it would free nothing.
        wanted = 2 * nbytes
        with self._changed:
            while not self._fits(worker, keys, wanted, limit):
                # Others that are at it go first.
                if not self._taken or not self._changed.wait(timeout):
                    raise NotEnoughMemoryError(
                        f"the partition has {nbytes} bytes, and takes as much again as one block: "
                        f"of the {int(limit)} bytes up to which {worker.address} goes on working, "
                        f"{self._before + self._taken} are taken by what cannot be spilled; "
                        "iterate over its blocks, or split into more partitions_per_location"
                    )
            self._taken += wanted
        try:
            _spill_others(worker, nbytes, keys, limit)
            yield
        finally:
            with self._changed:
                self._taken -= wanted
                self._changed.notify_all()

    def _fits(self, worker: Worker, keys: Collection[Key], wanted: int, limit: float) -> bool:
        if not self._taken:
            self._before = _not_to_be_spilled(worker, keys)
            for pause in LOOKS:
                if self._before + wanted <= limit or wanted > limit:
                    break
                time.sleep(pause)
                _give_back()
                self._before = _not_to_be_spilled(worker, keys)
        return self._before + self._taken + wanted <= limit


_room = _Room()


def room_for(
    worker: Worker, nbytes: int, keys: Collection[Key], timeout: float
) -> AbstractContextManager[None]:
    """Return a context in which there is memory to put values into one.

    Others that are at it are waited for, and what is not needed for it is spilled.

    Parameters
    ----------
    worker : distributed.Worker
        The one that the calling task runs at.
    nbytes : int
        Of all values together.
    keys : collection of key
        Those of them that are data of the worker, in memory or spilled.
    timeout : float
        Most seconds to wait.

    Returns
    -------
    context manager
        Whose begin raises NotEnoughMemoryError if the worker has not the memory: it would be
        paused, or ended, half way.
    """
    return _room.of(worker, nbytes, keys, timeout)


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
    limit = _most_memory(worker)
    return limit is None or worker.monitor.get_process_memory() + nbytes <= limit


def _most_memory(worker: Worker) -> float | None:
    """Bytes up to which a worker is left alone: beyond that it is paused, or ended."""
    manager = worker.memory_manager
    if not manager.memory_limit:
        return None
    ended = dask.config.get("distributed.worker.memory.terminate")
    return float(manager.memory_limit * (manager.memory_pause_fraction or ended or 1))


def _not_to_be_spilled(worker: Worker, keys: Collection[Key]) -> int:
    """Bytes of the process that would still be there if Dask spilled all it can."""
    data: Any = worker.data
    process: int = worker.monitor.get_process_memory()
    if isinstance(data, SpillBuffer):
        managed = int(data.fast.total_weight)
    else:  # counted once already, as what is copied
        managed = sum(nbytes_of(worker, key) for key in keys if key in data)
    return max(process - managed, 0)


def _give_back() -> None:
    """Let go of what only Python's collector can free, and of the C library's free memory."""
    gc.collect()
    if sys.platform == "linux":
        # Only glibc has it; others give free memory back by themselves.
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _spill_others(worker: Worker, nbytes: int, keys: Collection[Key], limit: float) -> None:
    """Spill, oldest use first, until the copy and what is yet to be read fit beside the rest."""
    data: Any = worker.data
    if not isinstance(data, SpillBuffer):
        return
    fast: Any = data.fast
    for key in keys:
        if key in fast:
            read_here(worker, key)  # the last to be spilled
    while fast:
        to_be_read = nbytes - sum(nbytes_of(worker, key) for key in keys if key in fast)
        excess = worker.monitor.get_process_memory() + nbytes + to_be_read - limit
        if excess <= 0:
            return
        spilled = 0
        while fast and spilled < excess:
            try:
                weight = data.evict()
            except KeyError:  # Dask has spilled the last one meanwhile, in another thread
                return
            if weight < 0:  # the disk is full, or it cannot be pickled; Dask has logged it
                return
            spilled += weight
