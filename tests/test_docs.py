"""The examples of the pages of the documentation, run from top to bottom."""

from __future__ import annotations

import doctest
import importlib.util
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGES = sorted(
    page for page in (ROOT / "docs").rglob("*.md") if ">>> " in page.read_text(encoding="utf-8")
)

ENGINES = {
    "concepts": "local",
    "dataclay": "dataclay",
    "engines": "local",
    "errors": "local",
    "local": "local",
    "pairings": "dask",
    "partitions": "local",
    "ray": "ray",
    "xarray-zarr": "xarray",
}
"""The engine that the examples of a page run on, where that is not Dask."""

PACKAGES = {"boosting": "xgboost", "scikit-learn": "dask_ml", "xarray-zarr": "zarr"}
"""What else the examples of a page import, where the extra `apps` has not got it."""


def test_there_are_pages_with_examples() -> None:
    assert {
        "cascade-svm.md",
        "concepts.md",
        "dataclay.md",
        "errors.md",
        "from-dask.md",
        "k-means.md",
        "local.md",
        "memory.md",
        "models.md",
        "nearest-neighbours.md",
        "parquet.md",
        "partitions.md",
        "scikit-learn.md",
        "your-own-loop.md",
    } <= {page.name for page in PAGES}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.backend(ENGINES.get(page.stem, "dask")), id=page.stem)
        for page in PAGES
    ],
)
def test_examples_of_page(page: Path) -> None:
    needed = PACKAGES.get(page.stem)
    if needed is not None and importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    failed, tried = doctest.testfile(
        str(page),
        module_relative=False,
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE,
    )
    assert tried > 0
    assert failed == 0
