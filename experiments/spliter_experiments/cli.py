"""The ``spliter`` command with all its subcommands; needs the extra ``experiments``.

Subcommands are imported when they are run, because some need packages (Matplotlib, pandas,
scikit-learn) that take seconds to import.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup
from typer.main import get_command

import spliter

COMMANDS = {
    "compare": (
        "spliter_experiments.compare.cli:compare",
        "Compare SplIter with other ways, on your data.",
    ),
    "profile": (
        "spliter_experiments.evaluation.profile_cli:profile",
        "Run a program, count its blocks, tasks and bytes, and say whether splitting would help.",
    ),
    "experiment": (
        "spliter_experiments.evaluation.cli:app",
        "Reproduce the paper's evaluation, one figure per command.",
    ),
    "slurm": (
        "spliter_slurm.cli:app",
        "Run the paper's experiments on a cluster with SLURM.",
    ),
}
"""Lazily imported commands: location and help line of each."""


class LazyCommands(TyperGroup):
    """A group that imports its commands when they are run, not when they are listed."""

    # Parameters are Any: Click's types, or those of Typer's own copy of Click in newer releases.
    _only_listed = False

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return [*(name for name in self.commands if name not in COMMANDS), *COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a command, or return a placeholder while the help is formatted."""
        if cmd_name in self.commands or cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        where, summary = COMMANDS[cmd_name]
        if self._only_listed:
            return _command(cmd_name, lambda: None, summary)
        module, _, attribute = where.partition(":")
        found = getattr(importlib.import_module(module), attribute)
        if isinstance(found, typer.Typer):
            command: Any = get_command(found)
            command.name = cmd_name
        else:
            command = _command(cmd_name, found, summary)
        self.commands[cmd_name] = command
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Format the help of this group without importing its commands."""
        self._only_listed = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._only_listed = False


def _command(name: str, function: Callable[..., None], summary: str) -> Any:
    alone = typer.Typer(add_completion=False)
    alone.command(name=name, short_help=summary)(function)
    return get_command(alone)


app = typer.Typer(
    name="spliter",
    cls=LazyCommands,
    help="Iterate over distributed data where it lies.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_show_locals=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        Console(markup=False).print(f"spliter {spliter.__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Take the options that stand before a command."""


@app.command()
def doctor(
    scheduler: Annotated[
        str | None,
        typer.Option(help="Also check this Dask cluster: ADDRESS or scheduler FILE."),
    ] = None,
    require: Annotated[
        str | None,
        typer.Option(help="Fail if one of these backends cannot be used, such as dask,local."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say which backends can be used here, and what the others lack."""
    from spliter_experiments.doctor import run

    raise typer.Exit(run(scheduler, require, as_json))
