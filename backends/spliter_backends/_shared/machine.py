"""Query the cores and the memory of this machine, and settings in its environment."""

from __future__ import annotations

import os
from pathlib import Path

from spliter import InvalidArgumentError


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


def positive_seconds(variable: str, default: float) -> float:
    """Return an environment variable, or if it is unset or empty the default, in seconds above 0.

    Examples
    --------
    >>> positive_seconds("SPLITER_RAY_BLOCK_TIMEOUT", default=300.0)
    300.0
    """
    given = os.environ.get(variable, "")
    try:
        seconds = float(given) if given else default
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InvalidArgumentError(f"{variable} must be a number of seconds above 0, got {given!r}")
    return seconds
