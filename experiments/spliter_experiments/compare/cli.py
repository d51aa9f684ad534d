"""Commands of ``spliter compare``: measure SplIter and other ways on the user's data."""

from __future__ import annotations

import functools
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from spliter_experiments.compare.comparison import Comparison, run_comparison
from spliter_experiments.compare.data.datasets import InputChoice
from spliter_experiments.compare.data.sources import Points
from spliter_experiments.compare.data.uneven import WORKLOADS
from spliter_experiments.compare.engines.placement import Placement
from spliter_experiments.compare.options import (
    CommonOptions,
    DimsOption,
    RowsOption,
    ways_option,
    with_common_options,
)
from spliter_experiments.compare.ways import PARTITIONED, WAYS, legend
from spliter_experiments.compare.workloads.dask_programs import COLUMNS, DASK_PROGRAMS
from spliter_experiments.compare.workloads.workload import App
from spliter_experiments.harness.console import errors_reported, note, progress
from spliter_experiments.harness.errors import MissingLibraryError, OptionError
from spliter_experiments.harness.options import parse_ways, parse_workloads
from spliter_experiments.harness.records import Record, ResultsFolder
from spliter_experiments.harness.summary import summarise
from spliter_experiments.harness.table import Grid, plain, summary_grid, times
from spliter_experiments.layouts.patterns import CASES
from spliter_experiments.pipelines.names import PROGRAMS

if TYPE_CHECKING:
    from spliter_experiments.layouts.comparison import Settings, Subject

compare = typer.Typer(no_args_is_help=True, help="Compare SplIter with other ways, on your data.")


@compare.command(name="sum")
@with_common_options
def add_up(
    common: CommonOptions,
    rows: RowsOption = 20_000_000,
    dims: DimsOption = 5,
    passes: Annotated[int, typer.Option(help="Passes over the data, split once for all.")] = 1,
    ways: Annotated[str | None, ways_option("sum")] = None,
) -> None:
    """Add up all values every way: next to no work, so that it shows what tasks cost."""
    from spliter_experiments.compare.workloads.sums import Sum

    with errors_reported():
        _compare(Sum(passes), common, common.choices(rows, dims), ways)


@compare.command()
@with_common_options
def histogram(
    common: CommonOptions,
    rows: RowsOption = 20_000_000,
    dims: DimsOption = 5,
    bins: Annotated[int, typer.Option(help="Bins in each column.")] = 10,
    ways: Annotated[str | None, ways_option("histogram")] = None,
) -> None:
    """Compute the same histogram every way, in interleaved rounds, and show what each took."""
    from spliter_experiments.compare.workloads.histogram import Histogram

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
    ways: Annotated[str | None, ways_option("kmeans")] = None,
) -> None:
    """Find the same clusters every way, in interleaved rounds, and show what each took."""
    from spliter_experiments.compare.workloads.kmeans import KMeans

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
        typer.Option(help="Column of the input that holds the classes, as numbers or text."),
    ] = None,
    iterations: Annotated[
        int, typer.Option(help="Iterations of the cascade, at most; after few, ways may differ.")
    ] = 5,
    tol: Annotated[
        float,
        typer.Option(help="Relative change of the dual objective that ends the cascade before."),
    ] = 1e-3,
    ways: Annotated[str | None, ways_option("csvm")] = None,
) -> None:
    """Train the same classifier every way, in interleaved rounds, and show what each took."""
    from spliter_experiments.compare.workloads.csvm import CascadeSvm

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
    query_blocks: Annotated[
        int, typer.Option(help="Blocks of queries at the workers; 0: the program sends them.")
    ] = 0,
    ways: Annotated[str | None, ways_option("knn")] = None,
) -> None:
    """Find the same neighbours every way, in interleaved rounds, and show what each took."""
    from spliter_experiments.compare.workloads.knn import Neighbors

    with errors_reported():
        app = Neighbors(neighbors, queries, query_blocks)
        _compare(app, common, common.choices(rows, dims), ways)


@compare.command()
@functools.partial(with_common_options, workers=1, threads=2, blocks_per_core=1152)
def schedules(
    common: CommonOptions,
    rows: Annotated[int, typer.Option(help="Items to make, at least one per block.")] = 2304,
    workload: Annotated[
        str,
        typer.Option(
            help=f"{'; '.join(f'{name}: {one.meaning}' for name, one in WORKLOADS.items())}."
        ),
    ] = "simulated",
    ms: Annotated[
        float, typer.Option(help="Milliseconds of a cheap item, if simulated or emulated.")
    ] = 1.0,
    shuffle: Annotated[
        bool, typer.Option(help="Items in random order (--seed), or the dear ones first.")
    ] = False,
    order: Annotated[
        str | None,
        typer.Option(
            help="Blocks of a partition: contiguous (neighbours), or strided (spread over the "
            "collection), the default."
        ),
    ] = None,
    ways: Annotated[str | None, ways_option("schedules")] = None,
) -> None:
    """Process blocks that take unequal time, cut by several schedules, and show what each took.

    Schedules balance the cores of a worker, not the workers: the default is one with two threads.
    With --workers 2 --threads 1 --placement contiguous one worker has the dear blocks, and Dask
    steals tasks of single blocks from it.
    """
    from spliter_experiments.compare.workloads.schedules import Schedules

    with errors_reported():
        app = Schedules(workload, ms, shuffle, order)
        _compare(app, common, common.choices(rows, 1), ways)


@compare.command()
@functools.partial(with_common_options, workers=1, blocks_per_core=64)
def prefetch(
    common: CommonOptions,
    rows: RowsOption = 10_432,
    dims: DimsOption = 1_000,
    latency: Annotated[
        float, typer.Option(help="Milliseconds that each read of a block takes.")
    ] = 20.0,
    ms: Annotated[float, typer.Option(help="Milliseconds of work on each block.")] = 5.0,
    depth: Annotated[
        int, typer.Option(help="Blocks that the window written by hand reads ahead.")
    ] = 8,
    ways: Annotated[str | None, ways_option("prefetch")] = None,
) -> None:
    """Loop over a Zarr array behind a delay, read in several ways, and show what each took."""
    from spliter_experiments.compare.workloads.prefetch import Prefetch

    with errors_reported():
        _compare(Prefetch(latency, ms, depth), common, common.choices(rows, dims), ways)


@compare.command()
@functools.partial(with_common_options, placement=Placement.DASK)
def programs(
    common: CommonOptions,
    rows: RowsOption = 1_536_000,
    workload: Annotated[
        str,
        typer.Option(
            help="One, several between commas, or all. "
            f"{'; '.join(f'{name}: {one.meaning}' for name, one in DASK_PROGRAMS.items())}."
        ),
    ] = "all",
    persisted: Annotated[
        bool, typer.Option(help="Persist the collections first, where Dask places them.")
    ] = False,
    ways: Annotated[str | None, ways_option("programs")] = None,
) -> None:
    """Run programs of Dask's own methods, as they are and with one task per partition.

    Each run builds the graph and computes it. All ways have to give the same bits, but for the one
    that rechunks.
    """
    from spliter_experiments.compare.workloads.programs import Programs

    with errors_reported():
        if common.backend != "dask":
            raise OptionError(f"--backend {common.backend}: the programs are Dask's")
        if common.placement is not Placement.DASK:
            raise OptionError(f"--placement {common.placement}: Dask places chunks of programs")
        names, found = parse_workloads(workload, DASK_PROGRAMS), []
        for name in names:
            try:
                app = Programs(name, persisted)
            except MissingLibraryError as error:
                if len(names) == 1:
                    raise
                note(f"{name} is left out: {error}")
                continue
            found.append(_compare(app, common, common.choices(rows, COLUMNS), ways))
        if len(found) > 1:
            Console(markup=False).print(gains_grid(found).terminal())


@compare.command()
def layout(
    case: Annotated[
        str, typer.Option(help=f"all, ddtbench, or some of {', '.join(CASES)}.")
    ] = "all",
    mpich: Annotated[
        str | None,
        typer.Option(
            envvar="SPLITER_MPICH",
            help="Python of an environment with NumPy and the packages mpich and mpi4py.",
        ),
    ] = None,
    openmpi: Annotated[
        str | None,
        typer.Option(envvar="SPLITER_OPENMPI", help="The same with openmpi instead of mpich."),
    ] = None,
    two_ranks: Annotated[
        bool,
        typer.Option(
            help="Exchange the data between two ranks of each MPI, packed by SplIter or by its own "
            "datatypes: a ping-pong, the transpose of an FFT, the halos of a lattice."
        ),
    ] = False,
    rounds: Annotated[int, typer.Option(min=1, help="Interleaved rounds, after a warm-up.")] = 5,
    seed: Annotated[int, typer.Option(help="Of the order of the ways.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option(help="Folder for the records of all runs and results.parquet."),
    ] = None,
) -> None:
    """Pack and unpack data that is not contiguous every way, and show what each took."""
    from spliter_experiments.layouts.comparison import Settings, parse_cases, subjects_of

    with errors_reported():
        subjects = subjects_of(parse_cases(case), two_ranks)
        settings = Settings(rounds, seed, shlex.join(["spliter", *sys.argv[1:]]))
        _compare_layouts(subjects, settings, {"mpich": mpich, "openmpi": openmpi}, output)


def _compare_layouts(
    subjects: Sequence[Subject],
    settings: Settings,
    pythons: Mapping[str, str | None],
    output: Path | None,
) -> None:
    from spliter_experiments.layouts.comparison import (
        MEANINGS,
        layout_grid,
        run_subjects,
        started_peers,
    )

    folder = None if output is None else ResultsFolder(output)
    if folder is not None:
        folder.make()
    records = []
    with (
        progress() as listener,
        started_peers(sys.executable, pythons, subjects[0].two_ranks, listener) as peers,
    ):
        for record in run_subjects(subjects, peers, settings, listener):
            records.append(record)
            if folder is not None:
                folder.append(record)
    console = Console(markup=False)
    console.print(layout_grid(records).terminal())
    meanings = (f"{way}: {MEANINGS[way]}" for way in peers.by_way)
    console.print("\n".join(meanings), highlight=False, style="dim")
    if folder is not None:
        note(f"written: {folder.write_table(records)}")


@compare.command()
def pipeline(
    workload: Annotated[
        str,
        typer.Option(
            help="One, several between commas, or all. "
            f"{'; '.join(f'{name}: {meaning}' for name, meaning in PROGRAMS.items())}."
        ),
    ] = "black-scholes",
    rows: Annotated[int | None, typer.Option(help="Rows, instead of each one's default.")] = None,
    rounds: Annotated[int, typer.Option(help="Interleaved rounds, after a warm-up.")] = 5,
    seed: Annotated[int, typer.Option(help="Of the data and of the order of the ways.")] = 0,
    ways: Annotated[str | None, ways_option("pipeline")] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Folder for the records of all runs; those in it are not run again."),
    ] = None,
) -> None:
    """Run programs of NumPy, pandas and other libraries as they are, and as pipelines.

    All ways run in this process, with as many threads as it has cores.
    """
    from spliter_experiments.pipelines.comparison import Choice, run_workload

    with errors_reported():
        folder = None if output is None else ResultsFolder(output)
        chosen = None if ways is None else parse_ways(ways, WAYS["pipeline"])
        command = shlex.join(["spliter", *sys.argv[1:]])
        names = parse_workloads(workload, PROGRAMS)
        for name in names:
            choice = Choice(name, rows, rounds, seed, chosen, command)
            try:
                with progress() as listener:
                    records = run_workload(choice, listener, folder)
            except MissingLibraryError as error:
                if len(names) == 1:
                    raise
                note(f"{name} is skipped: {error}")
                continue
            _show_workload(name, records)
        meanings = "\n".join(legend(WAYS["pipeline"]))
        Console(markup=False).print(meanings, highlight=False, style="dim")
        if folder is not None:
            note(f"written: {folder.write_table(folder.records())}")


def _compare(
    app: App[Any], common: CommonOptions, choices: Sequence[InputChoice], ways: str | None
) -> Comparison:
    settings = common.settings(ways, app, shlex.join(["spliter", *sys.argv[1:]]))
    folder = None if common.output is None else ResultsFolder(common.output)
    if folder is not None:
        folder.make()
    launch = settings.engine.launcher()
    if launch is not None:
        raise typer.Exit(launch(settings.cluster, sys.argv[1:]))
    show = functools.partial(_show, detail=app.detail(), folder=folder)
    with ExitStack() as stack:
        datasets = [stack.enter_context(app.open(choice)) for choice in choices]
        _note_columns(datasets[0].points)
        with progress() as listener:
            comparison = run_comparison(app, settings, datasets, listener, folder, show)
    show(comparison)
    return comparison


def _show_workload(name: str, records: Sequence[Record]) -> None:
    """Print the table of a workload of pipelines."""
    ways = [way for way in WAYS["pipeline"] if any(one.way == way for one in records)]
    grid = summary_grid(summarise(records, ways), "rows", "times in seconds")
    title = f"{name}: {PROGRAMS[name]}; {records[0].rows:,} rows, {records[0].threads} cores"
    Console(markup=False).print(grid.without("rows", "runs", "init", "iterate").terminal(title))


def _note_columns(points: Points) -> None:
    chosen = points.columns
    if len(chosen) < chosen.numeric:
        note(
            f"columns: {', '.join(chosen.names)} ({len(chosen)} of {chosen.numeric} numeric ones; "
            "choose with --columns)"
        )


def _show(comparison: Comparison, detail: str, folder: ResultsFolder | None) -> None:
    """Print the table and, with ``--output``, write table and plot."""
    title, summaries = _title(comparison, detail), comparison.summaries()
    console = Console(markup=False)
    grid = summary_grid(summaries, "blocks / core", "times in seconds")
    grid = grid.without("runs", "init", "iterate", "split")
    if "spliter" in comparison.ways:
        grid = grid.without(f"over {PARTITIONED}")
    several = len({one.x for one in summaries}) > 1
    console.print((grid if several else grid.without("blocks / core")).terminal(title))
    console.print("\n".join(legend(comparison.ways)), highlight=False, style="dim")
    if folder is not None:
        from spliter_experiments.harness.plot import Style, write_plot

        caption = "\n".join(legend(comparison.ways))
        sweep = Style(title, "blocks per core", "lines", scale="log", caption=caption)
        style = sweep if several else Style(title, "blocks per core", caption=caption)
        table = folder.write_table(folder.records())
        stem = "-".join(filter(None, (comparison.app, comparison.subject)))
        files = write_plot(summaries, style, folder.path, stem)
        note(f"written: {', '.join(map(str, [table, *files]))}")


def gains_grid(found: Sequence[Comparison]) -> Grid:
    """Return Dask's time over that of one task per partition: a row for each program."""
    rows: dict[str, dict[float, float]] = {}
    for comparison in found:
        medians = {(one.x, one.configuration): one.median for one in comparison.summaries()}
        rows[comparison.subject] = {
            x: medians[x, "dask"] / seconds
            for (x, way), seconds in medians.items()
            if way == PARTITIONED and (x, "dask") in medians
        }
    places = sorted({x for row in rows.values() for x in row})
    gains = {x: [row[x] for row in rows.values() if x in row] for x in places}
    rows["median"] = {x: median(gains[x]) for x in places}
    rows["least"] = {x: min(gains[x]) for x in places}
    cells = ((name, *(times(row.get(x)) for x in places)) for name, row in rows.items())
    caption = f"time of dask over that of {PARTITIONED}, by blocks per core; medians"
    return Grid(("program", *map(plain, places)), tuple(cells), caption)


def _title(comparison: Comparison, detail: str) -> str:
    about = comparison.settings
    columns = about["columns"]
    assert isinstance(columns, list)
    blocks = ", ".join(f"{place:g}" for place in sorted({one.x for one in comparison.records}))
    sets = f" on each of {about['datasets']} sets" if about["datasets"] != 1 else ""
    rounds = (
        f"interrupted after {comparison.complete_rounds()}"
        if about.get("interrupted")
        else about["rounds"]
    )
    return (
        f"{comparison.app} of {about['input']}: {about['rows']:,} x {len(columns)}, {detail}\n"
        f"{about['backend']}: {about['workers']} workers, {about['cores']} cores, {blocks} blocks "
        f"per core, placement {about['placement']}, {rounds} rounds{sets}"
    )
