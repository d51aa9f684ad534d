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
    assert {"your-own-loop.md", "k-means.md", "cascade-svm.md", "nearest-neighbours.md"} <= {
        page.name for page in PAGES
    }


@pytest.mark.backend("dask")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_of_page(page: Path) -> None:
    failed, tried = doctest.testfile(
        str(page),
        module_relative=False,
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE,
    )
    assert tried > 0
    assert failed == 0
