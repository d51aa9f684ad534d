"""Leave modules of engines that are not installed out of the search for examples in docstrings.

Tests of such an engine are found all the same, and skip with the reason (``tests/conftest.py``).
"""

from __future__ import annotations

import importlib.util

PACKAGE_OF = {
    "dataclay": "dataclay",
    "compss": "pycompss",
    "ray": "ray",
    "xarray": "xarray",
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
