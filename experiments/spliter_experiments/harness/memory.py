"""Sample the memory of worker processes during a run and record the peak."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil

EVERY_SECONDS = 0.1


class Peak:
    """The largest sample so far, in bytes; None without samples."""

    def __init__(self) -> None:
        self.nbytes: int | None = None

    def see(self, nbytes: int | None) -> None:
        if nbytes is not None:
            self.nbytes = max(nbytes, self.nbytes or 0)


@contextmanager
def watched(held: Callable[[], int | None]) -> Iterator[Peak]:
    """Sample `held` every `EVERY_SECONDS` while the context is open."""
    peak, end = Peak(), threading.Event()

    def sample() -> None:
        while not end.wait(EVERY_SECONDS):
            peak.see(held())

    watcher = threading.Thread(target=sample, name="spliter-memory", daemon=True)
    peak.see(held())
    watcher.start()
    try:
        yield peak
    finally:
        end.set()
        watcher.join(timeout=10)
        peak.see(held())


def held_by_children() -> Callable[[], int | None]:
    """Return a function that samples the memory of the child processes of this process.

    The children are listed once, because listing them costs more than reading their memory.
    """
    return held_by(psutil.Process().children(recursive=True))


def held_by(processes: list[psutil.Process]) -> Callable[[], int | None]:
    """Return a function that sums the resident memory of the processes still running."""

    def held() -> int | None:
        total = 0
        for process in processes:
            try:
                total += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        return total if processes else None

    return held


def held_by_workers(client: Any) -> Callable[[], int | None]:
    """Return a function that sums the memory that the workers of a Dask cluster report.

    Workers report at most twice a second.
    """

    def held() -> int | None:
        # Not by `scheduler_info`: what the client asks by itself, for no workers, may come between.
        workers = client.sync(client.scheduler.identity, n_workers=-1)["workers"].values()
        return sum(int(worker["metrics"]["memory"]) for worker in workers)

    return held
