"""MkDocs hook: run the notebooks of ``docs/notebooks`` and add them as pages with their outputs.

The repository has them without outputs. A cell that raises ends the build with its traceback.
"""

from __future__ import annotations

import posixpath
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from nbclient.exceptions import CellExecutionError
from nbconvert import MarkdownExporter
from nbconvert.preprocessors import ExecutePreprocessor
from traitlets.config import Config

SECONDS_PER_CELL = 120
"""After this time the build fails, so that a cell that hangs does not block it."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook, and the images it made."""
    for path in sorted(Path(config.docs_dir).glob("notebooks/*.ipynb")):
        uri = path.relative_to(config.docs_dir).with_suffix(".md").as_posix()
        text, images = _run(path)
        files.append(File.generated(config, uri, content=text))
        for name, data in images.items():
            files.append(File.generated(config, posixpath.join("notebooks", name), content=data))
    return files


def _run(path: Path) -> tuple[str, dict[str, bytes]]:
    """Run a notebook in an interpreter of its own; return it as Markdown, with its images."""
    notebook = nbformat.read(path, as_version=4)
    with TemporaryDirectory() as folder:
        # Sockets in the file system: the kernel opens no port of the machine.
        manager = {"transport": "ipc", "ip": str(Path(folder) / "kernel")}
        preprocessor = ExecutePreprocessor(
            timeout=SECONDS_PER_CELL,
            startup_timeout=SECONDS_PER_CELL,
            kernel_name="python3",
            config=Config({"KernelManager": manager}),
        )
        try:
            preprocessor.preprocess(notebook, {"metadata": {"path": str(path.parent)}})
        except CellExecutionError as error:
            raise PluginError(f"{path.name}: {error}") from error
    text, resources = MarkdownExporter().from_notebook_node(
        notebook, {"unique_key": path.stem, "output_files_dir": f"{path.stem}-files"}
    )
    return text, dict(resources["outputs"])
