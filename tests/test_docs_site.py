"""The documentation site builds without a warning, fetches nothing, and leaves no name out.

The build runs the notebooks and follows every link between pages, anchors too. Where MkDocs is not
installed (the extra `docs`) the tests of the site are skipped.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

import spliter
import spliter.backend
import spliter.layout
import spliter.pipeline
import spliter.testing
import spliter_apps
from tests.conftest import ROOT, SOURCE_ROOTS

pytestmark = pytest.mark.thorough

DOCS = ROOT / "docs"
TOOLS = {
    "ipykernel": "ipykernel",
    "material": "mkdocs-material",
    "mkdocs": "mkdocs",
    "mkdocstrings_handlers": "mkdocstrings[python]",
    "nbconvert": "nbconvert",
}
LOADED = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^>]*>"
    r"|<link\b(?![^>]*\brel=[\"']?canonical)[^>]*\bhref=[\"']?(?:https?:)?//[^>]*>"
)
"""Tags by which a browser fetches something from another host while it shows a page."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site once for all tests."""
    missing = [name for module, name in TOOLS.items() if importlib.util.find_spec(module) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}; pip install '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = ["-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS))},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.backend("dask")
def test_every_page_is_built(site: Path) -> None:
    pages = [page.relative_to(DOCS) for page in DOCS.rglob("*.md")]
    pages += [page.relative_to(DOCS) for page in DOCS.rglob("*.ipynb")]
    pages += [Path("changelog.md"), Path("contributing.md"), Path("api/command.md")]
    assert [page for page in pages if not (site / page.with_suffix(".html")).is_file()] == []


@pytest.mark.backend("dask")
def test_notebooks_are_shown_with_what_they_returned(site: Path) -> None:
    started = (site / "notebooks" / "getting-started-on-dask.html").read_text(encoding="utf-8")
    assert "Split</b>" in started, "a Split draws itself"
    seen = (site / "notebooks" / "fragmentation-seen.html").read_text(encoding="utf-8")
    (plot,) = re.findall(r'src="(fragmentation-seen-files/[^"]+\.png)"', seen)
    assert (site / "notebooks" / plot).stat().st_size > 5_000


@pytest.mark.backend("dask")
def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    assert LOADED.search('<script src="https://cdn.example/x.js"></script>'), "positive control"
    assert LOADED.search('<link rel="stylesheet" href=https://fonts.example/css>')
    assert not LOADED.search('<a href="https://example.org">')
    found = {
        f"{page.relative_to(site)}: {tag}"
        for page in site.rglob("*.html")
        for tag in LOADED.findall(page.read_text(encoding="utf-8"))
    }
    assert found == set()
    styles = "".join(page.read_text(encoding="utf-8") for page in site.rglob("*.css"))
    assert re.findall(r"(?:@import|url\()[ \"']*(?:https?:)?//[^)]*", styles) == []


@pytest.mark.backend("dask")
def test_every_public_name_is_in_the_api(site: Path) -> None:
    written = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    names = {line.split(" ")[0] for line in zlib.decompress(written).decode().splitlines()}
    public = {f"spliter.{name}" for name in spliter.__all__}
    public |= {f"spliter.backend.{name}" for name in spliter.backend.__all__}
    public |= {f"spliter.layout.{name}" for name in spliter.layout.__all__}
    public |= {f"spliter.pipeline.{name}" for name in spliter.pipeline.__all__}
    public |= {f"spliter.testing.{name}" for name in spliter.testing.__all__}
    public |= {f"spliter_apps.{name}" for name in spliter_apps.__all__}
    assert sorted(public - names) == [], "name them in docs/api/*.md"


def error_classes() -> dict[str, str]:
    """Return all classes of errors that derive from `SplIterError`, and where each is.

    Read from the source, so that engines that are not installed count as well.
    """
    bases: dict[str, set[str]] = {}
    where: dict[str, str] = {}
    for root in SOURCE_ROOTS:
        for package in root.glob("spliter*"):
            for path in package.rglob("*.py"):
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                    if isinstance(node, ast.ClassDef):
                        bases[node.name] = {ast.unparse(base).split(".")[-1] for base in node.bases}
                        where[node.name] = str(path.relative_to(ROOT))
    tree = {"SplIterError"}
    while further := {name for name, its in bases.items() if its & tree} - tree:
        tree |= further
    return {name: where[name] for name in sorted(tree)}


def test_every_error_has_an_entry() -> None:
    found = error_classes()
    assert len(found) > 30 and "ServiceError" in found, "the search sees all packages"
    page = (DOCS / "errors.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", page, re.DOTALL | re.MULTILINE))
    for name, text in sections.items():
        assert "*Why.*" in text and "*What to do.*" in text, name
    rows = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    missing = {name: path for name, path in found.items() if name not in {*sections, *rows}}
    assert missing == {}, "say in docs/errors.md what they mean and what to do"
    assert {*sections, *rows} - {*found} == set(), "there are no such errors any more"


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.ipynb")), ids=lambda page: page.stem)
def test_notebooks_are_kept_without_outputs(page: Path) -> None:
    cells = json.loads(page.read_text(encoding="utf-8"))["cells"]
    assert any(cell["cell_type"] == "code" for cell in cells)
    for cell in cells:
        assert not cell.get("outputs") and not cell.get("execution_count"), cell["id"]
