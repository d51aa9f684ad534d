"""Base class of the apps to compare, and the loaded data that their ways receive."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from spliter import Split, split
from spliter_experiments.compare.data.blocks import NO_LABELS, no_points, row_starts
from spliter_experiments.compare.data.datasets import InputChoice, open_points
from spliter_experiments.compare.data.sources import Dataset, Rows
from spliter_experiments.compare.engines.engine import Engine, Pairing, Resting
from spliter_experiments.compare.engines.placement import Placement
from spliter_experiments.compare.floor import Floor
from spliter_experiments.compare.ways import FLOOR
from spliter_experiments.harness.runner import Answer, Contender, Judge

Value: TypeAlias = "str | int | float | list[str] | None"

EngineT_co = TypeVar("EngineT_co", bound=Engine, covariant=True)


@dataclass(frozen=True)
class Site(Generic[EngineT_co]):
    """Data loaded on an engine, which ways run on.

    The array of the points, shape (rows, columns), and the labels are collections of the engine,
    each block of labels at the location of its points; queries are in blocks of their own. `floor`
    has a plain process per core and `machine` one with a thread per core, for the ways in plain
    processes.
    """

    engine: EngineT_co
    dataset: Dataset
    array: Any
    labels: Any = None
    queries: Any = None
    floor: Floor | None = None
    machine: Floor | None = None

    @property
    def aligned(self) -> list[Any]:
        """The points and, if any, their labels."""
        return [one for one in (self.array, self.labels) if one is not None]

    def split(self, *collections: Any, **options: Any) -> Split:
        """Split collections, with tasks of this engine."""
        return split(*collections, backend=self.engine.split_backend, **options)

    @property
    def row_chunks(self) -> tuple[int, ...]:
        """Rows of each block."""
        chunks: tuple[int, ...] = self.array.chunks[0]
        return chunks

    def contender_in_processes(
        self, way: str, run: Callable[[Floor], Answer], *aligned: Rows
    ) -> Contender:
        """Return a way that runs in plain processes, with `aligned` rows next to the points.

        ``FLOOR`` has one process per core, each with its share of the blocks, ``SKLEARN`` one with
        all rows in one block. They hold the points only while they are measured: next to the
        blocks on the cluster and a rechunked copy, they would otherwise be in memory three times.
        """
        processes = self.floor if way == FLOOR else self.machine
        assert processes is not None
        row_chunks = self.row_chunks if way == FLOOR else (sum(self.row_chunks),)
        points = self.dataset.points
        return Contender(
            way,
            lambda: run(processes),
            prepare=lambda: processes.load(points, row_chunks, *aligned),
            release=processes.drop,
            on_cluster=False,
        )


@dataclass(frozen=True)
class Loaded:
    """A site, the cluster's state right after loading, and the seconds that loading took."""

    site: Site[Any]
    resting: Resting
    init_seconds: float

    @property
    def collections(self) -> list[Any]:
        """All that is loaded."""
        queries = () if self.site.queries is None else (self.site.queries,)
        return [*self.site.aligned, *queries]


@contextmanager
def loaded(
    engine: Engine,
    dataset: Dataset,
    row_chunks: Sequence[int],
    placement: Placement = Placement.EVEN,
    **others: Any,
) -> Iterator[Loaded]:
    """Load a data set on an engine while the context is open."""
    with ExitStack() as stack:

        def load(source: Rows, chunks: Sequence[int], like: Any) -> Any:
            return stack.enter_context(engine.persisted(source, chunks, like, placement))

        start = time.perf_counter()
        like = no_points(dataset.points) if dataset.like is None else dataset.like
        collections = {"array": load(dataset.points, row_chunks, like)}
        if dataset.labels is not None:
            collections["labels"] = load(dataset.labels, row_chunks, NO_LABELS)
        if dataset.query_chunks:
            assert dataset.held_out is not None
            collections["queries"] = load(dataset.held_out, dataset.query_chunks, like)
        seconds = time.perf_counter() - start
        site = Site(engine, dataset, **collections, **others)
        yield Loaded(site, engine.rest([*collections.values()]), seconds)


Way: TypeAlias = Callable[[Any, Any], Answer]
"""Called with a site and a problem."""


@dataclass(frozen=True)
class Ways:
    """Ways of one app on one engine.

    Parameters
    ----------
    run : mapping of str to callable
        The ways by name.
    own : tuple of str
        Names of the ways that exist only on this engine.
    absent : callable
        Given the engine, returns the ways that cannot run on this cluster, with the reasons.
    """

    run: Mapping[str, Way]
    own: tuple[str, ...] = ()
    absent: Callable[[Any], Mapping[str, str]] = field(default=lambda _: {})


@dataclass
class Parts:
    """Parts of the data, each processed by one task: blocks, or chunks after a rechunk.

    Parameters
    ----------
    engine : Engine
        The connected engine.
    array, labels : collection
        The parts, and their labels or None.
    sizes : sequence of int
        Rows of each part.
    queries : collection or None
        Queries in blocks.
    made : callable or None
        Waits until all parts are computed and returns the seconds of that phase. Called after the
        first tasks are submitted, so that each starts as soon as its part is computed.
    """

    engine: Engine
    array: Any
    labels: Any
    sizes: Sequence[int]
    queries: Any = None
    made: Callable[[], Mapping[str, float]] | None = None
    phases: Mapping[str, float] = field(default_factory=dict)

    def call(
        self,
        kernel: Callable[..., Any],
        *,
        labelled: bool = False,
        numbered: bool = False,
        **shared: Any,
    ) -> list[Any]:
        """Start ``kernel(part, [labels], [index of the first row], **shared)`` for every part."""
        starts = row_starts(self.sizes) if numbered else None
        aligned = self.labels if labelled else None
        return self._called(self.engine.call_blocks(self.array, kernel, aligned, starts, **shared))

    def call_pairs(self, pairing: Pairing, **shared: Any) -> list[Any]:
        """Start the functions for every part, every pair with a block of queries, and their merge.

        Returns one result for each block of queries.
        """
        starts = row_starts(self.sizes)
        return self._called(
            self.engine.call_pairs(self.array, self.queries, pairing, starts, **shared)
        )

    def _called(self, pending: list[Any]) -> list[Any]:
        if self.made is not None:
            self.phases, self.made = self.made(), None
        return pending

    def merge(self, merge_some: Callable[[list[Any]], Any], pending: Sequence[Any]) -> Any:
        """Merge partial results in a tree, and return the final value."""
        level = list(pending)
        while len(level) > 1:
            groups = [level[at : at + ARITY] for at in range(0, len(level), ARITY)]
            level = self.engine.call_each(merge_some, groups)
        (value,) = self.engine.results(level)
        return value


ARITY = 16
"""Partial results that one task merges; the fastest of 4, 8 and 16 for the histogram on Dask at 48,
192 and 768 blocks per core."""

ProblemT = TypeVar("ProblemT")


class App(ABC, Generic[ProblemT]):
    """A computation to compare: poses the problem, runs it in several ways, compares answers.

    Subclasses are frozen dataclasses whose fields are the settings.
    """

    name: ClassVar[str]
    ways: ClassVar[tuple[str, ...]]
    """Ways of this app on any engine, in the order of the tables."""
    split_ways: ClassVar[Mapping[str, Way]]
    """Ways that use SplIter, the same on every engine."""
    on_request: ClassVar[tuple[str, ...]] = ()
    """Ways that run only if the user names them."""

    @property
    def subject(self) -> str:
        """Which of several programs it runs, for records and names of files."""
        return ""

    @contextmanager
    def open(self, choice: InputChoice) -> Iterator[Dataset]:
        """Open the input while the context is open."""
        with open_points(choice) as points:
            yield Dataset(points)

    def loaded(
        self,
        engine: Engine,
        dataset: Dataset,
        row_chunks: Sequence[int],
        placement: Placement,
        **others: Any,
    ) -> AbstractContextManager[Loaded]:
        """Load a data set on an engine while the context is open."""
        return loaded(engine, dataset, row_chunks, placement, **others)

    def judge(self) -> Judge:
        """Return the judge of all answers on one data set."""
        return Judge(self.same)

    def check(self, dataset: Dataset) -> None:
        """Raise an :class:`.errors.ExperimentError` if the data do not suit this app."""

    def absent(self) -> Mapping[str, str]:
        """Return the ways that cannot run with these settings, with the reasons."""
        return {}

    @abstractmethod
    def pose(self, site: Site[Engine]) -> ProblemT:
        """Return the problem; it must not depend on the blocks."""

    @staticmethod
    def by_parts(parts: Parts, problem: Any) -> Answer:
        """Solve the problem with a task for each part; for apps with ways such as ``per-block``."""
        # Not abstract: never called for an app without such ways.
        raise NotImplementedError

    def in_processes(self, way: str, site: Site[Engine], problem: ProblemT) -> Contender:
        """Return the contender for a way off the cluster; for apps that have such ways."""
        # Not abstract, as above.
        raise NotImplementedError

    @abstractmethod
    def same(self, left: Any, right: Any) -> bool:
        """Return whether two answers are equal."""

    def kept(self) -> Mapping[str, Value]:
        """Return the settings to record."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}  # type: ignore[arg-type]

    def detail(self) -> str:
        """Return the settings as shown in the title."""
        return ", ".join(f"{value} {name}" for name, value in self.kept().items())


def per_block(app: type[App[Any]]) -> Way:
    """Return the way that runs one task per block."""

    def run(site: Site[Any], problem: Any) -> Answer:
        parts = Parts(site.engine, site.array, site.labels, site.row_chunks, site.queries)
        return app.by_parts(parts, problem)

    return run
