"""Sample the memory of the workers while something runs, and keep the peak."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil

EVERY_SECONDS = 0.1


class Peak:
    """The most that was seen; None where nothing can be seen."""

    def __init__(self) -> None:
        self.nbytes: int | None = None

    def see(self, nbytes: int | None) -> None:
        """Take note of what is held now."""
        if nbytes is not None:
            self.nbytes = max(nbytes, self.nbytes or 0)


@contextmanager
def watched(held: Callable[[], int | None]) -> Iterator[Peak]:
    """Look at how much is held, ten times a second, for the time of a context."""
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
    """Return what tells the memory of the processes that this one has started.

    They are found once: to look for them costs more than to look at them.
    """
    return held_by(psutil.Process().children(recursive=True))


def held_by(processes: list[psutil.Process]) -> Callable[[], int | None]:
    """Return what tells the resident memory of processes; those that have ended hold none."""

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
    """Return what tells the memory of a Dask cluster elsewhere, as its workers report it.

    Parameters
    ----------
    client : Client
        Of that cluster; workers report twice a second at most.
    """

    def held() -> int | None:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        return sum(int(worker["metrics"]["memory"]) for worker in workers)

    return held
