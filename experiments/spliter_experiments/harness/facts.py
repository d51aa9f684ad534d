"""Collect the package versions and machine properties stored with every result."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import spliter

PACKAGES = (
    "numpy",
    "scipy",
    "dask",
    "distributed",
    "dataclay",
    "ray",
    "pandas",
    "pyarrow",
    "zarr",
    "scikit-learn",
    "dask-ml",
    "joblib",
    "numba",
    "scikit-image",
    "polars",
    "utm",
    "seawater",
    "haversine",
    "pvlib",
)


@dataclass(frozen=True)
class Facts:
    """Versions of Python, SplIter and the `PACKAGES`; cores and bytes that this process may use."""

    versions: Mapping[str, str]
    system: str
    processor: str
    cores: int
    memory: int


def facts() -> Facts:
    versions = {"python": platform.python_version(), "spliter": spliter.__version__}
    versions |= {name: found for name in PACKAGES if (found := _version(name))}
    return Facts(
        versions=versions,
        system=f"{platform.system()} {platform.machine()}",
        processor=_processor(),
        cores=_cores(),
        memory=_memory(),
    )


def _cores() -> int:
    """Return the cores of this process; with Dask installed, respect a container's limit."""
    try:
        from dask.system import CPU_COUNT
    except ModuleNotFoundError:
        return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return int(CPU_COUNT)


def _memory() -> int:
    """Return the memory of this process in bytes; 0 on Windows without Dask."""
    try:
        from distributed.system import MEMORY_LIMIT
    except ModuleNotFoundError:
        if sys.platform == "win32":
            return 0
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(MEMORY_LIMIT)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _processor() -> str:
    """Return the processor model; ``platform.processor()`` is empty on Linux."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or "unknown"
