"""What a scenario says, as types: one experiment of the paper, in the sizes it can be run in.

A scenario is data, a TOML file; :mod:`.catalog` reads it, :mod:`.plan` makes runs of it. All that
is asked for and all that the paper reports of the experiment is in that one file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

SCHEMA_VERSION: Literal[1] = 1
"""Of scenario files."""

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
"""What is along the axis of a figure of each kind."""

_UNITS = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def parse_bytes(value: Any) -> Any:
    """Read a number of bytes such as ``"96 GB"``; leave anything but text alone.

    Examples
    --------
    >>> parse_bytes("96 GB")
    96000000000
    """
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*", value)
    if found is None or found[2] not in _UNITS:
        raise ValueError(f'not a number of bytes: {value!r}; write it like "96 GB"')
    nbytes = float(found[1]) * _UNITS[found[2]]
    if math.isinf(nbytes):
        raise ValueError("more bytes than can be counted")
    return round(nbytes)


def _without_controls(text: str) -> str:
    if not all(character.isprintable() or character in "\n\t" for character in text):
        raise ValueError("no control characters but line breaks and tabs")
    return text


Words: TypeAlias = Annotated[str, AfterValidator(_without_controls)]
"""What is shown to people, also on a terminal."""


class Model(BaseModel):
    """A part of a scenario: cannot be changed, and has no other keys than it declares."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, allow_inf_nan=False)


class HistogramParameters(Model):
    """Histogram of all columns together."""

    app: Literal["histogram"]
    dims: PositiveInt
    bins: PositiveInt


class KMeansParameters(Model):
    """Lloyd's algorithm."""

    app: Literal["kmeans"]
    dims: PositiveInt
    clusters: PositiveInt
    iterations: PositiveInt


class CascadeParameters(Model):
    """Cascade SVM."""

    app: Literal["csvm"]
    dims: PositiveInt
    iterations: PositiveInt


class NeighborsParameters(Model):
    """Nearest neighbours."""

    app: Literal["knn"]
    dims: PositiveInt
    neighbors: PositiveInt


Parameters: TypeAlias = Annotated[
    HistogramParameters | KMeansParameters | CascadeParameters | NeighborsParameters,
    Field(discriminator="app"),
]


class Size(Model):
    """One size of an experiment.

    Parameters
    ----------
    nodes : tuple of int
        How many, one after the other.
    workers_per_node, threads_per_worker : int
        Processes on each node (one per socket, say) and threads in each.
    memory_per_node : int
        Bytes; in the file also like ``"96 GB"``.
    blocks_per_core, blocks_per_node : tuple
        How finely the data are cut; one of the two.
    rows_per_block, rows_per_node : int
        How many points there are; one of the two.
    queries_per_node : int
        Of nearest neighbours: points to find the neighbours of.
    repetitions : int
        Runs of every configuration that count.
    visits : int
        In how many parts the repetitions are run: each time, all places of the axis are gone
        through anew, so that what a machine does meanwhile hits all of them. Costs a start of the
        cluster each time.
    seconds_per_run : float
        What a run is expected to take before any has been measured.
    chosen : str
        Which of these were chosen and not found, and why so.
    """

    nodes: Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
    workers_per_node: PositiveInt
    threads_per_worker: PositiveInt
    memory_per_node: Annotated[PositiveInt, BeforeValidator(parse_bytes)]
    blocks_per_core: tuple[PositiveInt, ...] = ()
    blocks_per_node: tuple[PositiveInt, ...] = ()
    rows_per_block: PositiveInt | None = None
    rows_per_node: PositiveInt | None = None
    queries_per_node: PositiveInt | None = None
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
        """Tasks that a node runs at once."""
        return self.workers_per_node * self.threads_per_worker

    def cuts(self) -> tuple[int, ...]:
        """Return the blocks per node, in the order of the file."""
        return self.blocks_per_node or tuple(n * self.cores_per_node for n in self.blocks_per_core)

    def rows(self, blocks_per_node: int) -> int:
        """Return the rows of a node that is cut so."""
        if self.rows_per_node is not None:
            return self.rows_per_node
        assert self.rows_per_block is not None
        return self.rows_per_block * blocks_per_node


class Claim(Model):
    """A finding of the paper, as something that can be checked on medians.

    Parameters
    ----------
    says : str
        In words.
    of : str
        The configuration it is about.
    against : str or None
        Another one that it is compared with.
    measure : str
        What is computed: ``ratio`` and ``worst-ratio`` of the times of the two, at the end of the
        axis and where it is largest; ``growth`` of one, from one end of the axis to the other;
        ``excess-growth``, the growth of one over that of the other.
    at_least, at_most : float or None
        When it holds.
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


class PaperPoint(Model):
    """The paper's seconds at one place of the axis, by configuration."""

    x: PositiveFloat
    dask: dict[Configuration, PositiveFloat] = {}
    compss: dict[Configuration, PositiveFloat] = {}
    process: dict[Configuration, PositiveFloat] = {}


class Paper(Model):
    """What the paper reports of the experiment."""

    reading: Words
    source: Words
    points: tuple[PaperPoint, ...] = ()


class Scenario(Model):
    """An experiment.

    Parameters
    ----------
    schema_version : int
        Of the file's format.
    figure : str
        Its name in the paper, such as ``"9"`` or ``"table1"``; files are named after it.
    title : str
        What it is about.
    kind : str
        How sizes vary.
    configurations : tuple of str
        What is compared.
    y : str
        What is drawn: ``seconds``, or ``blocks-per-second``.
    axis : str
        ``linear``, ``log``, or ``cut`` where bars may stick out and bear their value.
    winsorize : tuple of float
        Shares of the lowest and of the highest runs that are replaced by the next ones.
    seed : int
        Of data and order.
    """

    schema_version: Literal[1]
    figure: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64)]
    title: Words
    kind: Kind
    configurations: Annotated[tuple[Configuration, ...], Field(min_length=1)]
    y: Literal["seconds", "blocks-per-second"] = "seconds"
    axis: Literal["linear", "log", "cut"] = "linear"
    winsorize: tuple[
        Annotated[NonNegativeFloat, Field(lt=0.5)], Annotated[NonNegativeFloat, Field(lt=0.5)]
    ] = (0.0, 0.3)
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
        for name, size in self.sizes.items():
            if (self.parameters.app == "knn") != (size.queries_per_node is not None):
                raise ValueError(
                    f"sizes.{name}: queries_per_node goes with the app knn, and with no other"
                )
        return self

    @property
    def x(self) -> XAxis:
        """What is along the axis."""
        return X_OF_KIND[self.kind]
