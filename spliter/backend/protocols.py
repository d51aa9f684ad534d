"""What a backend has to provide, as typed Protocols. The core knows engines only by these.

A backend has two halves that pair freely: a *locator* answers where the blocks of a
collection are, an *executor* runs a function at a location. ``split`` asks the locator
to open the collections, plans, and hands each partition to the executor::

    locator.open(x, y) ──> Blocks ── .locate() ──> Placement ──> plan() ──> partitions
                              └── .sources(plan) ──> one BlockSource per partition
    executor.capacities(locations)                   executor.submit(fn, (partition,), ...)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from spliter._grid import BlockGrid, IntArray
from spliter._planner import Location, Placement, PlannedPartition


@dataclass(frozen=True)
class Movement:
    """Blocks that had to cross the network, by reason.

    Parameters
    ----------
    aligned_blocks, aligned_nbytes : int
        Blocks of the second and further collections that were brought to where the
        blocks of the first one are, when the Split was made (or made again).
    fetched_blocks, fetched_nbytes : int
        Blocks that tasks read from another location because the engine had moved them
        away (or made them again elsewhere) after the Split was made.

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
        """Return both together."""
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
    """The blocks of one partition, by reference; cheap to pickle."""

    def read(self) -> Iterator[Any]:
        """Yield the blocks in order; a tuple of aligned blocks where there are several.

        Raises
        ------
        PartitionNotLocalError
            If this process is not the blocks' location.
        """
        ...

    def materialized(self) -> Any:
        """Return the blocks as one (:func:`spliter.backend.concatenate`).

        Made on the first call and kept at the location, where the engine can account for
        its memory, until the Split is closed or gone.

        Raises
        ------
        PartitionNotLocalError
            If this process is not the blocks' location.
        InvalidArgumentError
            If blocks of this kind cannot be put into one.
        """
        ...


class Blocks(Protocol):
    """The blocks of one or several aligned collections, opened by a locator.

    Whatever keeps the blocks alive (futures, object references) is held by this object.
    """

    @property
    def grids(self) -> Sequence[BlockGrid]:
        """The block grid of each collection; the first one is the one being split."""
        ...

    @property
    def executor(self) -> Executor:
        """The engine's own executor for these blocks."""
        ...

    def locate(self) -> Placement:
        """Ask the engine where the blocks of the first collection are now.

        Waits, for a bounded time, for blocks that are still being made.

        Raises
        ------
        BlockLostError
            If blocks are gone for good.
        """
        ...

    def sources(self, planned: Sequence[PlannedPartition]) -> Sequence[BlockSource]:
        """Return one source per planned partition, bringing aligned blocks along."""
        ...

    def moved(self) -> Movement:
        """Return what has crossed the network on behalf of these blocks so far."""
        ...

    def has_drifted(self) -> bool:
        """Whether a task has found blocks away from where the last `locate` saw them."""
        ...

    def close(self) -> None:
        """Let go of the blocks. Idempotent."""
        ...


@dataclass(frozen=True)
class BlocksMade:
    """Metadata of blocks that tasks have made.

    Parameters
    ----------
    rows : tuple of int
        Rows of each block; ``-1`` where not known.
    trailing_shape : tuple of int
        Extent along the further axes.
    dtype : dtype or None
        Of the elements; ``None`` for frames.
    output : int or None
        Which element of a task's result is the list of blocks; ``None`` if the result is.
    meta : DataFrame, Series or Index, or None
        An empty one like the blocks, if they are frames.
    """

    rows: tuple[int, ...]
    trailing_shape: tuple[int, ...]
    dtype: np.dtype[Any] | None
    output: int | None = None
    meta: Any = None


class Locator(Protocol):
    """The half of a backend that knows where blocks are."""

    def recognises(self, collection: Any) -> bool:
        """Whether `collection` is of a kind whose blocks this locator can find.

        Must not do any work on the data. A collection of the right type in a wrong
        state (lazy, say) is recognised; `open` then says what is wrong with it.
        """
        ...

    def open(self, collections: Sequence[Any]) -> Blocks:
        """Open one collection, or several whose blocks go together.

        Raises
        ------
        LazyCollectionError
            If the blocks do not exist.
        UnsupportedCollectionError
            If one of the collections is not of this engine.
        """
        ...


@runtime_checkable
class GivesExamples(Protocol):
    """What opened blocks may have besides: an example of a block, without asking for one."""

    def example(self) -> Any:
        """Return a small block like those of the collection, to call functions on.

        Returns
        -------
        block, tuple of block, or None
            A tuple where several collections are aligned; ``None`` if their metadata does not
            say what a block is.
        """
        ...


@runtime_checkable
class PersistsCollections(Protocol):
    """What a locator may have besides: collections that can be lazy, and a way to compute them."""

    def persist(self, collections: Sequence[Any]) -> Sequence[Any]:
        """Have the blocks of lazy collections computed, all together, without waiting for them.

        Parameters
        ----------
        collections : sequence of collection
            Those that do not need it, or are of another kind, are returned as they are.

        Returns
        -------
        sequence of collection
            In the same order. The engine keeps the computed blocks in memory as long as these
            collections, or what :meth:`Locator.open` returns for them, are referenced.
        """
        ...


@runtime_checkable
class Executor(Protocol):
    """The half of a backend that runs functions at locations."""

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

    def gather(self, futures: Sequence[Any]) -> list[Any]:
        """Wait for futures of this executor and return their results, in order.

        In as few round trips as the engine needs. The error of a task is raised as it is.
        """
        ...

    def location_of(self, future: Any) -> Location | None:
        """Return where the result of `future` is, if this executor pinned it."""
        ...

    def free_memory(self, locations: Collection[Location]) -> Mapping[Location, int | None]:
        """Return how many bytes each location has to spare, ``None`` where nobody knows."""
        ...

    def assemble(
        self,
        results: Sequence[tuple[IntArray, Any]],
        made: BlocksMade,
    ) -> Any:
        """Return a collection of this engine's own kind, blocked like the one that was split.

        Parameters
        ----------
        results : sequence of (ndarray of int64, future)
            For each partition the positions of its blocks, and a future of the new
            blocks in that order. Together the positions cover all blocks.
        made : BlocksMade
            What the new blocks are.

        Returns
        -------
        collection
            Something that the engine's users would expect.
        """
        ...

    def blocking_call_allowed(self) -> bool:
        """Whether this thread may wait for the engine (not its event loop's own)."""
        ...


@runtime_checkable
class CanClose(Protocol):
    """What an executor may have besides: it knows that its engine cannot be used any more."""

    @property
    def is_closed(self) -> bool:
        """Whether the client was closed that runs its tasks. Asks nobody."""
        ...


@dataclass(frozen=True)
class Declaration:
    """What is known of a backend without importing it.

    Parameters
    ----------
    name : str
        The name for ``split(..., backend=name)``, and of the module ``spliter_backends.<name>``,
        whose ``BACKEND`` is the :class:`Backend`.
    serves : frozenset of str
        Packages of the collections and futures that it may recognise.
    engine : str or None
        Distribution whose version is worth showing.
    extra : str or None
        Extras of SplIter, separated by commas, that install what it needs.
    keywords : frozenset of str
        Keywords by which decorators of the engine pass something to the task below them.
    """

    name: str
    serves: frozenset[str]
    engine: str | None = None
    extra: str | None = None
    keywords: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Backend:
    """One engine, as the registry sees it.

    Parameters
    ----------
    name : str
        The name for ``split(..., backend=name)``.
    locator : Locator or None
        Finds blocks of this engine's collections, if it has any of its own.
    executor_of_future : callable
        Takes a future and returns this engine's executor for it, ``None`` if the
        future is not of this engine. ``reduce`` finds its engine by it.
    executor : callable or None
        Makes an executor for blocks found by *another* backend's locator, for engines
        that run tasks over foreign data.
    """

    name: str
    locator: Locator | None
    executor_of_future: Callable[[Any], Executor | None]
    executor: Callable[[Blocks], Executor] | None = None
