"""Command-line options common to all comparisons."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, get_type_hints

import typer

from spliter_experiments.compare.comparison import Settings
from spliter_experiments.compare.data.datasets import InputChoice
from spliter_experiments.compare.engines.engine import ClusterChoice
from spliter_experiments.compare.engines.loading import MODULES, load_engine
from spliter_experiments.compare.engines.placement import Placement
from spliter_experiments.compare.registry import ways_on
from spliter_experiments.compare.ways import WAYS, legend
from spliter_experiments.compare.workloads.workload import App
from spliter_experiments.harness.errors import OptionError
from spliter_experiments.harness.options import parse_counts, parse_ways

P = ParamSpec("P")

MOST_DATASETS = 1_000
"""All data sets are open at the same time."""


@dataclass(frozen=True)
class CommonOptions:
    """Values of the common options."""

    source: Annotated[
        str | None,
        typer.Option(
            "--input",
            help="A .npy, .zarr, .parquet or .csv file, or a folder of Parquet files. Without it, "
            "points are generated.",
        ),
    ] = None
    columns: Annotated[
        str | None,
        typer.Option(
            help="Columns of the input by name or number, between commas. "
            "Without it, the numeric ones (for a histogram, the first five)."
        ),
    ] = None
    seed: Annotated[int, typer.Option(help="Of the points and of the order of the ways.")] = 0
    datasets: Annotated[
        int,
        typer.Option(
            help="Sets of points to generate, with this seed and those after it; all rounds are "
            "run on each. For what takes longer or shorter by which points happen to be together."
        ),
    ] = 1
    backend: Annotated[str, typer.Option(help=f"What to compare on: {' or '.join(MODULES)}.")] = (
        "dask"
    )
    address: Annotated[
        str | None,
        typer.Option(
            help="Use this cluster: ADDRESS or scheduler FILE of Dask, HOST:PORT of dataClay's "
            "metadata service, ADDRESS of Ray, the resources FILE of COMPSs with project.xml "
            "beside it. Without it, a cluster is started."
        ),
    ] = None
    workers: Annotated[int, typer.Option(help="Processes of the cluster started here.")] = 2
    threads: Annotated[int, typer.Option(help="Threads in each of them.")] = 1
    blocks_per_core: Annotated[int, typer.Option(help="Blocks that each core gets.")] = 48
    sweep: Annotated[
        str | None,
        typer.Option(help="Several numbers of blocks per core, such as 1,4,16,48,192."),
    ] = None
    placement: Annotated[
        Placement,
        typer.Option(
            help="Blocks in turn over the workers, a range of neighbours at each, or where the "
            "engine happens to put them."
        ),
    ] = Placement.EVEN
    rounds: Annotated[int, typer.Option(help="Interleaved rounds, after a warm-up.")] = 5
    output: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the records of all runs, results.parquet and a plot. Runs that it "
            "holds are not measured again."
        ),
    ] = None

    def settings(self, ways: str | None, app: App[Any], command: str) -> Settings:
        """Return the settings of the comparison."""
        engine = load_engine(self.backend)
        return Settings(
            engine=engine,
            cluster=ClusterChoice(self.address, self.workers, self.threads),
            ways=None if ways is None else parse_ways(ways, ways_on(engine, app)),
            blocks_per_core=self._blockings(),
            rounds=self.rounds,
            seed=self.seed,
            placement=self.placement,
            command=command,
        )

    def _blockings(self) -> tuple[int, ...]:
        if self.sweep is None:
            return (self.blocks_per_core,)
        return tuple(sorted(set(parse_counts("--sweep", self.sweep))))

    def choices(self, rows: int, dims: int) -> list[InputChoice]:
        """Return the inputs to open; generated points have the shape (`rows`, `dims`)."""
        if not 1 <= self.datasets <= MOST_DATASETS:
            raise OptionError(f"--datasets must be 1 to {MOST_DATASETS}, got {self.datasets}")
        if self.datasets > 1 and self.source is not None:
            raise OptionError("--datasets generates points, and does not go with --input")
        return [
            InputChoice(self.source, self.columns, rows, dims, self.seed + number)
            for number in range(self.datasets)
        ]


RowsOption = Annotated[int, typer.Option("--rows", help="Points to generate.")]
DimsOption = Annotated[int, typer.Option("--dims", help="Columns to generate.")]
"""Options of every comparison whose defaults depend on the app."""


def ways_option(app: str) -> Any:
    """Return the ``--ways`` option of an app."""
    return typer.Option(
        "--ways", help=f"Only these, between commas. {'; '.join(legend(WAYS[app]))}."
    )


def with_common_options(
    command: Callable[Concatenate[CommonOptions, P], None], **defaults: Any
) -> Callable[..., None]:
    """Add the common options to a typer command, which receives them as its first argument.

    Other `defaults` replace those of the options.
    """
    hints = get_type_hints(CommonOptions, include_extras=True)
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    common = [
        inspect.Parameter(
            entry.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=defaults.get(entry.name, entry.default),
            annotation=hints[entry.name],
        )
        for entry in fields(CommonOptions)
    ]

    @functools.wraps(command)
    def run(*args: P.args, **given: P.kwargs) -> None:
        chosen: dict[str, Any] = {entry.name: given.pop(entry.name) for entry in common}
        command(CommonOptions(**chosen), *args, **given)

    # Typer reads names and defaults from the signature, and types from the annotations.
    parameters = [entry.replace(kind=inspect.Parameter.KEYWORD_ONLY) for entry in own] + common
    run.__dict__["__signature__"] = inspect.Signature(parameters)
    run.__annotations__ = {entry.name: entry.annotation for entry in parameters}
    return run
