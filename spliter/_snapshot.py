"""The partitions of a collection: located and planned once, and again if blocks have moved."""

from __future__ import annotations

import logging
import uuid
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, Self, overload

import numpy as np

from spliter._checks import check_process, owner_of
from spliter._errors import InvalidArgumentError, SplitClosedError, UnknownItemIndexError
from spliter._events import LOGGER, log_event
from spliter._format import plural
from spliter._hints import COLUMNS, FN, missing_attribute
from spliter._partition import NOT_MATERIALIZED, Partition
from spliter._planning.alignment import check_aligned
from spliter._planning.auto import promises_gain, seconds_of_blocks
from spliter._planning.grid import UNKNOWN, BlockGrid
from spliter._planning.passes import Pass, key_of
from spliter._planning.planner import Location, PlannedPartition, plan
from spliter._planning.reuse import Materialization, Materialize, decide
from spliter._planning.schedule import AUTO, Order, Schedule
from spliter._reading.read_ahead import wait_for_abandoned
from spliter._running.per_block import count_items
from spliter.backend.blocks import Blocks, Movement
from spliter.backend.executor import Executor
from spliter.html import split_html
from spliter.metrics import RECORDS, take_passes


class Snapshot(Sequence[Partition]):
    """The part of a :class:`Split` that plans, and that keeps the blocks alive."""

    def __init__(
        self,
        blocks: Blocks,
        executor: Executor,
        partitions_per_location: int | None,
        materialize: Materialize = False,
        schedule: Schedule | None = None,
        steal: bool = False,
    ) -> None:
        check_aligned(blocks.grids)
        if steal and not executor.can_steal:
            raise InvalidArgumentError(
                "steal=True lets the engine choose among the locations that hold a block, which "
                "that of this collection cannot; leave it out"
            )
        self._blocks = blocks
        self._executor = executor
        self._partitions_per_location = partitions_per_location
        order: Order = "contiguous" if blocks.stored else "strided"
        self._schedule = schedule and schedule.with_order(order)
        self._steal = steal
        self._grid = blocks.grids[0]
        self._partitions: list[Partition] = []
        self._made: weakref.WeakSet[Partition] = weakref.WeakSet()
        self._closed = False
        self._owner = owner_of(executor)
        self._token = uuid.uuid4().hex
        self._iterations = 0
        self._next_check = 1
        self._materialize = materialize
        self._materialization = NOT_MATERIALIZED
        self._plan()
        if steal and self._partitions and not any(part.holders for part in self._partitions):
            raise InvalidArgumentError(
                "steal=True shares blocks among the locations that hold them, and each of these "
                f"blocks is at one location; leave it out{blocks.replicate_advice}"
            )
        self._log("split", "split %(blocks)d blocks into %(partitions)d partitions")
        self._decide()

    def _plan(self) -> None:
        """Locate the blocks and group them; unchanged partitions keep their identity."""
        self._placement = self._blocks.locate()
        self._capacities = self._executor.capacities(self._placement.locations)
        planned = self._planned(self._schedule)
        present = {
            (part.location, part.holders, part.indexes.positions.tobytes()): part
            for part in self._partitions
        }
        keys = [(part.location, part.holders, part.positions.tobytes()) for part in planned]
        new = [part for part, key in zip(planned, keys, strict=True) if key not in present]
        resolve = weakref.WeakMethod(self._resolve_grid)
        for part, source in zip(new, self._blocks.sources(new), strict=True):
            partition = Partition.from_plan(
                part, self._grid, source, self._executor, resolve, self._token
            )
            partition.materialization = self._materialization
            present[part.location, part.holders, part.positions.tobytes()] = partition
            self._made.add(partition)
        self._partitions = [present[key] for key in keys]
        numbers = {location: number for number, location in enumerate(self.locations)}
        for partition in self._partitions:
            partition.location_number = numbers[partition.location]

    def _planned(self, schedule: Schedule | None) -> list[PlannedPartition]:
        per_location = self._partitions_per_location
        return plan(self._placement, self._capacities, per_location, schedule, self._steal)

    def _adapt(self) -> None:
        """Cut by the seconds that each block took, with schedule AUTO, if that promises a gain.

        Checked before the passes 2, 3, 5, 9 and so on, as collecting takes a task per location.
        """
        schedule, begun = self._schedule, self._iterations
        self._iterations += 1
        if schedule is None or schedule.kind != AUTO or begun < self._next_check:
            return
        keys = {key_of(partition.indexes.positions) for partition in self._partitions}
        passes = [one for one in self._passes() if one.key in keys]
        seconds = seconds_of_blocks(passes, self.nblocks)
        if seconds is None:  # that pass has not ended, or was none
            return
        self._next_check = 2 * begun
        by_seconds = replace(schedule, weights=seconds)
        if promises_gain(self._planned(by_seconds), seconds, passes):
            self._schedule = by_seconds
            self._plan_again("measured seconds")

    def _decide(self) -> None:
        """Decide once whether to materialize: later, copies themselves take up free memory.

        Counts rows, with one small task per partition, if they are unknown.
        """
        may_wait = self._materialize == "auto" and self._executor.blocking_call_allowed()
        if may_wait and not self._grid.has_known_items and len(self) < self.nblocks:
            self.resolve_item_indexes()  # calls this method again, with known sizes
            return
        nbytes: dict[Location, int] = {}
        for partition in self._partitions:
            nbytes[partition.location] = nbytes.get(partition.location, 0) + partition.nbytes
        self._materialization = decide(
            self._materialize,
            self._grid,
            nbytes,
            max(map(len, self._partitions), default=0),
            lambda: self._executor.free_memory(self.locations),
        )
        for partition in self._partitions:
            partition.materialization = self._materialization
        if self._materialize is not False:
            log_event(
                "materialization",
                "partitions are %(decision)s",
                decision=str(self._materialization),
                from_pass=self._materialization.from_pass,
                reason=self._materialization.reason,
            )

    def refresh(self) -> None:
        """Locate the blocks again and plan anew if they have moved.

        Happens automatically at the start of an iteration after a task found blocks moved.

        Raises
        ------
        BlockLostError
            If blocks are lost.
        """
        self._check_open()
        self._plan_again("refresh")

    def _plan_again(self, cause: str) -> None:
        before = self._partitions
        self._plan()
        kept = len(set(map(id, before)) & set(map(id, self._partitions)))
        self._log(
            "replan",
            "replanned (%(cause)s): %(changed)d of %(partitions)d partitions are new",
            cause=cause,
            changed=len(self._partitions) - kept,
        )

    def _log(self, event: str, message: str, **fields: Any) -> None:
        """Log the plan and what was transferred for it so far."""
        if not LOGGER.isEnabledFor(logging.INFO):  # counting costs time
            return
        moved = self.moved
        log_event(
            event,
            message + " (locations: %(locations)d, %(executor)s)",
            executor=type(self._executor).__name__,
            blocks=self.nblocks,
            partitions=len(self),
            locations=len(self.locations),
            nbytes=self.nbytes,
            aligned_blocks=moved.aligned_blocks,
            aligned_nbytes=moved.aligned_nbytes,
            fetched_blocks=moved.fetched_blocks,
            fetched_nbytes=moved.fetched_nbytes,
            **fields,
        )

    def _check_open(self) -> None:
        if self._closed:
            raise SplitClosedError("this Split was closed; split the collection again")
        check_process(self._owner, "Split")

    def __len__(self) -> int:
        """Return the number of partitions."""
        return len(self._partitions)

    @overload
    def __getitem__(self, index: int) -> Partition: ...
    @overload
    def __getitem__(self, index: slice) -> list[Partition]: ...
    def __getitem__(self, index: int | slice) -> Partition | list[Partition]:
        """Return one partition, or a list of them for a slice."""
        self._check_open()
        if not isinstance(index, slice) and not hasattr(index, "__index__"):
            raise TypeError(
                f"indices of a Split are ints or slices, not {type(index).__name__}; {COLUMNS}"
            )
        return self._partitions[index]

    def __iter__(self) -> Iterator[Partition]:
        """Iterate over the partitions; plans again if a task found blocks moved.

        With schedule AUTO also if measured seconds promise a shorter pass.
        """
        self._check_open()
        if self._executor.blocking_call_allowed():
            self._follow_drift()
            self._adapt()
        return iter(list(self._partitions))

    def _follow_drift(self) -> None:
        """Plan again if a task found blocks moved."""
        if self._blocks.has_drifted():
            self._plan_again("drift")

    @property
    def materialization(self) -> Materialization:
        """Whether partitions are materialized, from which pass on, and why."""
        return self._materialization

    @property
    def ncollections(self) -> int:
        """Number of collections split together."""
        return len(self._blocks.grids)

    @property
    def locations(self) -> tuple[Location, ...]:
        """The locations that have partitions, sorted."""
        return tuple(sorted({partition.location for partition in self._partitions}))

    @property
    def nblocks(self) -> int:
        """Number of blocks of the collection."""
        return self._grid.nblocks

    @property
    def nbytes(self) -> int:
        """Total bytes of the blocks of the (first) collection, as far as known."""
        return sum(partition.nbytes for partition in self._partitions)

    @property
    def grid(self) -> BlockGrid:
        """The block grid of the (first) collection."""
        return self._grid

    @property
    def moved(self) -> Movement:
        """Blocks transferred over the network for this Split."""
        return self._blocks.moved()

    def resolve_item_indexes(self) -> None:
        """Count the rows of blocks of unknown size, so that all partitions know item indexes.

        Costs one task per partition the first time, nothing if sizes are known.

        Raises
        ------
        UnknownItemIndexError
            If called on the engine's event loop, which must not wait.
        """
        self._check_open()
        self._resolve_grid()
        for partition in self._made:
            if not partition.has_known_items:
                partition.number_items(self._grid)

    def _resolve_grid(self) -> BlockGrid:
        if not self._grid.has_known_items:
            if not self._executor.blocking_call_allowed():
                raise UnknownItemIndexError(
                    "item indexes need the sizes of the blocks, and querying them would block the "
                    "event loop; use await asyncio.to_thread(split.resolve_item_indexes)"
                )
            counts = np.full(self._grid.shape[0], UNKNOWN, dtype=np.int64)
            # One list for both loops: each iteration over the Split may plan again.
            partitions = list(self)
            futures = [partition.submit(count_items) for partition in partitions]
            for partition, future in zip(partitions, futures, strict=True):
                rows = [index[0] for index in partition.get_indexes()]
                counts[rows] = future.result()
            self._grid = self._grid.with_row_counts(counts)
            self._decide()
        return self._grid

    def _passes(self) -> list[Pass]:
        """Collect the last pass over each partition from the processes that ran the tasks."""
        self._blocks.moved()  # reads the reports of tasks
        if not self._executor.reports_passes:
            holders = {at for part in self._partitions for at in part.holders}
            futures = [
                self._executor.submit(take_passes, (self._token, location), {}, location=location)
                for location in sorted({*self.locations, *holders})
            ]
            for passes in self._executor.gather(futures):
                RECORDS.keep(passes)
        return RECORDS.of(self._token)

    def close(self) -> None:
        """Release the blocks; further use of the partitions is an error. Idempotent."""
        self._closed = True
        for partition in self._made:
            partition.close()
        self._blocks.close()
        wait_for_abandoned(self._token)

    def __reduce__(self) -> NoReturn:
        """Reject pickling: only partitions are sent to tasks.

        Raises
        ------
        TypeError
            Always. Engines turn it into a ``TaskNotSerializableError`` that names the variable.
        """
        raise TypeError("a Split cannot be pickled; pass its partitions to tasks instead")

    def __dask_tokenize__(self) -> NoReturn:
        """Reject calls of Dask's own functions, such as ``client.map(fn, parts)``.

        Raises
        ------
        TypeError
            Always: Dask would pickle it.
        """
        raise TypeError(
            f"Dask's own functions take no Split, as they start tasks at any worker; start {FN}"
        )

    if not TYPE_CHECKING:  # so that type checkers reject unknown attributes

        def __getattr__(self, name: str) -> Any:
            """Raise `AttributeError`, with a hint for names of Dask."""
            raise missing_attribute(self, name)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the Split."""
        self.close()

    def __repr__(self) -> str:
        """Return the numbers of partitions, locations and blocks, and the size."""
        if self._closed:
            return "<Split: closed>"
        if self._executor.is_closed:
            return f"<Split: {self.nblocks} blocks, not usable: the client was closed>"
        return (
            f"<Split: {plural(len(self), 'partition')} at "
            f"{plural(len(self.locations), 'location')}, {plural(self.nblocks, 'block')}, "
            f"{self.nbytes} bytes{self._options_text()}>"
        )

    def _spread_advice(self) -> str:
        """Return the engine's own way to spread blocks evenly, if it has one."""
        return self._blocks.spread_advice

    def _options_text(self) -> str:
        schedule = f", schedule {self._schedule}" if self._schedule else ""
        steal = ", steal" if self._steal else ""
        materialized = f", {self._materialization}" if self._materialize is not False else ""
        return schedule + steal + materialized

    def _repr_html_(self) -> str:
        return split_html(self)
