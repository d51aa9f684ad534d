"""Client-side blocks of a Split over Ray objects.

Holds the references, so that Ray keeps the objects; copies aligned blocks to the partitions' nodes;
reads the reports of tasks about blocks that had to be fetched.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import ray
from ray import ObjectRef

from spliter import BackendNotUsableError, BlockLostError, Movement, Partition, SplitClosedError
from spliter.backend import RECORDS, Blocks, Executor, Placement, PlannedPartition, RemoteSource
from spliter_backends._shared.collection_blocks import CollectionBlocks
from spliter_backends.ray.cluster import (
    SHUT_DOWN,
    ObjectLocation,
    block_timeout,
    connection,
    locate_objects,
    usable_nodes,
)
from spliter_backends.ray.source import NodeSource, PartitionObjects, PartitionReport, remote_source
from spliter_backends.ray.worker import CONCATENATE, COPY


class ClientSource(RemoteSource):
    """Source of a partition in the program, which sends its objects to its tasks.

    blocks: Blocks of the Split, kept alive by the partition.
    """

    def __init__(self, blocks: RayBlocks, objects: PartitionObjects) -> None:
        super().__init__(remote_source(objects.location).where)
        self.blocks = blocks
        self._objects: PartitionObjects | None = objects
        self._lock = threading.Lock()
        self.reading = threading.Lock()
        self.pending: deque[ObjectRef] = deque()
        """Unread reports of its tasks, oldest first."""

    def to_send(self, partition: Partition) -> tuple[Partition, ObjectRef | None]:
        """Return the partition to send to a task, and concatenated blocks that it must wait for."""
        self.blocks.check_connected()
        self.blocks.read_reports_of(self)
        materialize = partition.begin_pass()
        with self._lock:
            objects = self._objects
            if objects is None:
                raise SplitClosedError("the Split of this partition was closed; split again")
            objects = replace(objects, timeout=block_timeout())
            if materialize and objects.one is None and len(partition) > 1:
                at_node = partition.at_location(NodeSource(objects), materialize=False)
                one = CONCATENATE.options(
                    name="spliter.materialized", scheduling_strategy=affinity(objects.location)
                ).remote(at_node)
                self._objects = objects = replace(objects, one=one)
            needed = objects.one if materialize else None
            return partition.at_location(NodeSource(objects), materialize=materialize), needed

    def store_concatenated(self, one: ObjectRef) -> None:
        """Store the concatenated blocks that a task has made, unless there are some already."""
        with self._lock:
            if self._objects is not None and self._objects.one is None:
                self._objects = replace(self._objects, one=one)

    def release(self) -> None:
        """Release all references."""
        with self._lock:
            self._objects = None


@dataclass(frozen=True, eq=False)
class ExpectedReport:
    """Expected report of a task about one of its partitions.

    number: Index of the partition among those of the task.
    blocks: Reference of the concatenated blocks, if the task makes them.
    """

    number: int
    source: ClientSource
    blocks: ObjectRef


def affinity(node: str) -> Any:
    """Return a scheduling strategy for tasks at a node.

    The affinity is soft, but as long as the node is alive and has CPUs, Ray runs the task nowhere
    else, however busy the node is. A hard affinity would not improve locality, and would fail the
    task if the node is lost.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node_id=node, soft=True)


class RayBlocks(Blocks):
    """Blocks of one or several aligned collections in Ray."""

    def __init__(self, executor: Executor, members: Sequence[CollectionBlocks[ObjectRef]]) -> None:
        super().__init__([member.grid for member in members], executor)
        self._connection = connection()
        self._members = list(members)
        self._found: list[Mapping[ObjectRef, ObjectLocation]] = []
        self._lock = threading.Lock()
        self._reports: dict[ObjectRef, Sequence[ExpectedReport]] = {}
        self._sources: weakref.WeakSet[ClientSource] = weakref.WeakSet()

    def check_connected(self) -> None:
        """Check that the connection is the original one: Ray waits forever for older references."""
        try:
            now = connection()
        except BackendNotUsableError as error:
            raise BlockLostError(SHUT_DOWN) from error
        if now != self._connection:
            raise BlockLostError(SHUT_DOWN)

    def locate(self) -> Placement:
        """Query the nodes of the blocks; see :class:`spliter.backend.Blocks`."""
        self.check_connected()
        self.read_reports()
        self.counter.drifted = False
        self._found = [
            locate_objects(one.blocks, one.grid.indexes(np.arange(one.grid.nblocks)))
            for one in self._members
        ]
        nodes = usable_nodes()
        if not nodes:
            raise BackendNotUsableError(
                "no node of the Ray cluster can run tasks; start one with a CPU"
            )
        everywhere = tuple(sorted(nodes))
        first = [self._found[0][reference] for reference in self._members[0].blocks]
        holders = [
            tuple(node for node in place.nodes if node in nodes) or everywhere for place in first
        ]
        return Placement.of(holders, [place.nbytes for place in first])

    def sources(self, planned: Sequence[PlannedPartition]) -> Sequence[ClientSource]:
        """Return the sources of planned partitions; start copies of aligned blocks."""
        first, *others = self._members
        made = []
        for part in planned:
            positions = part.positions.tolist()
            rows = first.grid.rows(part.positions).tolist()
            own = tuple(first.blocks[at] for at in positions)
            aligned = tuple(
                self._copies_at(number, rows, part.location)
                for number, _ in enumerate(others, start=1)
            )
            places = [self._found[0][reference].nodes for reference in own]
            away = frozenset(
                number
                for number, nodes in enumerate(places)
                if nodes and part.location not in nodes
            )
            has_slow = any(
                found[reference].is_slow_at(part.location)
                for found, references in zip(self._found, (own, *aligned), strict=True)
                for reference in references
                if reference in found  # a copy is at the node
            )
            objects = PartitionObjects(
                location=part.location,
                members=(own, *aligned),
                nbytes=tuple(part.nbytes.tolist()),
                indexes=tuple(first.grid.indexes(part.positions)),
                away=away,
                has_slow=has_slow,
                prefetch=self.prefetch,
                timeout=block_timeout(),
            )
            made.append(ClientSource(self, objects))
        self._sources.update(made)
        return made

    def _copies_at(self, number: int, rows: Sequence[int], node: str) -> tuple[ObjectRef, ...]:
        """Return a further collection's blocks, as copies at a node if they are elsewhere.

        Each copy is an object of its own, because Ray drops replicas when a store is full, and may
        read from any of those left.
        """
        member, found = self._members[number], self._found[number]
        references = [member.blocks[row] for row in rows]
        missing = {
            reference: (row,)
            for reference, row in zip(references, rows, strict=True)
            if found[reference].nodes and node not in found[reference].nodes
        }
        if not missing:
            return tuple(references)
        copied = COPY.options(
            name="spliter.aligned", num_returns=len(missing), scheduling_strategy=affinity(node)
        ).remote(list(missing), list(missing.values()), block_timeout())
        copy_of = dict(zip(missing, [copied] if len(missing) == 1 else copied, strict=True))
        nbytes = sum(found[reference].nbytes for reference in missing)
        self.counter.add(Movement(aligned_blocks=len(missing), aligned_nbytes=nbytes))
        return tuple(copy_of.get(reference, reference) for reference in references)

    def expect_report(self, report: ObjectRef, expected: Sequence[ExpectedReport]) -> None:
        """Register the report of a task, one :class:`PartitionReport` for each of its partitions.

        `expected` are those that belong to this Split. It is read when it is available.
        """
        with self._lock:
            self._reports[report] = expected
        for one in expected:
            one.source.pending.append(report)

    def read_reports(self) -> None:
        """Read the reports of all tasks that have finished."""
        with self._lock:
            pending = list(self._reports)
        self._read(pending)

    def read_reports_of(self, source: ClientSource) -> None:
        """Read reports of tasks on one partition, oldest first, up to the first unfinished task.

        So each submission queries at most one unfinished report, however many are pending.
        """
        with source.reading:
            while source.pending:
                oldest = source.pending[0]
                with self._lock:
                    is_unread = oldest in self._reports
                if is_unread and not self._read([oldest]):
                    return
                source.pending.popleft()

    def _read(self, pending: list[ObjectRef]) -> int:
        """Read the available reports; return their number."""
        if not pending:
            return 0
        ready, _ = ray.wait(pending, num_returns=len(pending), timeout=0, fetch_local=False)
        for reference in ready:
            with self._lock:
                expected = self._reports.pop(reference, ())
            try:
                reports: list[PartitionReport] = ray.get(reference, timeout=block_timeout())
            except Exception:  # noqa: BLE001 -- raised when the result is requested
                continue
            self._record_reports(reports, expected)
        return len(ready)

    def _record_reports(
        self, reports: Sequence[PartitionReport], expected: Sequence[ExpectedReport]
    ) -> None:
        for one in expected:
            report = reports[one.number]
            if report.made:
                one.source.store_concatenated(one.blocks)
            fetched = Movement(fetched_blocks=report.blocks, fetched_nbytes=report.nbytes)
            self.counter.add(fetched, drifted=report.drifted)
            for measured in report.passes:
                RECORDS.add(measured)

    def moved(self) -> Movement:
        """Return the data moved between nodes so far."""
        self._read_if_connected()
        return super().moved()

    def has_drifted(self) -> bool:
        """Return whether a task has run at another node since the last plan."""
        self._read_if_connected()
        return super().has_drifted()

    def _read_if_connected(self) -> None:
        with contextlib.suppress(BlockLostError):
            self.check_connected()
            self.read_reports()

    def close(self) -> None:
        """Release the references."""
        for source in self._sources:
            source.release()
        with self._lock:
            self._reports.clear()
        self._members = [CollectionBlocks(member.grid, ()) for member in self._members]
        self._found = []
