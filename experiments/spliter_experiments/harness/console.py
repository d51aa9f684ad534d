"""Print errors, notes and progress of commands, and handle Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from spliter_experiments.harness.errors import ExperimentError


@dataclass(frozen=True)
class Listener:
    """Callbacks that report the progress of a measurement.

    They receive the number of planned runs, each step with the number of runs that it finished, and
    remarks for the user.
    """

    begin: Callable[[int], None] = field(default=lambda _: None)
    step: Callable[[str, int], None] = field(default=lambda _, __: None)
    note: Callable[[str], None] = field(default=lambda _: None)


@contextmanager
def errors_reported() -> Iterator[None]:
    """End the command with message and exit code of an `ExperimentError`, without a traceback."""
    try:
        yield
    except ExperimentError as error:
        message = visible(f"Error: {error}")
        Console(stderr=True).print(message, style="red", highlight=False, markup=False)
        raise typer.Exit(error.exit_code) from error


def note(text: str) -> None:
    Console(stderr=True).print(
        visible(text), style="dim", highlight=False, markup=False, soft_wrap=True
    )


def visible(text: str) -> str:
    r"""Escape control characters, so that names in files cannot steer the terminal.

    >>> visible("\x1b[31mred\nblue")
    '\\x1b[31mred\nblue'
    """
    return "".join(
        character if character.isprintable() or character in "\n\t" else repr(character)[1:-1]
        for character in text
    )


@contextmanager
def progress() -> Iterator[Listener]:
    """Show a progress bar on a terminal, and nothing elsewhere; check for Ctrl-C at each step."""
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


@contextmanager
def remembered_interrupt() -> Iterator[Callable[[], None]]:
    """Record Ctrl-C; yields a function that raises ``KeyboardInterrupt`` if it was pressed.

    Call it between steps: ``KeyboardInterrupt`` is lost where exceptions are ignored, in finalizers
    and in callbacks of the garbage collector, of which Dask has one.
    """
    pressed = threading.Event()

    def check() -> None:
        if pressed.is_set():
            raise KeyboardInterrupt

    def remember(signum: int, frame: FrameType | None) -> None:
        pressed.set()
        raise KeyboardInterrupt

    # Python lets no other thread set handlers.
    if threading.current_thread() is not threading.main_thread():
        yield check
        return
    before = signal.signal(signal.SIGINT, remember)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)
