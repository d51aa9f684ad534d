"""``spliter compare programs``: programs of Dask's own methods, as they are and in other ways."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import dask
from distributed import Client, futures_of

from spliter import partitioned
from spliter_experiments.compare.data.datasets import InputChoice
from spliter_experiments.compare.data.sources import Dataset
from spliter_experiments.compare.engines.dask_engine import DaskEngine, wait_for_blocks
from spliter_experiments.compare.engines.dask_meter import Rest
from spliter_experiments.compare.engines.engine import Engine
from spliter_experiments.compare.engines.placement import Placement
from spliter_experiments.compare.ways import PARTITIONED, WAYS
from spliter_experiments.compare.workloads.dask_programs import (
    DASK_PROGRAMS,
    Program,
    in_large_chunks,
)
from spliter_experiments.compare.workloads.workload import App, Loaded, Site, Way
from spliter_experiments.harness.errors import MissingLibraryError, OptionError
from spliter_experiments.harness.runner import Answer, Judge
from spliter_experiments.pipelines.workload import same


@dataclass(frozen=True)
class Result:
    """A result, the number of chunks it was computed from, and whether it has Dask's own bits."""

    value: Any
    chunks: int
    exact: bool


class ProgramJudge(Judge):
    """Compares all results as `close` says, and bits of exact results of the same chunks."""

    def __init__(self, close: Callable[[Result, Result], bool]) -> None:
        super().__init__(close)
        self._exact: dict[int, Judge] = {}

    def hear(self, way: str, answer: Result) -> None:
        """Compare an answer with the first one, and with the first exact one of its chunks."""
        super().hear(way, answer)
        if answer.exact:
            judge = Judge(lambda one, other: same(one.value, other.value, exact=True))
            self._exact.setdefault(answer.chunks, judge).hear(way, answer)


Setting = Callable[[Client], AbstractContextManager[Any]]


def computed(setting: Setting = nullcontext, *, rechunked: bool = False) -> Way:
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


ON_DASK: Final[dict[str, Way]] = {
    "dask": computed(),
    "dask-fused": computed(lambda _: dask.config.set({"optimization.fuse.active": True})),
    "dask-rechunk": computed(rechunked=True),
    PARTITIONED: computed(partitioned),
}


@dataclass(frozen=True)
class Programs(App[Program]):
    """Comparison of ways to run a program; the problem is the program itself."""

    workload: str
    persisted: bool = False

    name: ClassVar = "programs"
    ways: ClassVar = WAYS["programs"]
    split_ways: ClassVar[dict[str, Way]] = {}

    def __post_init__(self) -> None:
        needs = self.program.needs
        try:
            importlib.import_module(needs or "dask")
        except ImportError as error:
            raise MissingLibraryError(
                f"--workload {self.workload} needs {needs}: {error}"
            ) from error

    @property
    def program(self) -> Program:
        """The program."""
        return DASK_PROGRAMS[self.workload]

    @property
    def subject(self) -> str:
        """Name of the program, and whether its collection is persisted."""
        return f"{self.workload}-persisted" if self.persisted else self.workload

    @contextmanager
    def open(self, choice: InputChoice) -> Iterator[Dataset]:
        """Generate points; none are read from an input."""
        if choice.source is not None:
            raise OptionError("--input does not go with programs, which generate their points")
        with super().open(choice) as dataset:
            yield dataset

    @contextmanager
    def loaded(
        self,
        engine: Engine,
        dataset: Dataset,
        row_chunks: Sequence[int],
        placement: Placement,
        **others: Any,
    ) -> Iterator[Loaded]:
        """Make the collection, and persist it if requested."""
        assert isinstance(engine, DaskEngine)
        start = time.perf_counter()
        source = self.program.make(dataset.points, row_chunks)
        if self.persisted:
            source = source.persist()
            wait_for_blocks(source)
        seconds = time.perf_counter() - start
        rest = Rest.now(engine.client, futures_of(source))
        yield Loaded(Site(engine, dataset, source), rest, seconds)

    def judge(self) -> ProgramJudge:
        """Return a judge of results."""
        return ProgramJudge(self.same)

    def pose(self, site: Site[Engine]) -> Program:
        """Return the program."""
        return self.program

    def same(self, left: Result, right: Result) -> bool:
        """Return whether results are equal within the program's tolerance."""
        return same(left.value, right.value, exact=False, relative=self.program.tolerance)

    def detail(self) -> str:
        """Return the program, and whether its collection is in memory."""
        return f"{self.program.meaning}, {'persisted' if self.persisted else 'lazy'}"
