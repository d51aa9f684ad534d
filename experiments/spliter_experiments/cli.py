"""The ``spliter`` command."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import spliter
from spliter_experiments._command_options import (
    CommonOptions,
    DimsOption,
    RowsOption,
    ways_option,
    with_common_options,
)
from spliter_experiments._comparison import App, run_comparison
from spliter_experiments._csvm import CascadeSvm
from spliter_experiments._dask_cluster import check_workers, connected, worker_versions
from spliter_experiments._datasets import InputChoice
from spliter_experiments._doctor import (
    backend_table,
    check_required,
    machine_table,
    requirement_table,
    worker_table,
)
from spliter_experiments._engine import ClusterChoice
from spliter_experiments._facts import facts
from spliter_experiments._histogram import Histogram
from spliter_experiments._inputs import Points
from spliter_experiments._kmeans import KMeans
from spliter_experiments._knn import Neighbors
from spliter_experiments._options import words
from spliter_experiments._plot import write_plot
from spliter_experiments._requirements import requirements
from spliter_experiments._results import Comparison, make_folder, write_results
from spliter_experiments._sum import Sum
from spliter_experiments._table import comparison_table
from spliter_experiments.chaos.cli import chaos
from spliter_experiments.evaluation._console import errors_reported, note, progress
from spliter_experiments.evaluation.cli import app as experiment
from spliter_experiments.evaluation.profile_cli import profile
from spliter_experiments.slurm.cli import slurm

app = typer.Typer(
    name="spliter",
    help="Iterate over distributed data where it lies.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
compare = typer.Typer(no_args_is_help=True, help="Compare SplIter with other ways, on your data.")
app.add_typer(compare, name="compare")
app.add_typer(experiment, name="experiment")
app.command()(profile)
app.command()(chaos)
app.add_typer(slurm, name="slurm")


def main() -> None:
    """Run the command."""
    app()


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
        typer.Option(help="Also check this cluster: ADDRESS or scheduler FILE."),
    ] = None,
    require: Annotated[
        str | None,
        typer.Option(help="Fail if one of these backends cannot be used, such as dask,local."),
    ] = None,
) -> None:
    """Tell which backends can be used here, and why the others cannot."""
    with errors_reported():
        console = Console(markup=False)
        infos = spliter.backends()
        console.print(backend_table(infos))
        console.print(requirement_table(requirements()))
        console.print(machine_table(facts()))
        check_required(words(require or ""), infos)
        if scheduler is not None:
            with connected(ClusterChoice(scheduler, workers=1, threads=1)) as client:
                console.print(worker_table(scheduler, worker_versions(client)))
                check_workers(client)


@compare.command(name="sum")
@with_common_options
def add_up(
    common: CommonOptions,
    rows: RowsOption = 20_000_000,
    dims: DimsOption = 5,
    passes: Annotated[int, typer.Option(help="Passes over the data, split once for all.")] = 1,
    ways: Annotated[str | None, ways_option(Sum.ways)] = None,
) -> None:
    """Add up all values every way: next to no work, so that it shows what tasks cost."""
    with errors_reported():
        _compare(Sum(passes), common, common.choices(rows, dims), ways)


@compare.command()
@with_common_options
def histogram(
    common: CommonOptions,
    rows: RowsOption = 20_000_000,
    dims: DimsOption = 5,
    bins: Annotated[int, typer.Option(help="Bins in each column.")] = 10,
    ways: Annotated[str | None, ways_option(Histogram.ways)] = None,
) -> None:
    """Compute the same histogram every way, in interleaved rounds, and show what each took."""
    with errors_reported():
        _compare(Histogram(bins), common, common.choices(rows, dims), ways)


@compare.command()
@with_common_options
def kmeans(
    common: CommonOptions,
    rows: RowsOption = 2_000_000,
    dims: DimsOption = 20,
    clusters: Annotated[int, typer.Option(help="Clusters to form.")] = 8,
    iterations: Annotated[int, typer.Option(help="Iterations of Lloyd's algorithm.")] = 10,
    ways: Annotated[str | None, ways_option(KMeans.ways)] = None,
) -> None:
    """Find the same clusters every way, in interleaved rounds, and show what each took."""
    with errors_reported():
        app = KMeans(clusters, iterations, common.seed)
        _compare(app, common, common.choices(rows, dims), ways)


@compare.command()
@with_common_options
def csvm(
    common: CommonOptions,
    rows: RowsOption = 8_000,
    dims: DimsOption = 20,
    label: Annotated[
        str | None,
        typer.Option(
            help="Column of the input that holds the classes, as numbers. Data of scikit-learn's "
            "have classes of their own."
        ),
    ] = None,
    iterations: Annotated[
        int, typer.Option(help="Iterations of the cascade, at most; after few, ways may differ.")
    ] = 5,
    tol: Annotated[
        float,
        typer.Option(help="Relative change of the dual objective that ends the cascade before."),
    ] = 1e-3,
    ways: Annotated[str | None, ways_option(CascadeSvm.ways)] = None,
) -> None:
    """Train the same classifier every way, in interleaved rounds, and show what each took."""
    with errors_reported():
        _compare(CascadeSvm(label, iterations, tol), common, common.choices(rows, dims), ways)


@compare.command()
@with_common_options
def knn(
    common: CommonOptions,
    rows: RowsOption = 200_000,
    dims: DimsOption = 8,
    neighbors: Annotated[int, typer.Option(help="Neighbours to find of each query.")] = 5,
    queries: Annotated[
        int, typer.Option(help="Queries: generated on top of the points, or rows held out.")
    ] = 20_000,
    ways: Annotated[str | None, ways_option(Neighbors.ways)] = None,
) -> None:
    """Find the same neighbours every way, in interleaved rounds, and show what each took."""
    with errors_reported():
        _compare(Neighbors(neighbors, queries), common, common.choices(rows, dims), ways)


def _compare(
    app: App[Any], common: CommonOptions, choices: Sequence[InputChoice], ways: str | None
) -> None:
    settings = common.settings(ways, app, shlex.join(["spliter", *sys.argv[1:]]))
    if common.output is not None:
        make_folder(common.output)
    launch = settings.engine.launcher()
    if launch is not None:
        raise typer.Exit(launch(settings.cluster, sys.argv[1:]))
    with ExitStack() as stack:
        datasets = [stack.enter_context(app.open(choice)) for choice in choices]
        _say_columns(datasets[0].points)
        with progress() as listener:
            comparison = run_comparison(app, settings, datasets, listener)
    _show(comparison, app.detail(), common.output)


def _say_columns(points: Points) -> None:
    chosen = points.columns
    if len(chosen) < chosen.numeric:
        note(
            f"columns: {', '.join(chosen.names)} ({len(chosen)} of {chosen.numeric} numeric ones; "
            "choose with --columns)"
        )


def _show(comparison: Comparison, detail: str, output: Path | None) -> None:
    """Print the table and, if asked, write the files."""
    title = _title(comparison, detail)
    Console(markup=False).print(comparison_table(comparison, title))
    if output is not None:
        files = write_results(comparison, output) + write_plot(comparison, output, title)
        note(f"written: {', '.join(map(str, files))}")


def _title(comparison: Comparison, detail: str) -> str:
    about = comparison.settings
    columns = about["columns"]
    assert isinstance(columns, list)
    blocks = ", ".join(f"{stand.blocks_per_core}" for stand in comparison.stands)
    sets = f" on each of {about['datasets']} sets" if about["datasets"] != 1 else ""
    return (
        f"{comparison.app} of {about['input']}: {about['rows']:,} x {len(columns)}, {detail}\n"
        f"{about['backend']}: {about['workers']} workers, {about['cores']} cores, {blocks} blocks "
        f"per core, {about['rounds']} rounds{sets}"
    )
