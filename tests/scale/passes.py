"""What the tests of spilling run at the worker: light to import, as its memory is small."""

from __future__ import annotations

import threading
import weakref
from typing import Any, NamedTuple

import numpy as np
from distributed import Status, get_worker

from spliter import Partition
from tests.waiting import wait_until

ROWS, COLUMNS = 50_000, 10
BLOCK_NBYTES = ROWS * COLUMNS * 8


def block(block_info: Any = None) -> Any:
    """Make a block in which each value is the number of the block."""
    at = block_info[None]["chunk-location"][0]
    return np.full((ROWS, COLUMNS), float(at))


class Seen(NamedTuple):
    """What a pass has found."""

    total: float
    most_alive: int
    """Blocks that were in memory at once besides those that the worker keeps there."""


def look(partition: Partition) -> Seen:
    """Add up the numbers of the blocks, and watch how many of them there are at once."""
    data: Any = get_worker().data
    total, most, seen = 0.0, 0, []
    for one in partition:
        total += float(one[0, 0])
        seen.append(weakref.ref(one))
        kept = set(map(id, data.fast.values()))
        alive = [found for found in (reference() for reference in seen) if found is not None]
        most = max(most, sum(id(found) not in kept for found in alive))
        del alive
    return Seen(total, most)


def read_as_dask_does(keys: list[Any]) -> None:
    """Read values as the arguments of a task are read."""
    for key in keys:
        get_worker().data[key]


def look_ahead(partition: Partition) -> tuple[float, int, int]:
    """Add up the numbers of the blocks; return that, how many were read ahead, and the threads."""
    blocks: Any = iter(partition)
    found = sum(float(one[0, 0]) for one in blocks)
    names = [thread.name for thread in threading.enumerate()]
    reading = sum(name.startswith("spliter-read") for name in names)
    return found, getattr(blocks._blocks, "deepest", -1), reading


def look_when_short(partition: Partition, fraction: str) -> tuple[float, int, int]:
    """Do the same while the worker takes more than a fraction of its memory."""
    worker: Any = get_worker()
    manager = worker.memory_manager
    usual = getattr(manager, fraction)
    setattr(manager, fraction, 1e-9)
    try:
        wait_until(lambda: fraction != "memory_pause_fraction" or worker.status == Status.paused)
        return look_ahead(partition)
    finally:
        setattr(manager, fraction, usual)


def total(partition: Partition) -> tuple[int, float]:
    """Return how many blocks there are to see, and the sum of their numbers."""
    blocks = list(partition)
    return len(blocks), float(sum(one[:, 0].sum() for one in blocks)) / ROWS


def spill_all(dask_worker: Any) -> None:
    """Leave nothing in memory."""
    while dask_worker.data.fast:
        assert dask_worker.data.evict() >= 0


def litter(nbytes: int) -> int:
    """Leave memory behind that nobody needs: in a cycle, and between pieces that are needed."""
    piece = 64_000  # small enough to be taken from the C library's heap
    pieces: list[Any] = [np.ones(piece, "u1") for _ in range(nbytes // piece)]
    _needed.extend(pieces[::100])
    pieces.append(pieces)
    return taken()


_needed: list[Any] = []


def taken() -> int:
    return int(get_worker().monitor.get_process_memory())
