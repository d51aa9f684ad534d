"""Cores and memory of the machine that this process runs on."""

from __future__ import annotations

import os
from pathlib import Path


def usable_cores() -> int:
    """Return how many cores this process may run on.

    Returns
    -------
    int
        Cores in its affinity mask, where there is one.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory(path: str = "/proc/meminfo") -> int | None:
    """Return the bytes of memory that new allocations may take without swapping.

    Parameters
    ----------
    path : str
        Where Linux tells.

    Returns
    -------
    int or None
        ``None`` if the system does not tell.
    """
    try:
        lines = Path(path).read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(found[0][1]) * 1024 if found else None
