"""``spliter profile``: run the user's program and predict whether SplIter would speed it up."""

from __future__ import annotations

import runpy
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import dask
import typer
from dask.callbacks import Callback
from dask.utils import key_split
from rich.console import Console
from rich.table import Table

from spliter_experiments.evaluation import _profile_preload
from spliter_experiments.evaluation.profile import Pass, Profile, TaskRecord
from spliter_experiments.harness.console import errors_reported
from spliter_experiments.harness.errors import InputError
from spliter_experiments.harness.table import Grid, seconds, size


class LocalWatcher(Callback):
    """Records the tasks of Dask's local schedulers in a profile while the context is open.

    Its cores are the peak number of concurrent tasks.

    >>> import dask.array as da
    >>> from spliter_experiments.evaluation.profile import Profile
    >>> found = Profile()
    >>> x = da.ones(80, chunks=2)
    >>> with LocalWatcher(found):
    ...     float(x.sum().compute(scheduler="synchronous"))
    80.0
    >>> found.cores, found.nbytes
    (1, 0)
    """

    def __init__(self, profile: Profile) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._profile = profile
        self._started: dict[Any, float] = {}
        self._finished: set[Any] = set()

    def _pretask(self, key: Any, dsk: Any, state: Mapping[str, Any]) -> None:
        self._started[key] = time.time()
        self._profile.cores = max(self._profile.cores, len(state["running"]))

    def _posttask(
        self, key: Any, result: Any, dsk: Any, state: Mapping[str, Any], worker: Any
    ) -> None:
        start = self._started.pop(key, None)
        if start is None:
            return
        # The block read by the fewest other tasks comes first: it is the task's own.
        dependents = state["dependents"]
        read = sorted(state["dependencies"][key], key=lambda block: len(dependents[block]))
        # A reduction combines results of tasks; blocks were there before the first task.
        combined = sum(len(dependents[block]) == 1 and block in self._finished for block in read)
        self._finished.add(key)
        self._profile.tasks.append(
            TaskRecord(key_split(key), start, time.time(), tuple(read), 0, combined)
        )


SHOWN = 20
"""Number of passes in the table, longest first."""


def profile(
    script: Annotated[Path, typer.Argument(help="Python program that uses Dask.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="What the program is given, after --.")
    ] = None,
) -> None:
    """Run a program, count its blocks, tasks and bytes, and say whether splitting would help."""
    with errors_reported():
        found, status = run_profiled(script, arguments or ())
        console = Console(markup=False)
        console.print(profile_table(found))
        console.print(found.verdict(), highlight=False, markup=False)
        if status:
            raise SystemExit(status)


def run_profiled(script: Path, arguments: Sequence[str]) -> tuple[Profile, Any]:
    """Run a program like ``python SCRIPT ARGUMENTS``.

    Returns the profile of its Dask tasks, and what it has passed to ``sys.exit``.
    """
    if not script.is_file():
        raise InputError(f"there is no program {script}")
    found = _profile_preload.PROFILE
    with dask.config.set({"distributed.client.preload": [_profile_preload.__name__]}):
        try:
            status = _run_as_main(script, arguments, found)
        finally:  # while its clusters are there
            for client in list(_profile_preload.CONNECTED):
                client.close()
    if not found.cores:
        if status:
            raise SystemExit(status)
        raise InputError(
            f"{script} has run no task of Dask's, neither on threads of its own nor on a cluster; "
            "a cluster that it starts has to be closed after the client"
        )
    return found, status


def _run_as_main(script: Path, arguments: Sequence[str], found: Profile) -> Any:
    """Run a program with its arguments and import path; return what it passes to ``sys.exit``."""
    argv, path = sys.argv, sys.path[:]
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent.resolve()))
    try:
        with LocalWatcher(found):
            runpy.run_path(str(script), run_name="__main__")
    except SystemExit as leaving:
        return leaving.code
    finally:
        sys.argv, sys.path[:] = argv, path
    return None


def profile_table(found: Profile) -> Table:
    passes = sorted(found.passes(), key=lambda one: -one.span)
    title = (
        f"{len(found.tasks)} tasks on {found.cores} cores, {found.blocks} blocks read, "
        f"{size(found.nbytes)} moved"
    )
    headings = ("pass", "tasks", "ms per\ntask", "moved", "seconds taken", "work alone")
    rows = tuple((one.name, *_cells(one)) for one in passes[:SHOWN])
    more = f"and {len(passes) - SHOWN} shorter ones" if len(passes) > SHOWN else ""
    table = Grid((*headings, "if split", "gain"), rows, more).terminal(title)
    # Names may be long: narrow enough for 80 columns, and readable on 60.
    table.columns[0].overflow, table.columns[0].min_width = "fold", 10
    return table


def _cells(one: Pass) -> tuple[str, ...]:
    split = (seconds(one.split), f"{one.gain:.2f}") if one.can_be_split else ("-", "-")
    return (
        *(str(one.tasks), f"{1e3 * one.busy / one.tasks:.3g}", size(one.nbytes)),
        *(seconds(one.span), seconds(one.work)),
        *split,
    )
