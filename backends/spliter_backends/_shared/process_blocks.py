"""Blocks of a Split in this process, and the references to them in its partitions.

The opened collections of a Split are kept in a :class:`CollectionStore`. Partitions refer to it;
pickled, they contain its token and no data.
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
    Blocks,
    BlockSource,
    CachedValue,
    Executor,
    Fetches,
    IntArray,
    Placement,
    PlannedPartition,
    Prefetch,
    blocks_of,
    concatenate,
)
from spliter_backends._shared.readable import ReadableCollection, fetches_of, in_turn


@dataclass(eq=False)
class CollectionStore:
    """Opened collections of one Split, found by token within the same process."""

    collections: tuple[ReadableCollection, ...]
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    materialized: dict[bytes, CachedValue[Any]] = field(default_factory=dict)
    """Concatenated blocks by the positions of the blocks; shared with submitted tasks."""
    prefetch: Prefetch = "auto"


# Weak: a pickled partition must not keep the blocks alive.
_stores: weakref.WeakValueDictionary[str, CollectionStore] = weakref.WeakValueDictionary()


@dataclass(frozen=True, eq=False)
class LocalSource(BlockSource):
    """The blocks of one partition, in this process."""

    store: CollectionStore
    positions: IntArray

    def read(self) -> Iterator[Any]:
        """Return an iterator over the blocks, or tuples of aligned ones."""
        if not self.store.collections:
            raise SplitClosedError("the Split of this partition was closed; split again")
        return _read(self.store.collections, self.positions, self.store.prefetch)

    def fetches(self) -> Fetches | None:
        """Return the reads of the blocks; None if they are in memory."""
        if not self.store.collections:
            return None
        return fetches_of(self.store.collections, self.positions, self.store.prefetch)

    def materialized(self) -> Any:
        """Return the concatenated blocks, cached until the Split is closed."""
        # setdefault is atomic, so two threads get the same object.
        once = self.store.materialized.setdefault(self.positions.tobytes(), CachedValue())
        blocks, collections = blocks_of(self), self.store.collections
        join = collections[0].join if len(collections) == 1 else concatenate
        return once.get(lambda: join(blocks))

    def keep_open(self) -> LocalSource:
        """Return a source of the same blocks that stays valid when the Split is closed."""
        return LocalSource(dataclasses.replace(self.store), self.positions)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the token and the positions."""
        return _find, (self.store.token, self.positions, os.getpid())


@dataclass(frozen=True, eq=False)
class LostSource(BlockSource):
    """Source of a partition that was unpickled in a process without its blocks."""

    token: str
    positions: IntArray
    process: int

    def read(self) -> Iterator[Any]:
        """Raise `PartitionNotLocalError`."""
        here = os.getpid()
        where = (
            "of a deleted Split; keep a reference to the Split"
            if here == self.process
            else (
                f"of process {self.process}, not of this process ({here}); iterate over it there, "
                "pass a task's result instead, or split the data in this process"
            )
        )
        raise PartitionNotLocalError(f"the partition's blocks are in memory {where}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the same token: the next process may have the blocks."""
        return _find, (self.token, self.positions, self.process)


def _find(token: str, positions: IntArray, process: int) -> LocalSource | LostSource:
    """Unpickle a source: a reference to the store if it is in this process."""
    store = _stores.get(token)
    return LostSource(token, positions, process) if store is None else LocalSource(store, positions)


def _read(
    collections: Sequence[ReadableCollection], positions: IntArray, prefetch: Prefetch
) -> Iterator[Any]:
    first, *aligned = collections
    turns = in_turn(first, positions, prefetch)
    if not aligned:
        return map(first.read, turns)  # a generator takes twice as long for each block
    rows = first.grid.rows(positions)
    others = [in_turn(other, rows, prefetch) for other in aligned]
    return (
        (first.read(position), *(other.read(at) for other, at in zip(aligned, ats, strict=True)))
        for position, *ats in zip(turns, *others, strict=True)
    )


class LocalBlocks(Blocks):
    """Blocks of aligned collections in this process."""

    def __init__(
        self, collections: Sequence[ReadableCollection], location: Location, executor: Executor
    ) -> None:
        super().__init__([opened.grid for opened in collections], executor)
        self.stored = collections[0].stored
        self._location = location
        self._nbytes = collections[0].nbytes
        self._store = CollectionStore(tuple(collections))
        _stores[self._store.token] = self._store

    def locate(self) -> Placement:
        """Return the placement: every block at the one location."""
        nblocks = len(self._nbytes)
        return Placement(
            (self._location,) if nblocks else (),
            np.arange(nblocks + 1, dtype=np.int64),
            np.zeros(nblocks, dtype=np.int64),
            self._nbytes,
        )

    def sources(self, planned: Sequence[PlannedPartition]) -> Sequence[LocalSource]:
        """Return one source per planned partition, in the same order."""
        self._store.prefetch = self.prefetch
        return [LocalSource(self._store, part.positions) for part in planned]

    def example(self) -> Any:
        """Return the first row of the first block, or of each aligned one; None without blocks."""
        if not len(self._nbytes) or not self._store.collections:
            return None
        block = next(_read(self._store.collections, np.zeros(1, dtype=np.int64), False))
        return tuple(map(_first_row, block)) if isinstance(block, tuple) else _first_row(block)

    def close(self) -> None:
        """Release the blocks; submitted tasks keep theirs."""
        self._store.collections = ()
        self._store.materialized = {}  # running tasks share the old dict, and release it


def _first_row(block: Any) -> Any:
    return block.iloc[:1] if hasattr(block, "iloc") else block[:1]


def at_location(argument: Any) -> Any:
    """Make an argument of a task usable in this process: a partition becomes iterable."""
    if not isinstance(argument, Partition):
        return argument
    if argument.executor is None:
        return argument  # forwarded by a task at the location
    source = argument.source
    return argument.at_location(
        # A submitted task reads its blocks even if the Split is closed before it runs.
        source.keep_open() if isinstance(source, LocalSource) else source,
        materialize=argument.begin_pass(),
    )
