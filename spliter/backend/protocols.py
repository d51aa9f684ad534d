"""Protocols that a backend implements; the core knows engines only through them.

A backend has two halves that combine freely: a *locator* finds where the blocks of a
collection are, an *executor* runs a function at a location. ``split`` has the locator
open the collections, plans, and passes each partition to the executor::

    locator.open(x, y) ──> Blocks ── .locate() ──> Placement ──> plan() ──> partitions
                              └── .sources(plan) ──> one BlockSource per partition
    executor.capacities(locations)                   executor.submit(fn, (partition,), ...)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np

from spliter._grid import BlockGrid, IntArray
from spliter._pace import Prefetch
from spliter._planner import Location, Placement, PlannedPartition
from spliter._read_ahead import Fetches


@dataclass(frozen=True)
class Movement:
    """Blocks transferred over the network, by reason.

    Parameters
    ----------
    aligned_blocks, aligned_nbytes : int
        Blocks of the second and further collections that were transferred to the blocks of the
        first one when the Split was planned.
    fetched_blocks, fetched_nbytes : int
        Blocks that tasks read from another location because the engine had moved or
        recomputed them there after the Split was planned.

    Examples
    --------
    >>> Movement().blocks
    0
    """

    aligned_blocks: int = 0
    aligned_nbytes: int = 0
    fetched_blocks: int = 0
    fetched_nbytes: int = 0

    def __add__(self, other: Movement) -> Movement:
        """Return the sum of both."""
        return Movement(
            self.aligned_blocks + other.aligned_blocks,
            self.aligned_nbytes + other.aligned_nbytes,
            self.fetched_blocks + other.fetched_blocks,
            self.fetched_nbytes + other.fetched_nbytes,
        )

    @property
    def blocks(self) -> int:
        """Number of blocks moved, for either reason."""
        return self.aligned_blocks + self.fetched_blocks

    @property
    def nbytes(self) -> int:
        """Bytes moved, for either reason."""
        return self.aligned_nbytes + self.fetched_nbytes


class BlockSource(Protocol):
    """References to the blocks of one partition; cheap to pickle."""

    def read(self) -> Iterator[Any]:
        """Yield the blocks in order; tuples of blocks if collections are aligned.

        Raises
        ------
        PartitionNotLocalError
            If this process is not the blocks' location.
        """
        ...

    def materialized(self) -> Any:
        """Return the blocks concatenated (:func:`spliter.backend.concatenate`).

        The first call creates the copy. It is kept at the location, where the engine can
        account for its memory, until the Split is closed or garbage-collected.

        Raises
        ------
        PartitionNotLocalError
            If this process is not the blocks' location.
        InvalidArgumentError
            If blocks of this kind cannot be concatenated.
        """
        ...


@runtime_checkable
class SupportsFetches(Protocol):
    """Optional interface of a :class:`BlockSource`: its blocks can be read before their turn."""

    def fetches(self) -> Fetches | None:
        """Return the reads of its blocks; ``None`` to iterate over :meth:`BlockSource.read`."""
        ...


@runtime_checkable
class SupportsPrefetch(Protocol):
    """Optional interface of opened blocks whose sources offer fetches."""

    prefetch: Prefetch
    """Option of :func:`spliter.split`; set before the sources are requested."""


class Blocks(Protocol):
    """The opened blocks of one or several aligned collections.

    This object holds all references (futures, object references) that keep the blocks alive.
    """

    @property
    def grids(self) -> Sequence[BlockGrid]:
        """The block grid of each collection; the first one is the one being split."""
        ...

    @property
    def executor(self) -> Executor:
        """The engine's own executor for these blocks."""
        ...

    @property
    def stored(self) -> bool:
        """Whether each read of a block reads a file or an object store.

        Schedules then put neighbouring blocks into one partition.
        """
        ...

    def locate(self) -> Placement:
        """Query the engine for the current locations of the first collection's blocks.

        Waits, for a bounded time, for blocks that are still being computed.

        Raises
        ------
        BlockLostError
            If blocks are lost.
        """
        ...

    def sources(self, planned: Sequence[PlannedPartition]) -> Sequence[BlockSource]:
        """Return one source per planned partition; transfers aligned blocks if necessary."""
        ...

    def moved(self) -> Movement:
        """Return what was transferred over the network for these blocks so far."""
        ...

    def has_drifted(self) -> bool:
        """Return whether a task found blocks elsewhere than the last `locate` reported."""
        ...

    def close(self) -> None:
        """Release the blocks. Idempotent."""
        ...


@dataclass(frozen=True)
class ResultBlocks:
    """Metadata of blocks made by tasks.

    Parameters
    ----------
    grid : BlockGrid
        Grid of the new blocks: that of the collection that was split, and one block along each
        further axis of the results. Sizes of frames are those of their rows.
    dtype : dtype or None
        Dtype of arrays; ``None`` for frames.
    output : int or None
        Which element of a task's result is the list of blocks; ``None`` if the result is.
    meta : DataFrame, Series, Index or sparse matrix, or None
        An empty frame or matrix like the blocks; ``None`` for other arrays.
    divisions : sequence or None
        Of frames: smallest labels of the index of each block, and the largest of the last one;
        ``None`` if unknown. From the attribute `divisions` of the opened blocks, if they have it.
    """

    grid: BlockGrid
    dtype: np.dtype[Any] | None
    output: int | None = None
    meta: Any = None
    divisions: Sequence[Any] | None = None


class Locator(Protocol):
    """The half of a backend that finds blocks."""

    def recognises(self, collection: Any) -> bool:
        """Return whether `collection` is of a kind whose blocks this locator can find.

        Must not do any work on the data. A collection of the right type in a wrong
        state (lazy, say) is recognised; `open` then raises the error that explains it.
        """
        ...

    def open(self, collections: Sequence[Any]) -> Blocks:
        """Open one collection, or several aligned ones.

        Raises
        ------
        LazyCollectionError
            If the blocks do not exist.
        UnsupportedCollectionError
            If one of the collections is not of this engine.
        """
        ...


@runtime_checkable
class SupportsExample(Protocol):
    """Optional interface of opened blocks: an example block from metadata, without computing."""

    def example(self) -> Any:
        """Return a small block like those of the collection, on which to try functions.

        Returns
        -------
        block, tuple of block, or None
            A tuple if several collections are aligned; ``None`` if their metadata does not
            describe a block.
        """
        ...


@runtime_checkable
class SupportsPersist(Protocol):
    """Optional interface of a locator whose collections can be lazy: compute them."""

    def persist(self, collections: Sequence[Any]) -> Sequence[Any]:
        """Start to compute the blocks of lazy collections, in one go, without waiting.

        Parameters
        ----------
        collections : sequence of collection
            Collections that are not lazy, or of another kind, are returned unchanged.

        Returns
        -------
        sequence of collection
            In the same order. The engine keeps the computed blocks in memory as long as these
            collections, or their :meth:`Locator.open` results, are referenced.
        """
        ...


@runtime_checkable
class Executor(Protocol):
    """The half of a backend that runs functions at locations."""

    reports_passes: bool
    """Whether tasks report to the program what they have measured (``spliter.metrics``), because a
    location has several processes. Otherwise one task per location collects it."""

    def capacities(self, locations: Collection[Location]) -> Mapping[Location, int]:
        """Return how many tasks each location runs at once (cores, threads)."""
        ...

    def submit(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        location: Location | None = None,
    ) -> Any:
        """Run ``fn(*args, **kwargs)``, at `location` if one is given.

        Partitions among the arguments arrive as partitions that can be iterated there;
        futures of this engine arrive as their results.

        Returns
        -------
        future
            The engine's own kind of future.
        """
        ...

    def submit_team(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        location: Location,
        threads: int,
    ) -> Any:
        """Run ``fn(cores, *args)`` at a location, in one task that may use several threads.

        `cores` is a function that returns how many of the `threads` may run at the moment, and 0
        once the task has been cancelled.

        Returns
        -------
        future
            The engine's own kind of future.
        """
        ...

    def gather(self, futures: Sequence[Any]) -> list[Any]:
        """Wait for futures of this executor and return their results, in order.

        Uses as few round trips as possible. The error of a task is raised unchanged.
        """
        ...

    def location_of(self, future: Any) -> Location | None:
        """Return the location of `future`'s result, if this executor pinned it."""
        ...

    def free_memory(self, locations: Collection[Location]) -> Mapping[Location, int | None]:
        """Return the free bytes of memory at each location, ``None`` if unknown."""
        ...

    def assemble(
        self,
        results: Sequence[tuple[IntArray, Any]],
        made: ResultBlocks,
    ) -> Any:
        """Return a collection of this engine's own kind, blocked like the one that was split.

        Parameters
        ----------
        results : sequence of (ndarray of int64, future)
            For each partition the positions of its blocks, and a future of the new
            blocks in that order. Together the positions cover all blocks.
        made : ResultBlocks
            Metadata of the new blocks.

        Returns
        -------
        collection
            Of the type that the engine's users expect.
        """
        ...

    def blocking_call_allowed(self) -> bool:
        """Return whether this thread may wait for the engine; false where its event loop waits."""
        ...


@runtime_checkable
class SupportsSteal(Protocol):
    """Optional interface of an executor whose engine can choose the location of a task."""

    def submit_among(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        locations: Sequence[Location],
    ) -> Any:
        """Run ``fn(*args, **kwargs)`` at one of several locations.

        The engine chooses, and may move the task to another of them until it starts.

        Returns
        -------
        future
            The engine's own kind of future; :meth:`Executor.location_of` returns ``None`` for it.
        """
        ...


@runtime_checkable
class SupportsClose(Protocol):
    """Optional interface of an executor whose client can be closed."""

    @property
    def is_closed(self) -> bool:
        """Whether the client that runs the tasks was closed; a local check, no request."""
        ...


class GraphScheduler(Protocol):
    """Runs task graphs of an engine at the granularity of partitions: see ``partitioned``."""

    def __call__(self, graph: Any, keys: Any, **options: Any) -> Any:
        """Return the values of `keys`, nested as they are; called by the engine's collections."""
        ...

    def persist(self, collections: Any, **options: Any) -> Any:
        """Compute collections and keep their blocks in the engine's memory."""
        ...

    def explain(self, *collections: Any) -> Any:
        """Return a description, with a readable ``repr``, of what would run; runs nothing."""
        ...

    def __enter__(self) -> Self:
        """Run all collections of the engine so until the exit; may be nested."""
        ...

    def __exit__(self, *error: object) -> None:
        """Restore what was in force before."""
        ...


@dataclass(frozen=True)
class Declaration:
    """A backend's metadata, available without importing it.

    Parameters
    ----------
    name : str
        The name for ``split(..., backend=name)``, and of the module ``spliter_backends.<name>``,
        whose ``BACKEND`` is the :class:`Backend`.
    serves : frozenset of str
        Packages that define the collections and futures it may recognise.
    engine : str or None
        Distribution whose version ``backends()`` reports.
    extra : str or None
        Extras of SplIter, separated by commas, that install its requirements.
    keywords : frozenset of str
        Keywords that the engine's decorators pass to a task decorated below them.
    graphs : bool
        Whether ``partitioned()`` without arguments uses this backend.
    """

    name: str
    serves: frozenset[str]
    engine: str | None = None
    extra: str | None = None
    keywords: frozenset[str] = frozenset()
    graphs: bool = False


@dataclass(frozen=True)
class Backend:
    """A loaded backend: its locator and its executors.

    Parameters
    ----------
    name : str
        The name for ``split(..., backend=name)``.
    locator : Locator or None
        Finds blocks of this engine's collections; ``None`` if it has none of its own.
    executor_of_future : callable
        Takes a future and returns this engine's executor for it, ``None`` if the
        future is not of this engine. Used by ``reduce`` and ``gather``.
    executor : callable or None
        Makes an executor for blocks found by *another* backend's locator, for engines
        that run tasks over other engines' data.
    partitioned : callable or None
        Takes a client of the engine (or ``None``: the current one) and the partitions per location
        (or ``None``), and returns the scheduler of :func:`spliter.partitioned`. Raises
        ``InvalidArgumentError`` for anything that is not a client.
    """

    name: str
    locator: Locator | None
    executor_of_future: Callable[[Any], Executor | None]
    executor: Callable[[Blocks], Executor] | None = None
    partitioned: Callable[[Any, int | None], GraphScheduler] | None = None
