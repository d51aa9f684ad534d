"""The examples of the pages of the documentation, run from top to bottom."""

from __future__ import annotations

import doctest
import importlib.util
import re
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
    "files": "files",
    "imagemagick": "local",
    "graphs": "local",
    "layout": "local",
    "local": "local",
    "ray": "ray",
    "schedules": "local",
    "xarray-zarr": "xarray",
}
"""The engine that the examples of a page run on, where that is not Dask."""

THOROUGH = {
    "boosting",
    "cascade-svm",
    "imagemagick",
    "k-means",
    "nearest-neighbours",
    "notebooks-and-dashboards",
    "scikit-learn",
    "security",
}
"""Pages that only a change of an application needs, or a library that short runs do not install."""

PACKAGES = {
    "boosting": "xgboost",
    "graphs": "numba",
    "imagemagick": "wand.image",
    "scikit-learn": "dask_ml",
    "security": "cryptography",
    "xarray-zarr": "zarr",
}
"""What else the examples of a page import, where the extra `apps` has not got it."""


def marks(page: Path) -> list[pytest.MarkDecorator]:
    found = [pytest.mark.backend(ENGINES.get(page.stem, "dask"))]
    if page.stem in THOROUGH:
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


EXTRAS = {
    "dask": "dask",
    "distributed": "dask",
    "pandas": "dask",
    "pyarrow": "dask",
    "dataclay": "dataclay",
    "pycompss": "compss",
    "ray": "ray",
    "xarray": "xarray",
    "zarr": "zarr",
    "sklearn": "apps",
    "spliter_apps": "apps",
    "xgboost": "xgboost",
    "dask_ml": "dask-ml",
    "wand": "wand",
}
"""What installs a package that examples import."""

FIRST = re.compile(r"\A(.*?)^```(\w+)$", re.DOTALL | re.MULTILINE)
FENCE = re.compile(r"^```(?:python|pycon)\n(.*?)^```", re.DOTALL | re.MULTILINE)
IMPORT = re.compile(r"^(?:>>> |\.\.\. )? *(?:from|import) ([\w.]+(?:, *[\w.]+)*)", re.MULTILINE)


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: str(page.stem)
)
def test_every_page_opens_with_an_example_that_a_test_runs(page: Path) -> None:
    opened, first = FIRST.search(page.read_text(encoding="utf-8")).groups()  # type: ignore[union-attr]
    assert opened.count("\n## ") <= 1, "no section comes before it, except how to install"
    assert first in {"console", "pycon"} or "<!-- file:" in opened


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: str(page.stem)
)
def test_what_must_be_installed_stands_before_the_example_that_needs_it(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    missing = [
        f"{package}, before {name}"
        for example in FENCE.finditer(text)
        for names in IMPORT.findall(example[1])
        for name in names.split(",")
        if (package := EXTRAS.get(name.strip().partition(".")[0]))
        and not re.search(
            rf"[\[,`]{package}[],`]|pip install [^\n]*\b{package}\b", text[: example.start()]
        )
    ]
    assert not missing
