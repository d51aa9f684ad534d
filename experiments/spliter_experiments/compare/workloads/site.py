"""The loaded data that ways receive, and its parts, each processed by one task."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from spliter import Split, split
from spliter_experiments.compare.baseline import Baseline
from spliter_experiments.compare.data.sources import (
    NO_LABELS,
    Dataset,
    Floats,
    Points,
    Rows,
    no_points,
    row_starts,
)
from spliter_experiments.compare.engines.engine import Engine, IdleState, Pairing, Placement
from spliter_experiments.compare.ways import FLOOR
from spliter_experiments.harness.errors import InputError
from spliter_experiments.harness.runner import Answer, Way


def _on_blocks(engine: Engine, kernel: Any, array: Any) -> list[Any]:
    return engine.results(engine.call_blocks(array, kernel))


def bounds_of(engine: Engine, array: Any) -> Floats:
    """Return the lowest and highest value of each column, shape (2, columns)."""
    low, high = zip(*_on_blocks(engine, bounds_of_block, array), strict=True)
    return np.stack([np.min(low, axis=0), np.max(high, axis=0)])


def check_finite(engine: Engine, points: Points, array: Any) -> None:
    each = _on_blocks(engine, has_gaps, array)
    gaps = np.any(each, axis=0)
    if gaps.any():
        names = [name for name, gap in zip(points.columns.names, gaps, strict=True) if gap]
        raise InputError(
            f"{points.origin}: missing or infinite values in {', '.join(names)}; choose other "
            "columns with --columns, or fill them in"
        )


def has_gaps(block: Floats) -> npt.NDArray[np.bool_]:
    """Return which columns of a block have a value that is not finite, shape (columns,)."""
    return np.asarray(np.any(~np.isfinite(block), axis=0))


def bounds_of_block(block: Floats) -> tuple[Floats, Floats]:
    return block.min(axis=0), block.max(axis=0)


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
    floor: Baseline | None = None
    machine: Baseline | None = None

    @property
    def aligned(self) -> list[Any]:
        return [one for one in (self.array, self.labels) if one is not None]

    def split(self, *collections: Any, **options: Any) -> Split:
        return split(*collections, backend=self.engine.split_backend, **options)

    @property
    def row_chunks(self) -> tuple[int, ...]:
        chunks: tuple[int, ...] = self.array.chunks[0]
        return chunks

    def way_in_processes(self, way: str, run: Callable[[Baseline], Answer], *aligned: Rows) -> Way:
        """Return a way that runs in plain processes, with `aligned` rows next to the points.

        ``FLOOR`` has one process per core, each with its share of the blocks, ``SKLEARN`` one with
        all rows in one block. They hold the points only while they are measured: next to the
        blocks on the cluster and a rechunked copy, they would otherwise be in memory three times.
        """
        processes = self.floor if way == FLOOR else self.machine
        assert processes is not None
        row_chunks = self.row_chunks if way == FLOOR else (sum(self.row_chunks),)
        points = self.dataset.points
        return Way(
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
    idle: IdleState
    init_seconds: float

    @property
    def collections(self) -> list[Any]:
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
        yield Loaded(site, engine.idle_state([*collections.values()]), seconds)


@dataclass
class Parts:
    """Parts of the data, each processed by one task: blocks, or chunks after a rechunk.

    `sizes` are the rows of each part; `queries` are in blocks of their own. `made`, called after
    the first tasks are submitted, waits until all parts are computed and returns the seconds of
    that phase: each task starts as soon as its part is computed.
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
