"""Source of a partition at its node: references sent with the task, and read in batches there.

A task gets the references inside its arguments, not as arguments of their own: Ray would fetch all
of them into the node's memory before the task starts, and keep them until it ends. Read batch by
batch, a partition may be larger than the node's object store. Blocks that are only in their owner's
memory are fetched from the owner, a batch at a time. If some are on disk or at another node, Ray
brings the next batch to this node's memory, or its first blocks, while the task works on this one::

    task    get batch 0 | work on batch 0 | get | work on batch 1 | get | ...
    Ray                   bring batch 1           bring batch 2
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import ray
from ray import ObjectRef

from spliter import BlockTimeoutError, Location
from spliter.backend import (
    WINDOW_NBYTES,
    BlockSource,
    Pass,
    Prefetch,
    RemoteSource,
    check_rows,
    concatenate,
    take_passes,
)
from spliter_backends.ray.cluster import fetch_objects, query_locations, wait_created

BATCH_BLOCKS: Final = 64
"""Maximum number of blocks that a task fetches from the object store at once."""

BATCH_NBYTES: Final = 32 * 2**20
"""Approximate bytes of a batch, which stays in memory until its last block has been used."""


@dataclass(frozen=True)
class PartitionReport:
    """Report of a task to the main program, about one of its partitions.

    drifted: Whether the task ran at another node than planned.
    blocks, nbytes: Blocks and bytes fetched from other nodes.
    made: Whether the task has concatenated the blocks, for reuse by later tasks.
    """

    drifted: bool
    blocks: int
    nbytes: int
    made: bool
    passes: Sequence[Pass]


@dataclass(frozen=True, eq=False)
class PartitionObjects:
    """The objects of a partition, as they are sent with its tasks.

    members: The blocks of each collection.
    away: Numbers of blocks that were at another node when the Split was made, because no task can
        run where they are.
    has_slow: Whether blocks were on disk or at another node.
    prefetch ("auto", False or int): How many blocks to read ahead then.
    timeout: Maximum wait for blocks, in seconds.
    one: The concatenated blocks, if they exist.
    """

    location: str
    members: tuple[tuple[ObjectRef, ...], ...]
    nbytes: tuple[int, ...]
    indexes: tuple[tuple[int, ...], ...]
    away: frozenset[int]
    has_slow: bool
    prefetch: Prefetch
    timeout: float
    one: ObjectRef | None = None

    def references(self, batch: range) -> list[ObjectRef]:
        """Return the objects of some blocks, given by their numbers, of each collection."""
        return [member[at] for member in self.members for at in batch]


def remote_source(location: str) -> RemoteSource:
    """Return the source of a partition away from its node."""
    return RemoteSource(f"in Ray's object store at node {location[:8]}")


class NodeSource(BlockSource):
    """Source of a partition at its node."""

    def __init__(self, objects: PartitionObjects) -> None:
        self._objects = objects
        self._here = ""
        self._located: set[ObjectRef] = set()
        self._fetched: dict[ObjectRef, int] = {}
        self._made: tuple[Any] | None = None

    def open_at(self, node: str) -> None:
        """Make the source readable; called when the task has started at this node."""
        self._here = node

    @property
    def made(self) -> Any:
        """Concatenated blocks if this task has made them from several, else None."""
        return self._made[0] if self._made and len(self._objects.indexes) > 1 else None

    def report(self, split: str) -> PartitionReport:
        """Return the report for the main program, after the task; `split` is the Split's token."""
        nbytes = sum(self._fetched.values())
        drifted = self._here != self._objects.location
        passes = take_passes(split, Location(self._here))
        return PartitionReport(drifted, len(self._fetched), nbytes, self.made is not None, passes)

    def read(self) -> Iterator[Any]:
        """Return an iterator over the blocks, or tuples of aligned blocks, inside of a task."""
        self._check_open()
        return self._read()

    def _check_open(self) -> None:
        if not self._here:
            remote_source(self._objects.location).read()

    def _read(self) -> Iterator[Any]:
        objects = self._objects
        batches = list(self._batches())
        for batch, following in zip(batches, [*batches[1:], range(0)], strict=True):
            found = iter(self._get(batch))
            columns = [[next(found) for _ in batch] for _ in objects.members]
            del found
            if following and self._reads_ahead():
                self._bring(self._ahead_in(following))
            for number, at in enumerate(batch):
                blocks = tuple(column[number] for column in columns)
                check_rows(blocks, objects.indexes[at])
                yield blocks[0] if len(blocks) == 1 else blocks

    def _reads_ahead(self) -> bool:
        objects = self._objects
        is_slow = objects.has_slow or self._here != objects.location
        return is_slow and objects.prefetch is not False

    def _ahead_in(self, batch: range) -> range:
        """Return the first blocks of a batch, as many as may be brought before its turn."""
        prefetch = self._objects.prefetch
        # Ray runs each task in a process of its own, one per core or fewer.
        window = WINDOW_NBYTES // (os.cpu_count() or 1)
        totals = itertools.accumulate(self._objects.nbytes[batch.start : batch.stop])
        fitting = max(1, sum(total <= window for total in totals))
        return batch[: fitting if prefetch == "auto" else min(fitting, int(prefetch))]

    def _batches(self) -> Iterator[range]:
        """Divide the numbers of the blocks into batches."""
        nbytes = self._objects.nbytes
        start = total = 0
        for number, size in enumerate(nbytes):
            if number > start and (number - start >= BATCH_BLOCKS or total + size > BATCH_NBYTES):
                yield range(start, number)
                start, total = number, 0
            total += size
        if start < len(nbytes):
            yield range(start, len(nbytes))

    def _get(self, batch: range) -> list[Any]:
        objects = self._objects
        references = objects.references(batch)
        self._count(references, batch)
        named = [objects.indexes[at] for at in batch] * len(objects.members)
        return fetch_objects(references, named, objects.timeout)

    def _bring(self, batch: range) -> None:
        """Have Ray bring blocks to the memory of this node, without waiting for them.

        Gets of single blocks in threads take up to twice as long as one get per batch (Ray 2.60).
        """
        references = list(dict.fromkeys(self._objects.references(batch)))
        created, _ = ray.wait(references, num_returns=len(references), timeout=0, fetch_local=False)
        with contextlib.suppress(BlockTimeoutError):  # raised when the batch's turn has come
            self._count(created, batch)
            if created:
                ray.wait(created, num_returns=len(created), timeout=0)

    def _count(self, references: Sequence[ObjectRef], batch: range) -> None:
        """Record which blocks of a batch are about to be fetched from another node."""
        objects = self._objects
        if self._here == objects.location:
            away = {objects.members[0][at] for at in batch if at in objects.away}
            references = [one for one in references if one in away]
        new = [one for one in references if one not in self._located]
        wait_created(new)
        for reference, place in query_locations(new).items():
            if place.nodes and self._here not in place.nodes:
                self._fetched[reference] = place.nbytes
        self._located.update(new)

    def materialized(self) -> Any:
        """Return the concatenated blocks: from the object store, or made now and kept."""
        self._check_open()
        if self._made is None:
            objects = self._objects
            if objects.one is not None:
                return fetch_objects([objects.one], objects.indexes, objects.timeout)[0]
            self._made = (concatenate(self._read()),)
        return self._made[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return NodeSource, (self._objects,)


def this_node() -> str:
    """Return the id of this process's node."""
    node: str = ray.get_runtime_context().get_node_id()
    return node
