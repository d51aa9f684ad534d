"""Client-side blocks of a Split over COMPSs objects: locations and transfer counters.

The main program cannot query where an object is, so the location is determined once per block:

*made*         the task that made the block reported where it ran (``make_blocks``, ``map_blocks``)
*tasks*        a tiny task receives the block and reports where COMPSs ran it: usually where the
               block was, and in any case the block is there afterwards
*round-robin*  blocks are assumed to be on the nodes in turn, and COMPSs decides

Locations are remembered as long as the block: COMPSs copies objects, but never moves them.
"""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from spliter import Location, Movement, Partition
from spliter.backend import Blocks, Executor, Placement, PlannedPartition, RemoteSource
from spliter_backends._shared.collection_blocks import CollectionBlocks
from spliter_backends.compss import tasks
from spliter_backends.compss.api import Future, compss_delete_object, compss_get_number_of_resources
from spliter_backends.compss.outcome import hosts, splits
from spliter_backends.compss.settings import settings
from spliter_backends.compss.source import BlockInputs, remote_source
from spliter_backends.compss.worker import BlockMetadata

_metadata: Final[weakref.WeakKeyDictionary[Any, BlockMetadata]] = weakref.WeakKeyDictionary()
"""Metadata of blocks, by their (first) future."""

_pending_metadata: Final[weakref.WeakKeyDictionary[Any, tuple[Any, int | None]]] = (
    weakref.WeakKeyDictionary()
)
"""Futures of metadata by block, and the index if the future is a list."""


def register_metadata(block: Any, metadata: Any, which: int | None = None) -> None:
    """Register the future of a block's :class:`BlockMetadata`, or of a list of several."""
    _pending_metadata[block] = metadata, which


def known_metadata(block: Any) -> BlockMetadata | None:
    """Return the metadata of a block, or of its first part; ``None`` if no task reports them.

    Waits for the task that makes the block if that reports them.
    """
    if not isinstance(block, Future):
        return None
    if block in _pending_metadata:
        future, which = _pending_metadata[block]
        found = future.result()
        _metadata[block] = found if which is None else found[which]
        del _pending_metadata[block]
    return _metadata.get(block)


@dataclass(frozen=True, eq=False)
class CompssObjects(CollectionBlocks[tuple[Any, ...]]):
    """A collection whose blocks consist of one or several objects, side by side.

    kept: The collection, which may delete its blocks when it is freed.
    """

    kept: Any = None

    @property
    def columns(self) -> int:
        """Number of objects per block."""
        return len(self.blocks[0]) if self.blocks else 1


class CompssSource(RemoteSource):
    """Source of a partition in the program: the objects to pass to a task."""

    def __init__(
        self, blocks: CompssBlocks, planned: PlannedPartition, rows: Sequence[int], number: int
    ) -> None:
        super().__init__(remote_source(planned.location).where)
        self._blocks = blocks
        self._planned = planned
        self._rows = rows
        self._number = number
        self._one: Any = None

    def task_inputs(
        self, partition: Partition, start: int, constraints: Any
    ) -> tuple[BlockInputs, Sequence[Any]]:
        """Return the objects to pass to a task, and which are which."""
        members = self._blocks.members
        positions = self._planned.positions.tolist()
        objects = [part for position in positions for part in members[0].blocks[position]]
        for member in members[1:]:
            objects += [part for row in self._rows for part in member.blocks[row]]
        wanted = partition.begin_pass()
        is_concatenated = wanted and len(partition) > 1
        block_inputs = BlockInputs(
            start=0 if is_concatenated else start,
            nblocks=len(partition),
            columns=tuple(member.columns for member in members),
            indexes=tuple(partition.get_indexes()),
            is_concatenated=False,
            location=self._planned.location,
            token=self._blocks.token,
            number=self._number,
            known=self._blocks.located_by != "round-robin",
            iterates_concatenated=wanted,
        )
        if not is_concatenated:
            return block_inputs, objects
        if self._one is None:
            self._one = tasks.start(
                "concatenate", constraints, uuid.uuid4().hex, block_inputs, objects
            )
        return block_inputs.with_one_input(start), [self._one]

    def release(self) -> None:
        """Delete the concatenated blocks."""
        if self._one is not None:
            compss_delete_object(self._one)
            self._one = None

    def __del__(self) -> None:
        if self._one is not None:
            tasks.delete_later(self._one)


class CompssBlocks(Blocks):
    """Blocks of one or several aligned collections.

    COMPSs copies objects but never moves them, so a plan stays valid. The blocks of a partition
    whose task ran at another node are counted as fetched, once per node.
    """

    def __init__(self, members: Sequence[CompssObjects], executor: Executor) -> None:
        super().__init__([member.grid for member in members], executor)
        self.members = tuple(members)
        self.token = uuid.uuid4().hex
        self.located_by = ""
        self._sources: list[weakref.ReferenceType[CompssSource]] = []
        self._planned: list[PlannedPartition] = []
        self._counted_aligned: set[tuple[int, int, str]] = set()
        self._fetched: set[tuple[int, str]] = set()
        self._metadata: list[list[BlockMetadata]] = []
        splits[self.token] = self

    def locate(self) -> Placement:
        """Determine where the blocks are, by COMPSs' names of the nodes, marked if assumed."""
        if not self._metadata:
            self._metadata = [self._metadata_of(member) for member in self.members]
        first = self._metadata[0]
        nbytes = self.members[0].nbytes
        if nbytes is None:
            nbytes = np.fromiter((metadata.nbytes for metadata in first), np.int64, len(first))
        return Placement.of([(metadata.host,) for metadata in first], nbytes)

    def _metadata_of(self, member: CompssObjects) -> list[BlockMetadata]:
        found = [known_metadata(parts[0]) for parts in member.blocks]
        unknown = [number for number, metadata in enumerate(found) if metadata is None]
        if member is self.members[0]:
            self.located_by = settings().locate if unknown else "made"
        if self.located_by == "round-robin":
            nodes = known_nodes()
            return [
                metadata or BlockMetadata(f"{nodes[number % len(nodes)]} (in turn)", 0, -1)
                for number, metadata in enumerate(found)
            ]
        pending = [
            tasks.start("describe", {}, uuid.uuid4().hex, list(member.blocks[number]))
            for number in unknown
        ]
        for number, future in zip(unknown, pending, strict=True):
            found[number] = metadata = future.result()
            if isinstance(member.blocks[number][0], Future):
                _metadata[member.blocks[number][0]] = metadata
        return [metadata for metadata in found if metadata is not None]

    def sources(self, planned: Sequence[PlannedPartition]) -> Sequence[CompssSource]:
        """Return one source per planned partition, in order; count aligned blocks elsewhere."""
        made = []
        for part in planned:
            rows = self.grids[0].rows(part.positions).tolist()
            self._count_aligned(rows, part.location)
            made.append(CompssSource(self, part, rows, len(self._planned)))
            self._planned.append(part)
        self._sources += map(weakref.ref, made)
        return made

    def _count_aligned(self, rows: Iterable[int], location: Location) -> None:
        if self.located_by == "round-robin":
            return
        for row in rows:
            for number, metadata in enumerate(self._metadata[1:], start=1):
                place = (number, row, str(location))
                if metadata[row].host != location and place not in self._counted_aligned:
                    self._counted_aligned.add(place)
                    self.counter.add(
                        Movement(aligned_blocks=1, aligned_nbytes=metadata[row].nbytes)
                    )

    def record_move(self, partition: int, host: str) -> None:
        """Count the blocks of a partition as fetched by a node, unless they are already there.

        Copies there are reused by later tasks.
        """
        if (partition, host) not in self._fetched:
            self._fetched.add((partition, host))
            part = self._planned[partition]
            nbytes = int(part.nbytes.sum())
            self.counter.add(Movement(fetched_blocks=len(part.positions), fetched_nbytes=nbytes))

    def close(self) -> None:
        """Release the blocks; COMPSs keeps those that running tasks need."""
        for reference in self._sources:
            source = reference()
            if source is not None:
                source.release()
        self.members = tuple(CompssObjects(member.grid, ()) for member in self.members)


def known_nodes() -> Sequence[str]:
    """Return the nodes to assign blocks to in turn: those set, those reported, or made-up ones."""
    if settings().nodes:
        return settings().nodes
    count = max(int(compss_get_number_of_resources()), 1)
    reported = sorted(hosts)
    return reported if len(reported) >= count else [f"node-{n}" for n in range(1, count + 1)]
