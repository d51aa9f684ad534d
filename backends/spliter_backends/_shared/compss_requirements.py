"""Check what COMPSs needs on this machine, with advice on what is missing.

COMPSs is neither imported nor started; only ``java -version`` is run. Needs the core alone, so that
``spliter doctor`` works before anything is installed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

JVM_OPTION: Final = "--jvm_master_opts=-Dcom.sun.xml.bind.v2.bytecode.ClassTailor.noOptimize=true"
"""Option of ``runcompss`` for Java 17. Without it the runtime's XML reader generates classes in a
way that Java 17 forbids, and the application ends in a NullPointerException."""

FIRST_JAVA_WITH_OPTION: Final = 17

JAVA_SECONDS: Final = 20.0
"""Timeout of ``java -version``, which takes about a tenth of a second."""

HOME_ADVICE: Final = (
    "load your site's COMPSs module, or install COMPSs and set COMPSS_HOME to its folder, such as "
    "/opt/COMPSs"
)


@dataclass(frozen=True)
class Requirement:
    """A requirement of COMPSs, or of programs that use it.

    found: Path or version, and the options it needs; empty if it is missing.
    advice: What to do if it is missing.
    """

    what: str
    found: str
    advice: str


def requirements() -> list[Requirement]:
    """Return the requirements of COMPSs, found or not.

    Examples
    --------
    >>> [need.what for need in requirements()]
    ['COMPSS_HOME', 'runcompss', 'ssh', 'java', 'package pycompss', 'package dislib']
    """
    home = _folder("COMPSS_HOME")
    return [
        Requirement("COMPSS_HOME", home, HOME_ADVICE),
        Requirement("runcompss", shutil.which("runcompss") or "", _runcompss_advice(home)),
        Requirement(
            "ssh",
            shutil.which("ssh") or "",
            "COMPSs starts workers by ssh, also on this machine: allow login without a password to "
            "every node (ssh-copy-id); here, apt-get install openssh-client openssh-server",
        ),
        _java(),
        Requirement("package pycompss", _origin("pycompss"), pycompss_advice(home)),
        Requirement("package dislib", _version("dislib"), "only for ds-arrays: pip install dislib"),
    ]


def pycompss_advice(home: str) -> str:
    """Return advice on how to make PyCOMPSs importable, given COMPSs' folder or ``""``."""
    if home:
        return f"add {home}/Bindings/python/3 to PYTHONPATH, or start the program with runcompss"
    return (
        f"it comes with the COMPSs runtime (COMPSS_HOME is not set, or not a folder): {HOME_ADVICE}"
    )


def _runcompss_advice(home: str) -> str:
    return f"add {home}/Runtime/scripts/user to PATH" if home else HOME_ADVICE


def _folder(variable: str) -> str:
    value = os.environ.get(variable, "")
    return value if value and Path(value).is_dir() else ""


def _origin(package: str) -> str:
    spec = importlib.util.find_spec(package)
    return "" if spec is None else str(spec.origin)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _java() -> Requirement:
    home = _folder("JAVA_HOME")
    at_home = shutil.which("java", path=str(Path(home, "bin"))) if home else None
    path = at_home or shutil.which("java")
    version = "" if path is None else _java_version(path)
    option = f"; pass to runcompss: {JVM_OPTION}" if _needs_option(version) else ""
    return Requirement(
        "java",
        f"{version} at {path}{option}" if version else "",
        "install a JDK that COMPSs supports, and set JAVA_HOME",
    )


def _java_version(path: str) -> str:
    try:
        said = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=JAVA_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r'version "([^"]+)"', said.stderr + said.stdout)
    return "" if found is None else found[1]


def _needs_option(version: str) -> bool:
    # Java 8 reports its version as 1.8.
    number = re.match(r"(?:1\.)?(\d+)", version)
    return number is not None and int(number[1]) >= FIRST_JAVA_WITH_OPTION
