"""What a release depends on: version, changelog and tags that agree; bounds that can be pinned."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

import spliter
from tests.conftest import ROOT
from tests.running import run_command

CHANGELOG = """# Changelog

## [Unreleased]

## [1.2.0] - 2026-03-31

### Added

- A thing.

## [1.1.0] - 2026-01-31

### Added

- Another.
"""


@pytest.fixture(scope="module")
def checks() -> ModuleType:
    """The module of the scripts, which is in no package."""
    where = ROOT / "scripts" / "release_checks.py"
    spec = importlib.util.spec_from_file_location("release_checks", where)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_version_that_can_be_released(checks: ModuleType) -> None:
    assert checks.problems("1.2.0", CHANGELOG, ["v1.1.0", "benchmarks", "v-old"]) == []


@pytest.mark.parametrize(
    ("version", "changelog", "tags", "says"),
    [
        ("1.2.0", CHANGELOG, ["v1.2.0"], "there is a tag v1.2.0 already"),
        ("1.2.0", CHANGELOG, ["v1.10.0"], "older than what has been released: v1.10.0"),
        ("1.3.0", CHANGELOG, [], "no section '## [1.3.0] - YYYY-MM-DD'"),
        ("1.2.0", CHANGELOG.replace("2026-03-31", "soon"), [], "no section '## [1.2.0]"),
        ("1.2.0", CHANGELOG.replace("- A thing.", ""), [], "lists no changes"),
        (
            "1.2.0",
            CHANGELOG.replace("## [Unreleased]\n", "## [Unreleased]\n\n- News.\n"),
            [],
            "still lists changes under [Unreleased]",
        ),
        ("one", CHANGELOG, [], "'one' is not a version"),
        ("1.02.0", CHANGELOG, [], "write the version as 1.2.0"),
    ],
)
def test_what_keeps_a_version_from_being_released(
    checks: ModuleType, version: str, changelog: str, tags: list[str], says: str
) -> None:
    found = checks.problems(version, changelog, tags)
    assert any(says in line for line in found), found


def test_version_is_stated_once(checks: ModuleType) -> None:
    source = (ROOT / "spliter" / "__init__.py").read_text(encoding="utf-8")
    assert checks.written_version(source) == spliter.__version__
    for wrong in ("", '__version__ = "1"\n__version__ = "2"'):
        with pytest.raises(ValueError, match="versions, not one"):
            checks.written_version(wrong)


def test_lowest_versions_are_those_of_the_bounds(checks: ModuleType) -> None:
    pyproject = """
[project]
dependencies = ["numpy>=2.0"]
[project.optional-dependencies]
a = ["b[c]>=1.5,<2", "d>=3; python_version < '3'", "e", "f==4"]
"""
    assert checks.lowest(pyproject, []) == ["numpy==2.0"]
    assert checks.lowest(pyproject, ["a"]) == ["b==1.5", "f==4", "numpy==2.0"]
    with pytest.raises(KeyError):
        checks.lowest(pyproject, ["none"])


def test_everything_checked_at_its_lowest_has_a_bound(checks: ModuleType) -> None:
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    names = {line.partition("==")[0] for line in checks.lowest(pyproject, ["apps", "dask", "zarr"])}
    assert {"numpy", "dask", "distributed", "scikit-learn", "scipy", "zarr"} <= names


@pytest.mark.parametrize("script", ["check-versions", "release"])
def test_scripts_say_what_they_take(script: str) -> None:
    done = run_command([ROOT / "scripts" / script, "--nonsense"])
    assert done.returncode == 2
    assert f"scripts/{script}" in done.stderr
    assert "set -" not in done.stderr


@pytest.mark.parametrize("script", ["check-versions", "release", "distributions.sh"])
def test_shellcheck_takes_the_scripts(script: str) -> None:
    beside = Path(sys.executable).parent / "shellcheck"
    found = str(beside) if beside.exists() else shutil.which("shellcheck")
    assert found, 'there is no shellcheck; pip install "pyspliter[test]"'
    command = [found, "--external-sources", f"--source-path={ROOT}", f"scripts/{script}"]
    done = run_command(command, cwd=ROOT)
    assert done.returncode == 0, done.stdout


def test_tests_named_in_the_scripts_exist() -> None:
    for script in ("check-versions", "release"):
        text = (ROOT / "scripts" / script).read_text(encoding="utf-8")
        words = [word for word in text.split() if word.startswith("tests/")]
        assert words, script
        for word in words:
            listed = ["bash", "-c", f"set -e; ls -d {word} >&2"]
            done = run_command(listed, cwd=ROOT, env={"PATH": os.environ["PATH"]})
            assert done.returncode == 0, done.stderr
