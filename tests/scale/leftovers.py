"""Count what a program has left behind at its client, its scheduler and its workers.

The scheduler runs in the client's process. Bounded records that Dask and Python themselves keep of
released tasks are cleared before counting:

* the last messages of each connection, and the events and stimuli of schedulers and workers;
* caches of functions in ``dask.utils``, above all ``key_split``: the keys of the last 100,000
  tasks, some 250 bytes each, in each process;
* up to a hundred cancelled timers, which asyncio drops in batches.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import gc
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import dask.utils
import psutil
from distributed import Client

PLACES: Final = ("client and scheduler", "workers")
"""Groups of processes whose memory is measured."""

LASTING: Final = ("DaskExecutor", "_Messages", "_Room", "_Lazy", ".read_ahead.Window")
"""Objects that live as long as a client: one executor, and the state of the modules, such as the
window of each location."""


@dataclass(frozen=True)
class Memory:
    """Objects that Python collects, memory blocks that it has allocated, and resident bytes."""

    objects: int
    blocks: int
    resident: int

    def __add__(self, other: Memory) -> Memory:
        return Memory(
            self.objects + other.objects,
            self.blocks + other.blocks,
            self.resident + other.resident,
        )

    def __sub__(self, other: Memory) -> Memory:
        return self + Memory(-other.objects, -other.blocks, -other.resident)


@dataclass(frozen=True)
class Census:
    """Counts that must return to what they were, SplIter's objects by class, memory by place."""

    counts: dict[str, int]
    own: Counter[str]
    memory: dict[str, Memory]

    def left_since(self, start: Census) -> int:
        """Return the number of tasks, futures, values and own objects added since `start`."""
        counts = sum(abs(self.counts[name] - start.counts[name]) for name in self.counts)
        return counts + max(self.own.total() - start.own.total(), 0)

    def growth_since(self, start: Census) -> dict[str, Memory]:
        """Return how much more memory each place holds."""
        return {place: held - start.memory[place] for place, held in self.memory.items()}


def own_objects() -> Counter[str]:
    """Count the objects of SplIter's classes in this process."""
    gc.collect()
    names = (f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())
    return Counter(
        name
        for name in names
        if name.startswith(("spliter.", "spliter_backends.")) and not name.endswith(LASTING)
    )


def memory_here() -> Memory:
    """Measure the memory of this process."""
    for function in vars(dask.utils).values():
        if isinstance(function, functools._lru_cache_wrapper):
            function.cache_clear()
    gc.collect()
    objects = len(gc.get_objects())
    blocks = sys.getallocatedblocks()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of the GNU C library alone
        if trim is not None:
            trim(0)
    return Memory(objects, blocks, psutil.Process().memory_info().rss)


async def forget_timers() -> None:
    """Make the running event loop drop its cancelled timers.

    It does so if they are more than a hundred, and more than half of all timers.
    """
    loop = asyncio.get_running_loop()
    timers = [loop.call_later(3600, str) for _ in range(500)]
    for timer in timers:
        timer.cancel()
    await asyncio.sleep(0)


def look_at_worker(dask_worker: Any) -> tuple[int, int, Counter[str], Memory]:
    """Return values, tasks, SplIter's objects and memory; runs on a worker."""
    dask_worker.batched_stream.recent_message_log.clear()
    dask_worker.state.stimulus_log.clear()
    own = own_objects()
    return len(dask_worker.data), len(dask_worker.state.tasks), own, memory_here()


def clear_logs(scheduler: Any) -> None:
    """Clear the scheduler's records of released tasks.

    The last messages of each connection are batches of tasks with their arguments. Work stealing
    remembers tasks of a function without a known duration until a task of that function has ended.
    """
    for comms in (scheduler.stream_comms, scheduler.client_comms):
        for comm in comms.values():
            comm.recent_message_log.clear()
    for waiting in scheduler.extensions["stealing"].unknown_durations.values():
        waiting.intersection_update(scheduler.tasks.values())


def census(client: Client) -> Census:
    """Count everything once."""
    cluster: Any = client.cluster
    scheduler: Any = cluster.scheduler
    clear_logs(scheduler)
    client.sync(forget_timers)
    cluster.sync(forget_timers)
    client.run(forget_timers)
    workers = list(client.run(look_at_worker).values())
    counts = {
        "tasks at the scheduler": len(scheduler.tasks),
        "keys that clients want": sum(
            len(state.wants_what) for state in scheduler.clients.values()
        ),
        "futures at the client": len(client.futures),
        "references to futures": sum(client.refcount.values()),
        "values at the workers": sum(values for values, *_ in workers),
        "tasks at the workers": sum(tasks for _, tasks, *_ in workers),
    }
    own = sum((found for _, _, found, _ in workers), own_objects())
    weighed = sum((memory for *_, memory in workers), Memory(0, 0, 0))
    return Census(counts, own, dict(zip(PLACES, (memory_here(), weighed), strict=True)))


def settled(
    client: Client, patience: float, is_quiet: Callable[[Census], bool] | None = None
) -> Census:
    """Count until the counts are stable, and return the last ones.

    The scheduler has to be in this process. `is_quiet` decides instead whether to stop; in any case
    the counting ends after `patience` seconds.
    """
    deadline = time.monotonic() + patience
    found = census(client)
    while time.monotonic() < deadline:
        if is_quiet is not None and is_quiet(found):
            break
        # Longer than the interval of 1 s at which SplIter checks its tasks.
        time.sleep(2.5 if is_quiet is None else 0.5)
        before, found = found, census(client)
        if is_quiet is None and (found.counts, found.own) == (before.counts, before.own):
            break
    return found
