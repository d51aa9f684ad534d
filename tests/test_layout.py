"""The shape of the project: who may import whom, what an import costs, what is documented."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import spliter
from tests.conftest import ROOT, RunPython

PACKAGES = {
    "spliter": ROOT / "spliter",
    "spliter_backends": ROOT / "backends" / "spliter_backends",
    "spliter_apps": ROOT / "apps" / "spliter_apps",
    "spliter_experiments": ROOT / "experiments" / "spliter_experiments",
}
ENGINES = {"dask", "distributed", "dataclay", "pycompss", "ray"}
"""What only backends and experiments may name."""

MAY_IMPORT_OF_US = {
    "spliter": {"spliter"},
    "spliter_backends": {"spliter", "spliter_backends"},
    "spliter_apps": {"spliter", "spliter_apps"},
    "spliter_experiments": set(PACKAGES),
}
TESTING = PACKAGES["spliter"] / "testing"
"""The conformance suite: part of the core that is for tests, so it may import their tools."""


def imported(source: str, package: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Yield the top-level package and line of each import, wherever in the module it stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.partition(".")[0], node.lineno
        elif isinstance(node, ast.ImportFrom):
            if node.level > len(package):
                yield "." * node.level, node.lineno
            else:
                base = ".".join(package) if node.level else node.module or ""
                yield base.partition(".")[0], node.lineno


def modules(package: str) -> list[Path]:
    found = sorted(PACKAGES[package].rglob("*.py"))
    assert found, f"{package} has no modules: this test would see nothing"
    return found


def imports_of(path: Path, package: str) -> Iterator[tuple[str, int]]:
    inside = path.relative_to(PACKAGES[package]).parent.parts
    return imported(path.read_text(encoding="utf-8"), (package, *inside))


@pytest.mark.parametrize("package", PACKAGES)
def test_arrows_between_packages(package: str) -> None:
    forbidden = set(PACKAGES) - MAY_IMPORT_OF_US[package]
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in modules(package)
        for name, line in imports_of(path, package)
        if name in forbidden
    ]
    assert wrong == []


@pytest.mark.parametrize("package", ["spliter", "spliter_apps"])
def test_engines_are_known_to_backends_and_experiments_only(package: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in modules(package)
        for name, line in imports_of(path, package)
        if name in ENGINES
    ]
    assert wrong == []


def test_core_needs_numpy_and_the_standard_library_only() -> None:
    allowed = {"spliter", "numpy", *sys.stdlib_module_names}
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in modules("spliter")
        for name, line in imports_of(path, "spliter")
        if name not in allowed and not path.is_relative_to(TESTING)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import spliter_backends.dask as d", ["spliter_backends"]),
        ("def f():\n    from spliter_apps.histogram import histogramdd", ["spliter_apps"]),
        ("if TYPE_CHECKING:\n    from dask import array", ["dask"]),
        ("from . import sibling\nfrom ..sub import thing", ["spliter", "spliter"]),
        ("from ... import outside", ["..."]),
    ],
)
def test_import_check_sees_imports_everywhere(source: str, names: list[str]) -> None:
    assert [name for name, _ in imported(source, ("spliter", "sub"))] == names


IMPORT_AND_TELL = """
import json, sys
before = set(sys.modules)
import {module}
print(json.dumps(sorted({{name.partition(".")[0] for name in set(sys.modules) - before}})))
"""


def loaded_by_import(module: str, run_python: RunPython) -> set[str]:
    done = run_python("-c", IMPORT_AND_TELL.format(module=module))
    assert done.returncode == 0, done.stderr
    loaded: set[str] = set(json.loads(done.stdout))
    return loaded


def test_importing_the_core_imports_numpy_alone(run_python: RunPython) -> None:
    loaded = loaded_by_import("spliter", run_python)
    assert "spliter" in loaded
    assert loaded - set(sys.stdlib_module_names) <= {"spliter", "numpy"}


def test_import_cost_is_seen_where_there_is_one(run_python: RunPython) -> None:
    assert "hypothesis" in loaded_by_import("hypothesis, spliter", run_python)


def public_objects() -> list[tuple[str, Any]]:
    named = [(name, getattr(spliter, name)) for name in spliter.__all__]
    return [(name, value) for name, value in named if inspect.isclass(value) or callable(value)]


@pytest.mark.parametrize(("name", "value"), public_objects())
def test_public_objects_are_documented(name: str, value: Any) -> None:
    # Not inspect.getdoc: an inherited docstring describes something else.
    assert (value.__doc__ or "").strip(), f"spliter.{name} has no docstring"


def test_public_names_are_all_documented_kinds() -> None:
    assert {name for name, _ in public_objects()} >= {"split", "Split", "Partition", "task"}
    assert sorted(spliter.__all__) == sorted(set(spliter.__all__))


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_are_typed_and_say_what_they_are(package: str) -> None:
    assert (PACKAGES[package] / "py.typed").is_file()
    assert (importlib.import_module(package).__doc__ or "").strip()
