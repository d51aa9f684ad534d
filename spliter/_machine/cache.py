"""Size of the processor's cache, by which loops cut their data."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Final

CACHES: Final = Path("/sys/devices/system/cpu/cpu0/cache")
"""Where Linux describes the caches of the first CPU."""

USUAL_NBYTES: Final = 2**20
"""Where nothing is known (not Linux, some containers): the level-2 cache of most servers since
2017 has 1 to 2 MiB."""


@functools.cache
def cache_nbytes(caches: Path = CACHES) -> int:
    """Return the bytes of the level-2 cache for each CPU that shares it.

    `caches` is a folder in the format of Linux's sysfs.
    """
    for cache in sorted(caches.glob("index*")):
        try:
            level, size, cpus = (
                (cache / name).read_text(encoding="ascii").strip()
                for name in ("level", "size", "shared_cpu_list")
            )
            if level == "2":
                return int(size.removesuffix("K")) * 1024 // _count(cpus)
        except (OSError, ValueError):
            continue
    return USUAL_NBYTES


def _count(cpus: str) -> int:
    """Return the number of CPUs in a list such as ``0-3,8``."""
    ranges = [part.split("-") for part in cpus.split(",")]
    return sum(int(part[-1]) - int(part[0]) + 1 for part in ranges)
