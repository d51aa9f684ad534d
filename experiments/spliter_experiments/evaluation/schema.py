"""Schema of scenario files: one experiment of the paper, in the sizes it can be run in.

A scenario is a TOML file with all parameters of an experiment and the paper's results for it.
:mod:`.catalog` reads it, :mod:`.plan` expands it into runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

Configuration: TypeAlias = Literal[
    "baseline", "baseline-paper", "rechunk", "spliter", "materialized", "fit", "kneighbors"
]
SizeName: TypeAlias = Literal["full", "laptop"]
Kind: TypeAlias = Literal[
    "weak-scaling", "balanced-overhead", "fragmentation-sweep", "fit-growth", "kernel"
]
XAxis: TypeAlias = Literal["nodes", "blocks_per_core", "blocks_per_node", "rows"]

X_OF_KIND: Mapping[Kind, XAxis] = {
    "weak-scaling": "nodes",
    "balanced-overhead": "nodes",
    "fragmentation-sweep": "blocks_per_core",
    "fit-growth": "blocks_per_node",
    "kernel": "rows",
}
"""Quantity on the x-axis, by kind of figure."""


def _without_controls(text: str) -> str:
    if not all(character.isprintable() or character in "\n\t" for character in text):
        raise ValueError("no control characters but line breaks and tabs")
    return text


Words: TypeAlias = Annotated[str, AfterValidator(_without_controls)]
"""Text shown to users, also on a terminal."""

T = TypeVar("T")


def _distinct(values: tuple[T, ...]) -> tuple[T, ...]:
    if len({*values}) < len(values):
        raise ValueError("each value may be there once")
    return values


Distinct: TypeAlias = Annotated[tuple[T, ...], AfterValidator(_distinct)]
"""Values of an axis, or other choices: runs are named after them."""


class Model(BaseModel):
    """Base class of the parts of a scenario: immutable, and without undeclared keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, allow_inf_nan=False)


class HistogramParameters(Model):
    """Of a joint histogram of all columns."""

    app: Literal["histogram"]
    dims: PositiveInt
    bins: PositiveInt


class KMeansParameters(Model):
    """Of Lloyd's algorithm."""

    app: Literal["kmeans"]
    dims: PositiveInt
    clusters: PositiveInt
    iterations: PositiveInt


class CascadeParameters(Model):
    """Of a Cascade SVM."""

    app: Literal["csvm"]
    dims: PositiveInt
    iterations: PositiveInt


class NeighborsParameters(Model):
    """Of nearest neighbours."""

    app: Literal["knn"]
    dims: PositiveInt
    neighbors: PositiveInt


Parameters: TypeAlias = Annotated[
    HistogramParameters | KMeansParameters | CascadeParameters | NeighborsParameters,
    Field(discriminator="app"),
]


class Size(Model):
    """One size of an experiment.

    `workers_per_node` are processes (one per socket, say). Give one of `blocks_per_core` and
    `blocks_per_node`, and one of `rows_per_block` and `rows_per_node`; queries are those of nearest
    neighbours, which kernels get in one block. `repetitions` are the runs that count, divided into
    `visits` to all places of the axis, so that changes of the machine affect all of them.
    `seconds_per_run` is an estimate; `chosen` says what is our choice, not the paper's, and why.
    """

    nodes: Annotated[Distinct[PositiveInt], Field(min_length=1)]
    workers_per_node: PositiveInt
    threads_per_worker: PositiveInt
    blocks_per_core: Distinct[PositiveInt] = ()
    blocks_per_node: Distinct[PositiveInt] = ()
    rows_per_block: PositiveInt | None = None
    rows_per_node: PositiveInt | None = None
    queries_per_node: PositiveInt | None = None
    query_blocks_per_node: PositiveInt | None = None
    repetitions: PositiveInt = 5
    visits: PositiveInt = 1
    seconds_per_run: PositiveFloat
    chosen: Words = ""

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if bool(self.blocks_per_core) == bool(self.blocks_per_node):
            raise ValueError("give blocks_per_core or blocks_per_node, one of the two")
        if (self.rows_per_block is None) == (self.rows_per_node is None):
            raise ValueError("give rows_per_block or rows_per_node, one of the two")
        too_many = [n for n in self.cuts() if self.rows_per_node and n > self.rows_per_node]
        if too_many:
            raise ValueError(f"{self.rows_per_node} rows per node are not {too_many[0]} blocks")
        return self

    @property
    def cores_per_node(self) -> int:
        return self.workers_per_node * self.threads_per_worker

    def cuts(self) -> tuple[int, ...]:
        return self.blocks_per_node or tuple(n * self.cores_per_node for n in self.blocks_per_core)

    def rows(self, blocks_per_node: int) -> int:
        if self.rows_per_node is not None:
            return self.rows_per_node
        assert self.rows_per_block is not None
        return self.rows_per_block * blocks_per_node


class Claim(Model):
    """A finding of the paper, as a condition on the medians of a configuration.

    Measures: ``ratio`` and ``worst-ratio``, the time over that of `against`, at the end of the axis
    and where it is largest; ``growth``, the last time over the first; ``excess-growth``, the growth
    over that of `against`. Give one of the bounds.
    """

    says: Words
    of: Configuration
    against: Configuration | None = None
    measure: Literal["ratio", "worst-ratio", "growth", "excess-growth"]
    at_least: PositiveFloat | None = None
    at_most: PositiveFloat | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.against is None) != (self.measure == "growth"):
            raise ValueError("`against` goes with all measures but growth")
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("give at_least or at_most, one of the two")
        return self


class Paper(Model):
    """The paper's description of the experiment, and its seconds at each x value.

    Each of the paper's series (on Dask, COMPSs and in one process) has seconds by configuration.
    """

    reading: Words
    source: Words = ""
    x: tuple[PositiveFloat, ...] = ()
    dask: dict[Configuration, tuple[PositiveFloat, ...]] = {}
    compss: dict[Configuration, tuple[PositiveFloat, ...]] = {}
    process: dict[Configuration, tuple[PositiveFloat, ...]] = {}

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for series in (self.dask, self.compss, self.process):
            for name, seconds in series.items():
                if len(seconds) != len(self.x):
                    raise ValueError(f"{name} has {len(seconds)} values for {len(self.x)} of x")
        return self


class Scenario(Model):
    """An experiment; output files are named after its figure.

    With the axis ``log`` times are drawn on a logarithmic scale. The seed is that of the data and
    of the order of the runs.
    """

    schema_version: Literal[1]
    figure: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64)]
    title: Words
    kind: Kind
    configurations: Annotated[Distinct[Configuration], Field(min_length=1)]
    y: Literal["seconds", "blocks-per-second"] = "seconds"
    axis: Literal["linear", "log"] = "linear"
    seed: int = 420
    parameters: Parameters
    sizes: dict[SizeName, Size]
    paper: Paper
    claims: tuple[Claim, ...] = ()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        kernels = {"fit", "kneighbors"}
        if (self.kind == "kernel") != bool(kernels & {*self.configurations}):
            raise ValueError("the configurations fit and kneighbors are those of kind kernel")
        for claim in self.claims:
            if absent := {claim.of, claim.against or claim.of} - {*self.configurations}:
                raise ValueError(f"a claim is about {absent.pop()}, which is no configuration")
        for name, size in self.sizes.items():
            if (self.parameters.app == "knn") != (size.queries_per_node is not None):
                raise ValueError(
                    f"sizes.{name}: queries_per_node goes with the app knn, and with no other"
                )
            on_cluster = self.parameters.app == "knn" and self.kind != "kernel"
            if on_cluster != (size.query_blocks_per_node is not None):
                raise ValueError(
                    f"sizes.{name}: query_blocks_per_node goes with the app knn on a cluster, and "
                    "with nothing else"
                )
            if (size.query_blocks_per_node or 0) > (size.queries_per_node or 0):
                raise ValueError(
                    f"sizes.{name}: {size.queries_per_node} queries per node are not "
                    f"{size.query_blocks_per_node} blocks"
                )
        return self

    @property
    def x(self) -> XAxis:
        return X_OF_KIND[self.kind]
