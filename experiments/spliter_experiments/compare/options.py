"""Options of all workloads that run on a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from spliter_experiments.compare.data.datasets import InputChoice
from spliter_experiments.compare.engines.engine import ClusterChoice, Placement
from spliter_experiments.compare.registry import MODULES
from spliter_experiments.harness.errors import OptionError
from spliter_experiments.harness.options import parse_counts
from spliter_experiments.harness.workload import Options

MOST_DATASETS = 1_000
"""All data sets are open at the same time."""


@dataclass(frozen=True)
class ClusterOptions(Options):
    """Options of workloads on a cluster, which process rows."""

    rows: Annotated[int, typer.Option(min=1, help="Rows to generate.")] = 1
    datasets: Annotated[
        int,
        typer.Option(
            min=1,
            max=MOST_DATASETS,
            help="Sets of rows to generate, with this seed and those after it; all rounds are "
            "run on each. For what takes longer or shorter by which points happen to be together.",
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
    workers: Annotated[int, typer.Option(min=1, help="Processes of the cluster started here.")] = 2
    threads: Annotated[int, typer.Option(min=1, help="Threads in each of them.")] = 1
    blocks_per_core: Annotated[int, typer.Option(min=1, help="Blocks that each core gets.")] = 48
    sweep: Annotated[
        str | None, typer.Option(help="Several numbers of blocks per core, such as 1,4,16,48,192.")
    ] = None
    placement: Annotated[
        Placement,
        typer.Option(
            help="Blocks in turn over the workers, a range of neighbours at each, or where the "
            "engine happens to put them."
        ),
    ] = Placement.EVEN

    @property
    def cluster(self) -> ClusterChoice:
        return ClusterChoice(self.address, self.workers, self.threads)

    @property
    def blockings(self) -> tuple[int, ...]:
        """Numbers of blocks per core, in ascending order."""
        if self.sweep is None:
            return (self.blocks_per_core,)
        return tuple(sorted(set(parse_counts("--sweep", self.sweep))))

    def inputs(self) -> list[InputChoice]:
        return [
            InputChoice(None, None, self.rows, 1, self.seed + number)
            for number in range(self.datasets)
        ]


@dataclass(frozen=True)
class PointsOptions(ClusterOptions):
    """Options of workloads on points, which are read from a file or generated."""

    dims: Annotated[int, typer.Option(min=1, help="Columns to generate.")] = 1
    source: Annotated[
        str | None,
        typer.Option(
            "--input",
            help="A .npy, .zarr or .parquet file, or a folder of Parquet files. Without it, "
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

    def inputs(self) -> list[InputChoice]:
        if self.datasets > 1 and self.source is not None:
            raise OptionError("--datasets generates points, and does not go with --input")
        return [
            InputChoice(self.source, self.columns, self.rows, self.dims, self.seed + number)
            for number in range(self.datasets)
        ]
