"""MkDocs hook: add files outside of ``docs`` that pages link to.

In the repository ``[Changelog](../CHANGELOG.md)`` links to a file next to ``docs``. MkDocs reads
only ``docs``, so this adds such files to the site and rewrites the links. Pages that the navigation
names and that do not exist are removed from it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]

IN_THE_SITE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
"""Files with a page of their own. Others go to the folder `files` when a page links to them."""

_LINK = re.compile(r"\]\(([^)#\s]+)((?:#[^)\s]*)?)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files that pages link to, and remove missing pages from the navigation."""
    todo = ["CHANGELOG.md", "CONTRIBUTING.md"]
    for page in files.documentation_pages():
        if page.generated_by is None:
            todo += _linked(page.content_string, posixpath.dirname(f"docs/{page.src_uri}"))
    for source in dict.fromkeys(todo):
        if source != "README.md":
            files.append(_file(config, source))
    config.nav = [_present(entry, files) for entry in config.nav or []]
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page of `docs` to files outside of it."""
    if page.file.generated_by is not None:
        return markdown
    folder = posixpath.dirname(f"docs/{page.file.src_uri}")
    return _relinked(markdown, folder, posixpath.dirname(page.file.src_uri))


def _linked(text: str, folder: str) -> Iterator[str]:
    """Yield the files outside of `docs` that a text in a folder of the repository links to."""
    for target, _ in _LINK.findall(text):
        source = posixpath.normpath(posixpath.join(folder, target))
        if _is_file(target, source) and not source.startswith("docs/"):
            yield source


def _is_file(target: str, source: str) -> bool:
    return "://" not in target and not source.startswith("..") and (ROOT / source).is_file()


def _file(config: MkDocsConfig, source: str) -> File:
    """Return a file of the repository as a file of the site."""
    uri = IN_THE_SITE.get(source, f"files/{source}")
    path = ROOT / source
    if path.suffix != ".md":
        return File.generated(config, uri, abs_src_path=str(path))
    text = path.read_text(encoding="utf-8")
    relinked = _relinked(text, posixpath.dirname(source), posixpath.dirname(uri))
    if source not in IN_THE_SITE:
        relinked = f"---\nsearch:\n  exclude: true\n---\n{relinked}"
    return File.generated(config, uri, content=relinked)


def _relinked(text: str, folder: str, site_folder: str) -> str:
    """Rewrite the links of a text from its folder in the repository to its folder in the site."""

    def relink(found: re.Match[str]) -> str:
        target, anchor = found.groups()
        source = posixpath.normpath(posixpath.join(folder, target))
        if not _is_file(target, source):
            return found[0]
        uri = IN_THE_SITE.get(source, f"files/{source}")
        if source.startswith("docs/"):
            uri = source.removeprefix("docs/")
        return f"]({posixpath.relpath(uri, site_folder or '.')}{anchor})"

    return _LINK.sub(relink, text)


def _present(entry: Any, files: Files) -> Any:
    """Return an entry of the navigation without pages that do not exist."""
    if isinstance(entry, dict):
        ((title, below),) = entry.items()
        if isinstance(below, list):
            kept = [_present(item, files) for item in below]
            return {title: [item for item in kept if item is not None]}
        return entry if files.get_file_from_path(below) else None
    return entry if files.get_file_from_path(entry) else None
