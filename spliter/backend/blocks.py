"""The blocks of a Split: where they are, and what a partition takes of them to its location."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from spliter._errors import PartitionNotLocalError
from spliter._grid import BlockGrid
from spliter._pace import Following, Pace, Prefetch
from spliter._planner import Placement, PlannedPartition
from spliter._read_ahead import Fetches, ReadAhead
from spliter.backend.executor import Executor

ValueT = TypeVar("ValueT")


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


class MovementCounter:
    """Thread-safe count of the blocks moved for a Split, and whether its plan is outdated.

    Examples
    --------
    >>> counter = MovementCounter()
    >>> counter.add(Movement(fetched_blocks=2, fetched_nbytes=16), drifted=True)
    >>> counter.movement.nbytes, counter.drifted
    (16, True)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.movement: Movement = Movement()
        self.drifted: bool = False

    def add(self, more: Movement = Movement(), *, drifted: bool = False) -> None:
        """Add blocks moved since the last call, and whether a task found blocks elsewhere."""
        with self._lock:
            self.movement += more
            self.drifted |= drifted


class BlockSource(ABC):
    """References to the blocks of one partition; cheap to pickle."""

    @abstractmethod
    def read(self) -> Iterator[Any]:
        """Yield the blocks in order; tuples of blocks if collections are aligned.

        Raises
        ------
        PartitionNotLocalError
            If this process is not the blocks' location: see :func:`not_local_error`.
        """

    @abstractmethod
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

    def fetches(self) -> Fetches | None:
        """Return the reads of the blocks, to be made before their turn; by default None."""
        return None


def not_local_error(where: str) -> PartitionNotLocalError:
    """Return the error for reading blocks in a process that does not have them.

    Parameters
    ----------
    where : str
        Where they are: ``"at a node"``.
    """
    return PartitionNotLocalError(
        f"this partition's blocks are {where}, not in this process; pass it to a function "
        "decorated with spliter.task, or call partition.submit(fn)"
    )


class RemoteSource(BlockSource):
    """Source of a partition away from its blocks, which cannot be read.

    Engines derive what the program holds of a partition, to send it to their tasks. It pickles as a
    plain `RemoteSource`, or as what tasks read.

    Parameters
    ----------
    where : str
        Where the blocks are, for the error: ``"at a node"``.
    """

    def __init__(self, where: str) -> None:
        self.where = where

    def read(self) -> Any:
        """Raise `PartitionNotLocalError`."""
        raise not_local_error(self.where)

    def materialized(self) -> Any:
        """Raise `PartitionNotLocalError`."""
        raise not_local_error(self.where)

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteSource, (self.where,)


def read_ahead(
    source: BlockSource,
    split: str = "",
    pace: Pace | None = None,
    following: Following | None = None,
) -> ReadAhead | None:
    """Return a :class:`ReadAhead` of a source; ``None`` if it does not offer fetches."""
    fetches = source.fetches()
    return None if fetches is None else ReadAhead(fetches, split, pace, following)


def blocks_of(source: BlockSource) -> Iterator[Any]:
    """Return an iterator over the blocks of a source, which reads ahead if the source offers it."""
    return read_ahead(source) or source.read()


def some_blocks(source: BlockSource, numbers: Sequence[int]) -> Iterator[Any]:
    """Return an iterator over some blocks of a source, by their ascending numbers in it.

    Other blocks are not read, if the source offers fetches.
    """
    fetches = source.fetches()
    if fetches is not None:
        return ReadAhead(fetches.only(numbers), "", None, None)
    chosen = set(numbers)
    return (block for number, block in enumerate(source.read()) if number in chosen)


class Blocks(ABC):
    """The opened blocks of one or several aligned collections.

    Holds all references (futures, object references) that keep the blocks alive. By default nothing
    moves and nothing needs to be released.

    Parameters
    ----------
    grids : sequence of BlockGrid
        Grid of each collection; the first one is that of the collection being split.
    executor : Executor
        The engine's own, for tasks over these blocks.

    Attributes
    ----------
    counter : MovementCounter
        Counts moved blocks. If the engine moves blocks by itself, :meth:`locate` sets
        ``counter.drifted`` to ``False`` before it queries their locations.
    stored : bool
        Whether each read of a block reads a file or an object store; ``False`` by default.
        Schedules then put neighbouring blocks into one partition.
    prefetch : "auto", False or int
        How many blocks loops read ahead, if the sources offer fetches; set by ``split``, before it
        calls :meth:`sources`.
    spread_advice : str
        A sentence: how to spread blocks evenly over the locations with this engine.
    replicate_advice : str
        How to copy blocks to several locations, after a comma: the end of a sentence.
    """

    stored: bool = False
    prefetch: Prefetch = "auto"
    spread_advice: str = ""
    replicate_advice: str = ""

    def __init__(self, grids: Sequence[BlockGrid], executor: Executor) -> None:
        self.grids: tuple[BlockGrid, ...] = tuple(grids)
        self.executor = executor
        self.counter: MovementCounter = MovementCounter()

    @abstractmethod
    def locate(self) -> Placement:
        """Query the engine for the current locations of the first collection's blocks.

        Waits, for a bounded time, for blocks that are still being computed.

        Raises
        ------
        BlockLostError
            If blocks are lost.
        """

    @abstractmethod
    def sources(self, planned: Sequence[PlannedPartition]) -> Sequence[BlockSource]:
        """Return one source per planned partition; transfers aligned blocks if necessary."""

    @property
    def divisions(self) -> Sequence[Any] | None:
        """Of frames: smallest labels of the index of each block, and the largest of the last."""
        return None

    @property
    def may_have_columns(self) -> bool:
        """Whether blocks may be frames, so that names of columns are compared."""
        return not self.stored

    def example(self) -> Any:
        """Return a small block like those of the collection, without computing, to try functions.

        Returns
        -------
        block, tuple of block, or None
            A tuple if several collections are aligned; ``None``, the default, if their metadata
            does not describe a block.
        """
        return None

    def moved(self) -> Movement:
        """Return what was transferred over the network for these blocks so far."""
        return self.counter.movement

    def has_drifted(self) -> bool:
        """Return whether a task found blocks elsewhere than the last `locate` reported."""
        return self.counter.drifted

    def close(self) -> None:  # noqa: B027 -- there may be nothing to release
        """Release the blocks. Idempotent."""


class CachedValue(Generic[ValueT]):
    """A value computed by the first thread that needs it, while the others wait.

    For :meth:`BlockSource.materialized`. If the computation raises, the next thread tries again.

    Examples
    --------
    >>> one = CachedValue()
    >>> one.get(lambda: [1, 2]) is one.get(lambda: [3])
    True
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: tuple[ValueT] | None = None

    def get(self, make: Callable[[], ValueT]) -> ValueT:
        """Return the value; call `make` if there is none yet."""
        with self._lock:
            if self._made is None:
                self._made = (make(),)
            return self._made[0]
