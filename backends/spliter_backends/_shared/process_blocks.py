"""The blocks of a Split in this process, and its partitions' references to them.

The opened collections of a Split are kept in a :class:`Store`; partitions refer to it, and
when pickled carry only its token, never data.
"""

from __future__ import annotations

import dataclasses
import os
import uuid
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spliter import Location, Partition, PartitionNotLocalError, SplitClosedError
from spliter.backend import (
    BlocksBase,
    Executor,
    IntArray,
    Once,
    Placement,
    PlannedPartition,
    concatenate,
)
from spliter_backends._shared.opened import Opened


@dataclass(eq=False)
class Store:
    """The opened collections of one Split, found again by token in the same process."""

    collections: tuple[Opened, ...]
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    materialized: dict[bytes, Once[Any]] = field(default_factory=dict)
    """By the positions of a partition's blocks. Tasks under way share it with the Split."""


# Weak: a pickled partition must not keep the blocks alive.
_stores: weakref.WeakValueDictionary[str, Store] = weakref.WeakValueDictionary()


@dataclass(frozen=True, eq=False)
class LocalSource:
    """The blocks of one partition, in this process."""

    store: Store
    positions: IntArray

    def read(self) -> Iterator[Any]:
        """Return an iterator over the blocks, or tuples of aligned blocks.

        Returns
        -------
        iterator of block

        Raises
        ------
        SplitClosedError
            If the Split let go of the blocks.
        """
        if not self.store.collections:
            raise SplitClosedError("the Split of this partition was closed; split again")
        return _read(self.store.collections, self.positions)

    def materialized(self) -> Any:
        """Return the blocks as one, kept until the Split is closed.

        Returns
        -------
        block, or tuple of block

        Raises
        ------
        SplitClosedError
            If the Split let go of the blocks.
        """
        # One operation, so that two threads get the same one.
        once = self.store.materialized.setdefault(self.positions.tobytes(), Once())
        blocks, collections = self.read(), self.store.collections
        join = collections[0].join if len(collections) == 1 else concatenate
        return once.get(lambda: join(blocks))

    def pinned(self) -> LocalSource:
        """Return a source of the same blocks that closing the Split does not affect.

        Returns
        -------
        LocalSource
            For a task that has been submitted.
        """
        return LocalSource(dataclasses.replace(self.store), self.positions)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a token."""
        return _find, (self.store.token, self.positions, os.getpid())


@dataclass(frozen=True, eq=False)
class AwaySource:
    """A partition's source, unpickled where its blocks are not."""

    token: str
    positions: IntArray
    process: int

    def read(self) -> Iterator[Any]:
        """Refuse.

        Raises
        ------
        PartitionNotLocalError
            Always.
        """
        here = os.getpid()
        gone = (
            "whose Split is gone; keep the Split"
            if here == self.process
            else (
                f"of process {self.process}, and this is process {here}; iterate the partition "
                "there, pass the task's result instead, or split the data in this process"
            )
        )
        raise PartitionNotLocalError(f"the partition's blocks are in memory {gone}")

    def materialized(self) -> Any:
        """Refuse, as :meth:`read`."""
        return self.read()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the same token: the blocks may be where it goes next."""
        return _find, (self.token, self.positions, self.process)


def _find(token: str, positions: IntArray, process: int) -> LocalSource | AwaySource:
    """Unpickle a source: by reference if the blocks are here."""
    store = _stores.get(token)
    return AwaySource(token, positions, process) if store is None else LocalSource(store, positions)


def _read(collections: Sequence[Opened], positions: IntArray) -> Iterator[Any]:
    first, *aligned = collections
    if not aligned:
        yield from map(first.read, positions.tolist())
        return
    rows = first.grid.rows(positions)
    for position, row in zip(positions.tolist(), rows.tolist(), strict=True):
        yield (first.read(position), *(other.read(row) for other in aligned))


class LocalBlocks(BlocksBase[Executor]):
    """Aligned collections in this process.

    Parameters
    ----------
    collections : sequence of Opened
        The first one is the one being split.
    location : Location
        What this process is called.
    executor : Executor
        What runs tasks over the blocks.
    """

    def __init__(
        self, collections: Sequence[Opened], location: Location, executor: Executor
    ) -> None:
        super().__init__([opened.grid for opened in collections], executor)
        self._location = location
        self._nbytes = collections[0].nbytes
        self._store = Store(tuple(collections))
        _stores[self._store.token] = self._store

    def locate(self) -> Placement:
        """Place every block at the one location.

        Returns
        -------
        Placement
            It never changes.
        """
        nblocks = len(self._nbytes)
        return Placement(
            (self._location,) if nblocks else (),
            np.arange(nblocks + 1, dtype=np.int64),
            np.zeros(nblocks, dtype=np.int64),
            self._nbytes,
        )

    def sources(self, planned: Sequence[PlannedPartition]) -> Sequence[LocalSource]:
        """Return one source per planned partition.

        Parameters
        ----------
        planned : sequence of PlannedPartition
            What the planner made.

        Returns
        -------
        sequence of LocalSource
            In the same order.
        """
        return [LocalSource(self._store, part.positions) for part in planned]

    def example(self) -> Any:
        """Return the first row of the first block, or of each of aligned ones.

        Returns
        -------
        block or tuple of block, or None
            ``None`` if there are no blocks.
        """
        if not len(self._nbytes) or not self._store.collections:
            return None
        block = next(_read(self._store.collections, np.zeros(1, dtype=np.int64)))
        return tuple(map(_first_row, block)) if isinstance(block, tuple) else _first_row(block)

    def close(self) -> None:
        """Let go of the blocks; tasks that have been submitted still have theirs."""
        self._store.collections = ()
        self._store.materialized = {}  # tasks under way share the old one, and drop it


def _first_row(block: Any) -> Any:
    return block.iloc[:1] if hasattr(block, "iloc") else block[:1]


def at_location(argument: Any) -> Any:
    """Return an argument of a task as a task in this process gets it.

    Parameters
    ----------
    argument : object
        Anything.

    Returns
    -------
    object
        A partition becomes iterable; anything else is returned as it is.
    """
    if not isinstance(argument, Partition):
        return argument
    if argument.executor is None:
        return argument  # passed on by a task at the location
    source = argument.source
    return argument.at_location(
        # Once submitted a task reads its blocks even if the Split is closed before it runs.
        source.pinned() if isinstance(source, LocalSource) else source,
        as_one=argument.begin_pass(),
    )
