"""What dataClay and COMPSs need beside Python packages of their own, and whether it is here.

Nothing of theirs is imported or started: the engines themselves do much of both.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from importlib import metadata

from spliter_backends._shared import compss_requirements
from spliter_backends.dataclay.cluster.services import STORE_HINT, find_store

FIRST_PYTHON_WITHOUT_DATACLAY = (3, 13)
FIRST_REDIS_TOO_NEW = 8


COMMAND_PACKAGES = {
    "dask": "dask",
    "distributed": "distributed",
    "jinja2": "jinja2",
    "matplotlib": "matplotlib",
    "pandas": "pandas",
    "psutil": "psutil",
    "pyarrow": "pyarrow",
    "pydantic": "pydantic",
    "rich": "rich",
    "scipy": "scipy",
    "sklearn": "scikit-learn",
    "threadpoolctl": "threadpoolctl",
    "typer": "typer",
    "zarr": "zarr",
}
"""Modules of the extra ``experiments``, and the distributions that bring them."""


def missing_packages() -> list[str]:
    """Return the distributions of the extra ``experiments`` that are not installed."""
    return [
        distribution
        for module, distribution in COMMAND_PACKAGES.items()
        if importlib.util.find_spec(module) is None
    ]


@dataclass(frozen=True)
class Requirement:
    """One thing that a backend needs.

    Parameters
    ----------
    backend, what : str
        Name of the backend, and of the thing.
    found : str
        What there is of it; empty if it is missing or not as it should be.
    advice : str
        What to do where it is missing.
    """

    backend: str
    what: str
    found: str
    advice: str


def requirements() -> list[Requirement]:
    """Look for all of them."""
    return [
        Requirement("dataclay", "package dataclay", _version("dataclay"), _dataclay_advice()),
        Requirement("dataclay", "package redis", _usable_redis(), 'pip install "redis<8"'),
        Requirement("dataclay", "key-value store", _store(), f"to start one here: {STORE_HINT}"),
        *(
            Requirement("compss", need.what, need.found, need.advice)
            for need in compss_requirements.requirements()
        ),
    ]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _dataclay_advice() -> str:
    if sys.version_info >= FIRST_PYTHON_WITHOUT_DATACLAY:
        return "dataClay needs Python < 3.13; make an environment with an older one"
    return 'pip install "spliter[dataclay]"'


def _usable_redis() -> str:
    version = _version("redis")
    # From 8 on a client has 100 connections at most, which many calls at once exceed.
    return version if version and int(version.partition(".")[0]) < FIRST_REDIS_TOO_NEW else ""


def _store() -> str:
    store = find_store()
    return "" if store is None else store.name
