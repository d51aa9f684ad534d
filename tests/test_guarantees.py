"""Every promise of the documentation names tests that hold it, and these tests are there."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGE = ROOT / "docs" / "guarantees.md"
TEST = re.compile(r"`(?P<file>[\w/]+\.py)::(?P<name>[\w.]+)`")
LINE = re.compile(
    rf"^- \*\*(?P<number>[A-Z]\d+)\*\* \S.+?(?P<tests>( {TEST.pattern})+)$", re.MULTILINE
)

ALWAYS = ("A1", "A2", "A3", "A4", "A5")
"""What must hold on every engine, whatever else changes."""


def promises() -> dict[str, str]:
    """Return the promises: number, and the names of the tests."""
    text = PAGE.read_text(encoding="utf-8")
    return {line["number"]: line["tests"] for line in LINE.finditer(text)}


@functools.cache
def names_in(file: Path) -> frozenset[str]:
    """Return the names of a file's tests, ``Class.test`` for methods."""
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            methods = (it.name for it in node.body if isinstance(it, ast.FunctionDef))
            found |= {f"{node.name}.{name}" for name in methods if name.startswith("test_")}
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            found.add(node.name)
    return frozenset(found)


def named(cell: str) -> list[tuple[Path, str]]:
    """Return the tests that a cell names."""
    return [(ROOT / found["file"], found["name"]) for found in TEST.finditer(cell)]


def test_what_must_always_hold_is_there() -> None:
    assert set(ALWAYS) <= set(promises())
    assert len(promises()) >= 55


def test_no_promise_is_written_in_another_way() -> None:
    text = PAGE.read_text(encoding="utf-8")
    lines = re.findall(r"^(?:- .*|\|? ?\W*[A-Z]\d+\b.*)$", text, re.MULTILINE)
    assert len(lines) == len(promises())


@pytest.mark.parametrize("number", list(promises()))
def test_the_tests_that_hold_it_exist(number: str) -> None:
    tests = named(promises()[number])
    assert tests, f"{number} names no test"
    missing = [
        f"{file.relative_to(ROOT)}::{name}"
        for file, name in tests
        if not file.is_file() or name not in names_in(file)
    ]
    assert missing == [], f"{number} is held by tests that are not there"
