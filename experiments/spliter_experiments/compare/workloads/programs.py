"""``spliter compare programs``: programs of Dask's own methods, as they are and in other ways."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from statistics import median
from typing import Annotated, Any, ClassVar, Final

import dask
import typer
from distributed import Client, futures_of

from spliter import partitioned
from spliter_experiments.compare.data.datasets import InputChoice
from spliter_experiments.compare.data.sources import Dataset
from spliter_experiments.compare.engines.dask_engine import DaskEngine, wait_for_blocks
from spliter_experiments.compare.engines.dask_meter import DaskIdle
from spliter_experiments.compare.engines.engine import Engine, Placement
from spliter_experiments.compare.options import ClusterOptions
from spliter_experiments.compare.ways import PARTITIONED, WAYS
from spliter_experiments.compare.workloads.app import App, Solver
from spliter_experiments.compare.workloads.dask_programs import (
    COLUMNS,
    DASK_PROGRAMS,
    Program,
    in_large_chunks,
)
from spliter_experiments.compare.workloads.site import Loaded, Site
from spliter_experiments.harness.console import Listener
from spliter_experiments.harness.equal import same
from spliter_experiments.harness.errors import MissingLibraryError, OptionError
from spliter_experiments.harness.options import parse_workloads
from spliter_experiments.harness.runner import Answer, Check
from spliter_experiments.harness.table import Grid, plain, times
from spliter_experiments.harness.workload import Cases, Comparison


@dataclass(frozen=True)
class Result:
    """A result, the number of chunks it was computed from, and whether it has Dask's own bits."""

    value: Any
    chunks: int
    exact: bool


class ProgramCheck(Check):
    """Compares all results as `close` says, and bits of exact results of the same chunks."""

    def __init__(self, close: Callable[[Result, Result], bool]) -> None:
        super().__init__(close)
        self._exact: dict[int, Check] = {}

    def check_equal(self, way: str, answer: Result) -> None:
        """Compare an answer with the first one, and with the first exact one of its chunks."""
        super().check_equal(way, answer)
        if answer.exact:
            check = Check(lambda one, other: same(one.value, other.value, exact=True))
            self._exact.setdefault(answer.chunks, check).check_equal(way, answer)


Setting = Callable[[Client], AbstractContextManager[Any]]


def computed(setting: Setting = nullcontext, *, rechunked: bool = False) -> Solver:
    """Return the way that builds a program and computes it in a setting of Dask."""

    def run(site: Site[DaskEngine], program: Program) -> Answer:
        source, chunks = site.array, _npartitions(site.array)
        with setting(site.engine.client):
            if rechunked:
                source = in_large_chunks(source, min(site.engine.cores, chunks))
            (value,) = dask.compute(program.run(source))
        return Answer(Result(value, chunks, exact=not rechunked))

    return run


def _npartitions(collection: Any) -> int:
    found: int = getattr(collection, "data", collection).npartitions
    return found


ON_DASK: Final[dict[str, Solver]] = {
    "dask": computed(),
    "dask-fused": computed(lambda _: dask.config.set({"optimization.fuse.active": True})),
    "dask-rechunk": computed(rechunked=True),
    PARTITIONED: computed(partitioned),
}


@dataclass(frozen=True)
class Programs(App[Program]):
    """Comparison of ways to run a program; the problem is the program itself."""

    workload: Annotated[
        str,
        typer.Option(
            help="One, several between commas, or all. "
            f"{'; '.join(f'{name}: {one.meaning}' for name, one in DASK_PROGRAMS.items())}."
        ),
    ] = "all"
    persisted: Annotated[
        bool, typer.Option(help="Persist the collections first, where Dask places them.")
    ] = False

    name: ClassVar = "programs"
    shared: ClassVar = ClusterOptions
    defaults: ClassVar = {"rows": 1_536_000, "placement": Placement.DASK}
    ways: ClassVar = WAYS["programs"]
    split_ways: ClassVar[dict[str, Solver]] = {}

    def each(self) -> list[Programs]:
        names = parse_workloads(self.workload, DASK_PROGRAMS)
        return [replace(self, workload=name) for name in names]

    def cases(self, options: Any, listener: Listener, command: str) -> Cases:
        if options.backend != "dask":
            raise OptionError(f"--backend {options.backend}: the programs are Dask's")
        if options.placement is not Placement.DASK:
            raise OptionError(f"--placement {options.placement}: Dask places chunks of programs")
        needs = self.program.needs
        try:
            importlib.import_module(needs or "dask")
        except ImportError as error:
            raise MissingLibraryError(
                f"--workload {self.workload} needs {needs}: {error}"
            ) from error
        return super().cases(options, listener, command)

    def launch(self, options: Any, arguments: Sequence[str]) -> int | None:
        return None

    def overview(self, found: Sequence[Comparison]) -> Sequence[Grid]:
        """Return how many times as long as under ``partitioned()`` Dask takes, if several ran."""
        return [gains_grid(found)] if len(found) > 1 else []

    @property
    def program(self) -> Program:
        return DASK_PROGRAMS[self.workload]

    @property
    def subject(self) -> str:
        return f"{self.workload}-persisted" if self.persisted else self.workload

    def open(self, choice: InputChoice) -> Dataset:
        return super().open(replace(choice, dims=COLUMNS))

    @contextmanager
    def loaded(
        self,
        engine: Engine,
        dataset: Dataset,
        row_chunks: Sequence[int],
        placement: Placement,
        **others: Any,
    ) -> Iterator[Loaded]:
        assert isinstance(engine, DaskEngine)
        start = time.perf_counter()
        source = self.program.make(dataset.points, row_chunks)
        if self.persisted:
            source = source.persist()
            wait_for_blocks(source)
        seconds = time.perf_counter() - start
        rest = DaskIdle.now(engine.client, futures_of(source))
        yield Loaded(Site(engine, dataset, source), rest, seconds)

    def checking(self) -> ProgramCheck:
        return ProgramCheck(self.same)

    def pose(self, site: Site[Engine]) -> Program:
        return self.program

    def same(self, left: Result, right: Result) -> bool:
        return same(left.value, right.value, exact=False, relative=self.program.tolerance)

    def detail(self) -> str:
        return f"{self.program.meaning}, {'persisted' if self.persisted else 'lazy'}"


def gains_grid(found: Sequence[Comparison]) -> Grid:
    """Return Dask's time over that of one task per partition: a row for each program."""
    rows: dict[str, dict[float, float]] = {}
    for comparison in found:
        medians = {(one.x, one.configuration): one.median for one in comparison.summaries()}
        rows[comparison.size] = {
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
