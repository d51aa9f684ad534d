"""Commands of ``spliter compare``: measure SplIter and other ways.

The options of a command are the fields of its workload, and those that all share.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import shlex
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, get_type_hints

import typer
from rich.console import Console

from spliter_experiments.compare.registry import WORKLOADS, load_workload
from spliter_experiments.compare.ways import WAYS, legend
from spliter_experiments.harness.console import errors_reported, note, progress
from spliter_experiments.harness.errors import MissingLibraryError
from spliter_experiments.harness.lazy import LazyCommands
from spliter_experiments.harness.records import ResultsFolder
from spliter_experiments.harness.workload import Comparison, Options, Workload, run_cases


def command_of(name: str) -> Callable[..., None]:
    """Return the command of a workload, with a signature that typer reads."""
    workload = load_workload(name)
    hints: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for options in (workload, workload.shared):
        hints |= get_type_hints(options, include_extras=True)
        defaults |= {entry.name: entry.default for entry in fields(options)}  # type: ignore[arg-type]
    ways = f"Only these, between commas. {'; '.join(legend(WAYS[name]))}."
    hints["ways"] = Annotated[str | None, typer.Option(help=ways)]
    own = [entry.name for entry in fields(workload)]  # type: ignore[arg-type]
    common = [entry.name for entry in fields(workload.shared)]
    defaults |= workload.defaults

    def run(**given: Any) -> None:
        with errors_reported():
            options = workload.shared(**{one: given[one] for one in common})
            compare(workload(**{one: given[one] for one in own}), options)

    parameters = [
        inspect.Parameter(
            one, inspect.Parameter.KEYWORD_ONLY, default=defaults[one], annotation=hints[one]
        )
        for one in dict.fromkeys((*own, *common))
    ]
    run.__dict__["__signature__"] = inspect.Signature(parameters)
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    run.__doc__ = inspect.getdoc(workload)
    return run


class CompareCommands(LazyCommands):
    """The commands of all workloads."""

    table = WORKLOADS

    def load(self, name: str) -> Callable[..., None]:
        return command_of(name)


app = typer.Typer(
    cls=CompareCommands,
    no_args_is_help=True,
    add_completion=False,
    help="Compare SplIter with other ways, on your data.",
)


@app.callback()
def _options() -> None:
    """Have a group, although no command is added here."""


def compare(workload: Workload, options: Options) -> None:
    """Run a workload, or several of its programs, and show a table for each."""
    folder = None if options.output is None else ResultsFolder(options.output)
    if folder is not None:
        folder.make()
    status = workload.launch(options, sys.argv[1:])
    if status is not None:
        raise typer.Exit(status)
    several, shown = workload.each(), []
    for one in several:
        try:
            shown.append(_compare(one, options, folder))
        except MissingLibraryError as error:
            if len(several) == 1:
                raise
            note(f"{one.subject} is left out: {error}")
    console = Console(markup=False)
    for grid in workload.overview(shown):
        console.print(grid.terminal())
    ways = dict.fromkeys(way for found in shown for way in found.ways)
    console.print("\n".join(legend(ways)), highlight=False, style="dim")
    if folder is not None:
        note(f"written: {folder.write_table(folder.records())}")


def _compare(workload: Workload, options: Options, folder: ResultsFolder | None) -> Comparison:
    found = Comparison()
    command = shlex.join(["spliter", *sys.argv[1:]])
    with (
        progress() as listener,
        contextlib.closing(workload.cases(options, listener, command)) as cases,
    ):
        try:
            run_cases(cases, found, listener, folder)
        except KeyboardInterrupt:
            # Tasks are cancelled now; silence the warnings of code that waits for them.
            logging.disable()
            listener.note("interrupted; closing the cluster")
            if found.records:
                found.about = {**found.about, "interrupted": True}
                show(workload, found, folder)
            raise
    show(workload, found, folder)
    return found


def show(workload: Workload, found: Comparison, folder: ResultsFolder | None) -> None:
    """Print the table and, with ``--output``, write the plot."""
    title = workload.title(found)
    Console(markup=False).print(workload.grid(found).terminal(title))
    if folder is None or not workload.is_plotted:
        return
    from spliter_experiments.harness.plot import Style, write_plot

    caption = "\n".join(legend(found.ways))
    summaries = found.summaries()
    several = len({one.x for one in summaries}) > 1
    sweep = Style(title, "blocks per core", "lines", scale="log", caption=caption)
    style = sweep if several else Style(title, "blocks per core", caption=caption)
    files = write_plot(summaries, style, folder.path, found.stem)
    note(f"written: {', '.join(map(str, files))}")
