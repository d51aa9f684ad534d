"""What COMPSs needs is looked for, and advice given that fits what is missing."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from spliter_backends._shared.compss_requirements import JVM_OPTION, Requirement, requirements
from spliter_experiments.compare.engines.compss_launch import write_nodes
from tests.conftest import ROOT


def found() -> dict[str, Requirement]:
    return {need.what: need for need in requirements()}


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return an empty folder, the only one on PATH; nothing of COMPSs or Java is known."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    for variable in ("COMPSS_HOME", "JAVA_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "nowhere"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    return folder


def put(program: Path, *lines: str) -> None:
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    program.chmod(0o755)


def test_nothing_is_there(path: Path) -> None:
    needs = found()
    packages = {"package pycompss", "package dislib"}
    assert {what for what, need in needs.items() if not need.found} >= set(needs) - packages
    assert all(need.advice for need in needs.values())
    assert "without a password" in needs["ssh"].advice


def test_programs(path: Path) -> None:
    put(path / "runcompss")
    put(path / "ssh")
    needs = found()
    assert needs["runcompss"].found == str(path / "runcompss")
    assert needs["ssh"].found == str(path / "ssh")


def test_installed_but_not_on_the_paths(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COMPSS_HOME", str(tmp_path))
    needs = found()
    assert needs["COMPSS_HOME"].found == str(tmp_path)
    assert f"{tmp_path}/Runtime/scripts/user" in needs["runcompss"].advice
    assert f"{tmp_path}/Bindings/python/3" in needs["package pycompss"].advice


@pytest.mark.parametrize(
    ("version", "wants_option"),
    [("1.8.0_392", False), ("11.0.21", False), ("17.0.9", True), ("21", True)],
)
def test_version_of_java(path: Path, version: str, wants_option: bool) -> None:
    put(path / "java", f"""echo 'openjdk version "{version}" 2023-10-17' >&2""")
    java = found()["java"]
    assert java.found.startswith(f"{version} at {path / 'java'}")
    assert (JVM_OPTION in java.found) == wants_option


def test_java_of_its_own_variable_comes_first(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put(path / "java", """echo 'openjdk version "11.0.21"' >&2""")
    put(tmp_path / "jdk" / "bin" / "java", """echo 'openjdk version "17.0.9"' >&2""")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert found()["java"].found.startswith("17.0.9")


def test_java_that_does_not_work(path: Path) -> None:
    put(path / "java", "exit 1")
    assert found()["java"].found == ""


def shape(root: ET.Element) -> list[tuple[str, dict[str, str]]]:
    return [(element.tag, element.attrib) for element in root.iter()]


def test_page_shows_the_option_and_files_that_the_command_writes(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "compss.md").read_text(encoding="utf-8")
    assert JVM_OPTION in page.replace('"', "")
    shown = [ET.fromstring(text) for text in re.findall(r"```xml\n(.*?)```", page, re.DOTALL)]
    written = write_nodes(tmp_path, Path("/opt/COMPSs"), [20_000, 20_010], 1)
    assert list(map(shape, shown)) == [shape(ET.parse(file).getroot()) for file in written]


def test_program_of_the_page_runs_without_a_runtime(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "compss.md").read_text(encoding="utf-8")
    ((name, program),) = re.findall(r"<!-- file: (\S+) -->\n```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / name).write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(tmp_path / name)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "3200000\n", done.stderr
