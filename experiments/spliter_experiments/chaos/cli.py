"""``spliter chaos``: applications iterate while an adversary harms their cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from spliter_experiments.chaos.campaign import (
    command_of,
    error_table,
    outcome_table,
    read_records,
    run_seeds,
    write_records,
)
from spliter_experiments.chaos.cases import BACKENDS
from spliter_experiments.chaos.outcomes import Record
from spliter_experiments.evaluation._console import errors_reported, note, progress
from spliter_experiments.harness.errors import OptionError


def chaos(
    backend: Annotated[str, typer.Option(help="Engine: dask or dataclay.")] = "dask",
    runs: Annotated[int, typer.Option(help="How many runs.", min=1)] = 20,
    seed: Annotated[int, typer.Option(help="Seed of the first; each next run has the next.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="File for a line of JSON per run; runs that it has are not made again."
        ),
    ] = None,
) -> None:
    """Run the applications while workers die, freeze and move their data; count what comes of it.

    Starts a cluster of its own. Ends with 1 if a promise was not kept.
    """
    with errors_reported():
        if backend not in BACKENDS:
            raise OptionError(f"--backend takes one of {', '.join(BACKENDS)}, got {backend!r}")
        if seed < 0:
            raise OptionError(f"--seed takes a number from 0 on, got {seed}")
        records = _run(backend, range(seed, seed + runs), out)
        console = Console()
        console.print(outcome_table(records, backend))
        if any(record.error for record in records):
            console.print(error_table(records))
        if not all(record.is_good for record in records):
            raise typer.Exit(1)


def _run(backend: str, seeds: range, out: Path | None) -> list[Record]:
    """Make the runs that are not there yet; return all of them."""
    before = [] if out is None else read_records(out)
    if out is not None:
        write_records(out, before)  # without a line that was cut off
    there = {record.seed for record in before if record.case["backend"] == backend}
    missing = [seed for seed in seeds if seed not in there]
    records = [it for it in before if it.case["backend"] == backend and it.seed in seeds]
    with progress() as listener:
        listener.begin(len(missing))
        for record in run_seeds(backend, missing):
            records.append(record)
            if out is not None:
                with out.open("a", encoding="utf-8") as file:
                    file.write(f"{record.line()}\n")
            if not record.is_good:
                note(told_failure(record))
            listener.step(f"seed {record.seed}", 1)
    return records


def told_failure(record: Record) -> str:
    """Return what a run that has broken a promise shows, with the command that replays it.

    Parameters
    ----------
    record : Record
        Of the run.

    Returns
    -------
    str
        Several lines.
    """
    faults = "\n".join(f"  {one.at:6.3f} s {one.kind}: {one.what}" for one in record.struck)
    left = f"\nleft behind: {record.left}" if record.left else ""
    return (
        f"{record.outcome}: {record.case['app']} on {record.case['backend']}, after "
        f"{record.seconds} s and {record.rounds} right rounds{left}\n{faults}\n{record.error} "
        f"{record.message}\nreplay: {command_of(record)}"
    )
