"""The opened blocks of a Split: where they are, and what was moved for it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spliter._planning.grid import BlockGrid
from spliter._planning.planner import Placement, PlannedPartition
from spliter._reading.pace import Prefetch
from spliter._reading.source import BlockSource
from spliter.backend.executor import Executor


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
