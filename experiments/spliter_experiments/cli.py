"""The ``spliter`` command."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import spliter
from spliter_experiments._blocks import Placement
from spliter_experiments._cluster import ClusterChoice, check_workers, connected, worker_versions
from spliter_experiments._doctor import (
    backend_table,
    check_required,
    machine_table,
    worker_table,
)
from spliter_experiments._errors import ExperimentError
from spliter_experiments._facts import facts
from spliter_experiments._histogram import HistogramSettings, Listener, compare_histogram
from spliter_experiments._inputs import Points
from spliter_experiments._interrupt import remembered_interrupt
from spliter_experiments._options import parse_sweep, parse_ways, words
from spliter_experiments._plot import write_plot
from spliter_experiments._readers import open_points
from spliter_experiments._results import Comparison, make_folder, write_results
from spliter_experiments._table import comparison_table
from spliter_experiments._ways import WAYS

app = typer.Typer(
    name="spliter",
    help="Iterate over distributed data where it lies.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
compare = typer.Typer(no_args_is_help=True, help="Compare SplIter with other ways, on your data.")
app.add_typer(compare, name="compare")


def main() -> None:
    """Run the command."""
    app()


def _show_version(asked: bool) -> None:
    if asked:
        Console().print(f"spliter {spliter.__version__}", highlight=False)
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
        typer.Option(help="Also check this cluster: ADDRESS or scheduler FILE."),
    ] = None,
    require: Annotated[
        str | None,
        typer.Option(help="Fail if one of these backends cannot be used, such as dask,local."),
    ] = None,
) -> None:
    """Tell which backends can be used here, and why the others cannot."""
    with _errors_reported():
        console = Console()
        infos = spliter.backends()
        console.print(backend_table(infos))
        console.print(machine_table(facts()))
        check_required(words(require or ""), infos)
        if scheduler is not None:
            with connected(ClusterChoice(scheduler, workers=1, threads=1)) as client:
                console.print(worker_table(scheduler, worker_versions(client)))
                check_workers(client)


@compare.command()
def histogram(
    source: Annotated[
        str | None,
        typer.Option(
            "--input",
            help=".npy, .zarr, .parquet or .csv, or sklearn:NAME for data that ships with "
            "scikit-learn. Without it, points are generated.",
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            help="Columns of the input by name or number, between commas. "
            "Without it, the first five numeric ones."
        ),
    ] = None,
    tile: Annotated[
        int | None, typer.Option(help="Repeat the rows of the input up to this number.")
    ] = None,
    rows: Annotated[int, typer.Option(help="Points to generate.")] = 20_000_000,
    dims: Annotated[int, typer.Option(help="Columns to generate.")] = 5,
    seed: Annotated[int, typer.Option(help="Of the points and of the order of the ways.")] = 0,
    bins: Annotated[int, typer.Option(help="Bins in each column.")] = 10,
    scheduler: Annotated[
        str | None,
        typer.Option(
            help="Use this cluster: ADDRESS or scheduler FILE. Without it, one is started here."
        ),
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes of the cluster started here.")] = 2,
    threads: Annotated[int, typer.Option(help="Threads in each of them.")] = 1,
    blocks_per_core: Annotated[int, typer.Option(help="Blocks that each core gets.")] = 48,
    sweep: Annotated[
        str | None,
        typer.Option(help="Several numbers of blocks per core, such as 1,4,16,48,192."),
    ] = None,
    placement: Annotated[
        Placement,
        typer.Option(
            help="Blocks in turn over the workers, or where Dask happens to make them.",
        ),
    ] = Placement.EVEN,
    ways: Annotated[str | None, typer.Option(help=f"Only these of {', '.join(WAYS)}.")] = None,
    rounds: Annotated[int, typer.Option(help="Interleaved rounds, after a warm-up.")] = 5,
    output: Annotated[
        Path | None,
        typer.Option(help="Folder for results.parquet, summary.json and a plot."),
    ] = None,
) -> None:
    """Compute the same histogram every way, in interleaved rounds, and show what each took."""
    with _errors_reported():
        settings = HistogramSettings(
            cluster=ClusterChoice(scheduler, workers, threads),
            ways=None if ways is None else parse_ways(ways, WAYS),
            blocks_per_core=(blocks_per_core,) if sweep is None else parse_sweep(sweep),
            bins=bins,
            rounds=rounds,
            seed=seed,
            placement=placement,
            command=shlex.join(["spliter", *sys.argv[1:]]),
        )
        if output is not None:
            make_folder(output)
        with open_points(
            source, columns=columns, tile=tile, rows=rows, dims=dims, seed=seed
        ) as points:
            _say_columns(points)
            with _progress() as listener:
                comparison = compare_histogram(settings, points, listener)
        _show(comparison, output)


def _say_columns(points: Points) -> None:
    chosen = points.columns
    if len(chosen) < chosen.numeric:
        _note(
            f"columns: {', '.join(chosen.names)} ({len(chosen)} of {chosen.numeric} numeric ones; "
            "choose with --columns)"
        )


def _show(comparison: Comparison, output: Path | None) -> None:
    """Print the table and, if asked, write the files."""
    title = _title(comparison)
    Console().print(comparison_table(comparison, title))
    if output is not None:
        files = write_results(comparison, output) + write_plot(comparison, output, title)
        _note(f"written: {', '.join(map(str, files))}")


def _title(comparison: Comparison) -> str:
    about = comparison.settings
    columns = about["columns"]
    assert isinstance(columns, list)
    blocks = ", ".join(f"{stand.blocks_per_core}" for stand in comparison.stands)
    return (
        f"{comparison.app} of {about['input']}: {about['rows']:,} x {len(columns)}, "
        f"{about['bins']} bins per column\n"
        f"{about['workers']} workers, {about['cores']} cores, {blocks} blocks per core, "
        f"{about['rounds']} rounds"
    )


@contextmanager
def _progress() -> Iterator[Listener]:
    """Show a progress bar on a terminal, and nothing elsewhere."""
    console = Console(stderr=True)
    with (
        remembered_interrupt() as check_interrupt,
        Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        ) as progress,
    ):
        task = progress.add_task("", total=None)

        def step(what: str, runs: int) -> None:
            check_interrupt()
            progress.update(task, description=what, advance=runs)

        yield Listener(begin=lambda runs: progress.update(task, total=runs), step=step, note=_note)


def _note(text: str) -> None:
    Console(stderr=True).print(text, style="dim", highlight=False, markup=False)


@contextmanager
def _errors_reported() -> Iterator[None]:
    """End the command with the message and exit code of an error of ours, without a traceback."""
    try:
        yield
    except ExperimentError as error:
        message = f"Error: {error}"
        Console(stderr=True).print(message, style="red", highlight=False, markup=False)
        raise typer.Exit(error.exit_code) from error
