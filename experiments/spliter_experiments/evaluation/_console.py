"""What the commands of the evaluation say on a terminal: errors, progress, plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from spliter_experiments.compare.comparison import Listener
from spliter_experiments.evaluation.plan import PlannedRun, stands_of
from spliter_experiments.harness.errors import ExperimentError
from spliter_experiments.harness.interrupt import remembered_interrupt
from spliter_experiments.harness.table import size as bytes_said


@contextmanager
def errors_reported() -> Iterator[None]:
    """End the command with the message and exit code of an error of ours, without a traceback."""
    try:
        yield
    except ExperimentError as error:
        message = visible(f"Error: {error}")
        Console(stderr=True).print(message, style="red", highlight=False, markup=False)
        raise typer.Exit(error.exit_code) from error


def note(text: str) -> None:
    """Say something that is no result."""
    Console(stderr=True).print(
        visible(text), style="dim", highlight=False, markup=False, soft_wrap=True
    )


def visible(text: str) -> str:
    r"""Write out control characters: names in files are not to steer the terminal.

    Examples
    --------
    >>> visible("\x1b[31mred\nblue")
    '\\x1b[31mred\nblue'
    """
    return "".join(
        character if character.isprintable() or character in "\n\t" else repr(character)[1:-1]
        for character in text
    )


@contextmanager
def progress() -> Iterator[Listener]:
    """Show a progress bar on a terminal, and nothing elsewhere; Ctrl-C counts between two runs."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with (
        remembered_interrupt() as check_interrupt,
        Progress(
            *columns,
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        ) as shown,
    ):
        bar = shown.add_task("", total=None)

        def step(what: str, runs: int) -> None:
            check_interrupt()
            shown.update(bar, description=what, advance=runs)

        yield Listener(begin=lambda runs: shown.update(bar, total=runs), step=step, note=note)


def plan_table(runs: Sequence[PlannedRun], title: str) -> Table:
    """Return a table with a line per stand: what it needs, and for how long."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False)
    for heading in "nodes", "workers", "blocks", "rows", "runs", "memory/node", "time":
        table.add_column(heading, justify="right", no_wrap=True)
    for stand in stands_of(runs).values():
        first = stand[0]
        table.add_row(
            str(first.nodes),
            f"{first.workers} x {first.threads}",
            f"{first.blocks:,}",
            f"{first.rows:,}",
            str(len(stand)),
            bytes_said(max(run.memory_bytes for run in stand)),
            duration(sum(run.estimated_seconds for run in stand)),
        )
    table.caption = total(runs)
    table.caption_justify = "left"
    return table


def total(runs: Sequence[PlannedRun]) -> str:
    """Say what a plan comes to, as a line."""
    seconds = sum(run.estimated_seconds for run in runs)
    hours = sum(run.estimated_seconds * run.cores for run in runs) / 3600
    return f"{len(runs)} runs, about {duration(seconds)}, {hours:,.3g} core hours"


def runs_table(runs: Sequence[PlannedRun], done: set[str]) -> Table:
    """Return a table with a line per run."""
    table = Table(box=SIMPLE_HEAD, show_edge=False)
    table.add_column("run", no_wrap=True)
    table.add_column("estimate", justify="right")
    table.add_column("done")
    for run in runs:
        table.add_row(run.id, duration(run.estimated_seconds), "yes" if run.id in done else "")
    return table


def duration(seconds: float) -> str:
    """Write a time that is not known exactly.

    Examples
    --------
    >>> duration(42), duration(4200)
    ('42 s', '70 min')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
