"""MkDocs hook: generate a page from the help texts of the `spliter` command."""

from __future__ import annotations

import re

import click
import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from typer.cli import get_docs_for_click
from typer.main import get_command

from spliter_experiments.cli import app


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page."""
    command = get_command(app)
    context = typer.Context(click.Group("spliter"), info_name="spliter")
    text = get_docs_for_click(obj=command, ctx=context, name="spliter", title="The spliter command")
    files.append(File.generated(config, "api/command.md", content=_readable(text)))
    return files


def _readable(text: str) -> str:
    """Drop the markup that Rich would turn into colours."""
    return re.sub(r"\[/?(?:dim|bold|red|green|cyan)\]", "", text)
