"""What dataClay and COMPSs need beside Python packages of their own, and whether it is here.

Nothing is imported or started: the engines themselves do much of both.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from spliter_backends._dataclay_services import STORE_HINT, find_store

FIRST_PYTHON_WITHOUT_DATACLAY = (3, 13)
FIRST_REDIS_TOO_NEW = 8


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
        Requirement(
            "compss",
            "COMPSS_HOME",
            _folder("COMPSS_HOME"),
            "load your site's COMPSs module, or install COMPSs and set it to that folder, such as "
            "/opt/COMPSs",
        ),
        Requirement(
            "compss", "java", _java(), "install a JDK that COMPSs supports, and set JAVA_HOME"
        ),
        Requirement("compss", "package pycompss", _pycompss(), _pycompss_advice()),
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


def _folder(variable: str) -> str:
    value = os.environ.get(variable, "")
    return value if value and Path(value).is_dir() else ""


def _java() -> str:
    home = _folder("JAVA_HOME")
    at_home = shutil.which("java", path=str(Path(home, "bin"))) if home else None
    return at_home or shutil.which("java") or ""


def _pycompss() -> str:
    spec = importlib.util.find_spec("pycompss")
    return "" if spec is None else str(spec.origin)


def _pycompss_advice() -> str:
    home = _folder("COMPSS_HOME")
    if home:
        return f"add {home}/Bindings/python/3 to PYTHONPATH, or start the program with runcompss"
    return "it comes with COMPSs"
