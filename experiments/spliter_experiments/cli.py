"""The ``spliter`` command with all its subcommands; needs the extra ``experiments``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

import spliter
from spliter_experiments.harness.lazy import LazyCommands

COMMANDS = {
    "compare": (
        "spliter_experiments.compare.cli:app",
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
    "slurm": ("spliter_slurm.cli:app", "Run the paper's experiments on a cluster with SLURM."),
}
"""Lazily imported commands: location and help line of each."""


class SpliterCommands(LazyCommands):
    """The commands of ``spliter``."""

    table = COMMANDS


app = typer.Typer(
    name="spliter",
    cls=SpliterCommands,
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
        str | None, typer.Option(help="Also check this Dask cluster: ADDRESS or scheduler FILE.")
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
