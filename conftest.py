"""Leave modules of engines that are not installed out of the search for examples in docstrings.

Tests of such an engine are found all the same, and skip with the reason (``tests/conftest.py``).
Folders of the other tier are not imported where the run leaves it out.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

PACKAGE_OF = {
    "dataclay": "dataclay",
    "compss": "pycompss",
    "ray": "ray",
    "xarray": "xarray",
    "files/parquet": "pyarrow",
    "files/opening": "pyarrow",
    "records/http": "httpx",
    "records/objects": "fsspec",
    "records/redis": "redis",
    "records/sql": "sqlalchemy",
}
"""For each engine or source that need not be there, the package that it is imported from."""

collect_ignore_glob = [
    f"{root}/*{engine}*.py"
    for engine, package in PACKAGE_OF.items()
    if importlib.util.find_spec(package) is None
    for root in ("backends", "experiments")
]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import nothing of what is left out anyway."""
    from tests.conftest import leaves_out

    if not collection_path.is_relative_to(config.rootpath):  # tests of another package
        return None
    return leaves_out(config, collection_path.relative_to(config.rootpath).parts) or None
