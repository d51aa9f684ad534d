"""Query the cores and the memory of this machine."""

from __future__ import annotations

import os
from pathlib import Path


def usable_cores() -> int:
    """Return the number of cores in this process's affinity mask, or of the machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory(path: str = "/proc/meminfo") -> int | None:
    """Return the bytes that can be allocated without swapping; None on systems without `path`."""
    try:
        lines = Path(path).read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(found[0][1]) * 1024 if found else None
