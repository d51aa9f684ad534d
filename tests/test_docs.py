"""The examples of the pages of the documentation, run from top to bottom."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGES = sorted(
    page for page in (ROOT / "docs").rglob("*.md") if ">>> " in page.read_text(encoding="utf-8")
)


def test_there_are_pages_with_examples() -> None:
    assert {
        "your-own-loop.md",
        "k-means.md",
        "cascade-svm.md",
        "nearest-neighbours.md",
        "dataclay.md",
    } <= {page.name for page in PAGES}


def _needs(page: Path) -> str:
    """Return the engine that the examples of a page run on."""
    return "dataclay" if page.stem == "dataclay" else "dask"


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.backend(_needs(page)), id=page.stem) for page in PAGES],
)
def test_examples_of_page(page: Path) -> None:
    failed, tried = doctest.testfile(
        str(page),
        module_relative=False,
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE,
    )
    assert tried > 0
    assert failed == 0
