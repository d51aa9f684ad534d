"""``Plan``: which partitions a Split has at the moment, and what it knows of their blocks."""

from __future__ import annotations

import logging
import uuid
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from spliter._checks import check_process, owner_of
from spliter._dispatch import Dispatch
from spliter._errors import InvalidArgumentError, SplitClosedError, UnknownItemIndexError
from spliter._events import LOGGER, log_event
from spliter._partition import Partition
from spliter._planning.alignment import check_aligned
from spliter._planning.auto import promises_gain, seconds_of_blocks
from spliter._planning.grid import UNKNOWN, BlockGrid, BlockIndexes
from spliter._planning.options import SplitOptions
from spliter._planning.passes import Pass, key_of
from spliter._planning.planner import Location, PlannedPartition, plan
from spliter._planning.reuse import NOT_MATERIALIZED, Materialization, decide
from spliter._reading.partition_blocks import PartitionBlocks
from spliter._reading.read_ahead import wait_for_abandoned
from spliter._reading.rows import count_rows
from spliter._reading.source import BlockSource
from spliter.backend.blocks import Blocks
from spliter.backend.executor import Executor
from spliter.metrics import RECORDS, take_passes


class Plan:
    """Locates the blocks of a Split and groups them: once, and again if they have moved.

    Partitions whose blocks have not moved stay the same objects. Refuses collections that are not
    blocked alike, and stealing where the engine or the placement of the blocks does not allow it.
    """

    def __init__(self, blocks: Blocks, executor: Executor, options: SplitOptions) -> None:
        check_aligned(blocks.grids)
        if options.steal and not executor.can_steal:
            raise InvalidArgumentError(
                "steal=True lets the engine choose among the locations that hold a block, which "
                "that of this collection cannot; leave it out"
            )
        if options.schedule is not None:
            order = options.schedule.with_order("contiguous" if blocks.stored else "strided")
            options = replace(options, schedule=order)
        self.blocks: Blocks = blocks
        self.executor: Executor = executor
        self.options: SplitOptions = options
        self.grid: BlockGrid = blocks.grids[0]
        self.token: str = uuid.uuid4().hex
        self.capacities: Mapping[Location, int] = {}
        self.partitions: list[Partition] = []
        self.materialization: Materialization = NOT_MATERIALIZED
        self.is_closed: bool = False
        self._owner = owner_of(executor)
        self._created: weakref.WeakKeyDictionary[Partition, tuple[PartitionBlocks, Dispatch]] = (
            weakref.WeakKeyDictionary()
        )
        self._counter = weakref.WeakMethod(self.count_rows)
        self._iterations = 0
        self._next_check = 1
        self._locate()
        if options.steal and self.partitions and not any(part.holders for part in self.partitions):
            raise InvalidArgumentError(
                "steal=True shares blocks among the locations that hold them, and each of these "
                f"blocks is at one location; leave it out{blocks.replicate_advice}"
            )
        self._log("split", "split %(blocks)d blocks into %(partitions)d partitions")
        self._decide()

    @property
    def locations(self) -> tuple[Location, ...]:
        """The locations that have partitions, sorted."""
        return tuple(sorted({partition.location for partition in self.partitions}))

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks of the first collection."""
        return sum(partition.nbytes for partition in self.partitions)

    def __str__(self) -> str:
        """Return its options in words, each after a comma."""
        schedule, wanted = self.options.schedule, self.options.materialize
        words = [f"schedule {schedule}"] if schedule else []
        words += ["steal"] if self.options.steal else []
        words += [str(self.materialization)] if wanted is not False else []
        return "".join(f", {word}" for word in words)

    def check_open(self) -> None:
        """Raise if the Split was closed, or belongs to another process."""
        if self.is_closed:
            raise SplitClosedError("this Split was closed; split the collection again")
        check_process(self._owner, "Split")

    # --- planning -------------------------------------------------------------------------------

    def _locate(self) -> None:
        """Locate the blocks, and create the partitions that are new."""
        self._placement = self.blocks.locate()
        self.capacities = self.executor.capacities(self._placement.locations)
        planned = self._cut(self.options)
        present = {_identity(part, part.indexes.positions): part for part in self.partitions}
        keys = [_identity(part, part.positions) for part in planned]
        new = {key: part for key, part in zip(keys, planned, strict=True) if key not in present}
        sources = self.blocks.sources(list(new.values()))
        for (key, part), source in zip(new.items(), sources, strict=True):
            present[key] = self._create(part, source)
        self.partitions = [present[key] for key in keys]
        numbers = {location: number for number, location in enumerate(self.locations)}
        for partition in self.partitions:
            self._created[partition][1].location_number = numbers[partition.location]

    def _cut(self, options: SplitOptions) -> list[PlannedPartition]:
        per_location, schedule = options.partitions_per_location, options.schedule
        return plan(self._placement, self.capacities, per_location, schedule, options.steal)

    def _create(self, planned: PlannedPartition, source: BlockSource) -> Partition:
        indexes = BlockIndexes.of(self.grid, planned.positions)
        blocks = PartitionBlocks(planned.location, indexes, planned.nbytes, source, self.token)
        dispatch = Dispatch(self.executor, planned.location, self._counter, planned.holders)
        dispatch.materialization = self.materialization
        partition = Partition(blocks, dispatch)
        self._created[partition] = blocks, dispatch
        return partition

    def begin_pass(self) -> list[Partition]:
        """Return the partitions for a pass, planned again if that promises a better one."""
        self.check_open()
        if self.executor.blocking_call_allowed():
            self.follow_drift()
            self._adapt()
        return list(self.partitions)

    def follow_drift(self) -> None:
        """Plan again if a task found blocks moved."""
        if self.blocks.has_drifted():
            self.renew("drift")

    def _adapt(self) -> None:
        """Cut by the seconds that each block took, with schedule AUTO, if that promises a gain.

        Checked before the passes 2, 3, 5, 9 and so on, as collecting takes a task per location.
        """
        begun = self._iterations
        self._iterations += 1
        if self.options.schedule is None or not self.options.is_auto or begun < self._next_check:
            return
        keys = {key_of(partition.indexes.positions) for partition in self.partitions}
        passes = [one for one in self.passes() if one.key in keys]
        seconds = seconds_of_blocks(passes, self.grid.nblocks)
        if seconds is None:  # that pass has not ended, or was none
            return
        self._next_check = 2 * begun
        by_seconds = replace(self.options, schedule=replace(self.options.schedule, weights=seconds))
        if promises_gain(self._cut(by_seconds), seconds, passes):
            self.options = by_seconds
            self.renew("measured seconds")

    def renew(self, cause: str) -> None:
        """Plan again; the cause is logged."""
        before = self.partitions
        self._locate()
        kept = len(set(map(id, before)) & set(map(id, self.partitions)))
        self._log(
            "replan",
            "replanned (%(cause)s): %(changed)d of %(partitions)d partitions are new",
            cause=cause,
            changed=len(self.partitions) - kept,
        )

    def _log(self, event: str, message: str, **fields: Any) -> None:
        """Log the plan and what was transferred for it so far."""
        if not LOGGER.isEnabledFor(logging.INFO):  # counting costs time
            return
        moved = self.blocks.moved()
        log_event(
            event,
            message + " (locations: %(locations)d, %(executor)s)",
            executor=type(self.executor).__name__,
            blocks=self.grid.nblocks,
            partitions=len(self.partitions),
            locations=len(self.locations),
            nbytes=self.nbytes,
            aligned_blocks=moved.aligned_blocks,
            aligned_nbytes=moved.aligned_nbytes,
            fetched_blocks=moved.fetched_blocks,
            fetched_nbytes=moved.fetched_nbytes,
            **fields,
        )

    # --- materializing and numbering rows -------------------------------------------------------

    def _decide(self) -> None:
        """Decide once whether to materialize: later, copies themselves take up free memory.

        Counts rows, with one small task per partition, if they are unknown.
        """
        asked = self.options.materialize
        may_wait = asked == "auto" and self.executor.blocking_call_allowed()
        if may_wait and not self.grid.has_known_items and len(self.partitions) < self.grid.nblocks:
            self.number_items()  # calls this method again, with known sizes
            return
        nbytes: dict[Location, int] = {}
        for partition in self.partitions:
            nbytes[partition.location] = nbytes.get(partition.location, 0) + partition.nbytes
        self.materialization = decide(
            asked,
            self.grid,
            nbytes,
            max(map(len, self.partitions), default=0),
            lambda: self.executor.free_memory(self.locations),
        )
        for partition in self.partitions:
            self._created[partition][1].materialization = self.materialization
        if asked is not False:
            log_event(
                "materialization",
                "partitions are %(decision)s",
                decision=str(self.materialization),
                from_pass=self.materialization.from_pass,
                reason=self.materialization.reason,
            )

    def number_items(self) -> None:
        """Count the rows of blocks of unknown size, and number those of all partitions."""
        self.check_open()
        grid = self.count_rows()
        for blocks, _ in self._created.values():
            if blocks.indexes.item_counts is None:
                blocks.number_items(grid)

    def count_rows(self) -> BlockGrid:
        """Return the grid with the rows of each block; counts them once, by tasks.

        Refused on the engine's event loop, which must not wait.
        """
        if not self.grid.has_known_items:
            if not self.executor.blocking_call_allowed():
                raise UnknownItemIndexError(
                    "item indexes need the sizes of the blocks, and querying them would block the "
                    "event loop; use await asyncio.to_thread(split.resolve_item_indexes)"
                )
            counts = np.full(self.grid.shape[0], UNKNOWN, dtype=np.int64)
            partitions = self.begin_pass()
            futures = [partition.submit(count_items) for partition in partitions]
            for partition, future in zip(partitions, futures, strict=True):
                counts[self.grid.rows(partition.indexes.positions)] = future.result()
            self.grid = self.grid.with_row_counts(counts)
            self._decide()
        return self.grid

    # --- measuring, closing ---------------------------------------------------------------------

    def passes(self) -> list[Pass]:
        """Collect the last pass over each partition from the processes that ran the tasks."""
        self.blocks.moved()  # reads the reports of tasks
        if not self.executor.reports_passes:
            holders = {at for part in self.partitions for at in part.holders}
            futures = [
                self.executor.submit(take_passes, (self.token, location), {}, location=location)
                for location in sorted({*self.locations, *holders})
            ]
            for passes in self.executor.gather(futures):
                RECORDS.keep(passes)
        return RECORDS.of(self.token)

    def close(self) -> None:
        """Release the blocks, and refuse further use. Idempotent."""
        self.is_closed = True
        for blocks, _ in self._created.values():
            blocks.is_closed = True
        self.blocks.close()
        wait_for_abandoned(self.token)


def _identity(part: Partition | PlannedPartition, positions: Any) -> tuple[Any, ...]:
    """Return what is the same for a partition that needs not be created again."""
    return part.location, part.holders, positions.tobytes()


def count_items(partition: Partition) -> list[int]:
    """Return the number of rows of each block; runs at a location."""
    return [count_rows(block) for _, block in partition.items()]


def first_block(partitions: Iterable[Partition]) -> int:
    """Return the position of the first block of some partitions in their collection."""
    return min(int(partition.indexes.positions[0]) for partition in partitions)
