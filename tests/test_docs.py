"""The examples of the pages of the documentation, run from top to bottom."""

from __future__ import annotations

import doctest
import importlib.util
from collections.abc import Iterator
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
    "imagemagick": "local",
    "layout": "local",
    "local": "local",
    "pairings": "dask",
    "partitions": "local",
    "ray": "ray",
    "xarray-zarr": "xarray",
}
"""The engine that the examples of a page run on, where that is not Dask."""

APPLICATIONS = {
    "boosting",
    "cascade-svm",
    "k-means",
    "models",
    "nearest-neighbours",
    "scikit-learn",
}
"""Pages that only a change of an application needs."""

PACKAGES = {
    "boosting": "xgboost",
    "imagemagick": "wand.image",
    "scikit-learn": "dask_ml",
    "xarray-zarr": "zarr",
}
"""What else the examples of a page import, where the extra `apps` has not got it."""


def marks(page: Path) -> list[pytest.MarkDecorator]:
    found = [pytest.mark.backend(ENGINES.get(page.stem, "dask"))]
    if page.stem in APPLICATIONS:
        found.append(pytest.mark.thorough)
    if page.stem == "notebooks-and-dashboards":
        found.append(pytest.mark.feature("dashboard"))
    return found


@pytest.fixture(autouse=True)
def _workers_start_soon() -> Iterator[None]:
    if importlib.util.find_spec("distributed") is None:
        yield
        return
    import dask

    from tests.dask_backend.conftest import FORKED

    with dask.config.set(FORKED):
        yield


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=marks(page), id=page.stem) for page in PAGES],
)
def test_examples_of_page(page: Path) -> None:
    if page.stem in PACKAGES:
        # wand.image is there without the library that it loads, but cannot be imported.
        pytest.importorskip(PACKAGES[page.stem], exc_type=ImportError)
    failed, tried = doctest.testfile(
        str(page),
        module_relative=False,
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE,
    )
    assert tried > 0
    assert failed == 0
