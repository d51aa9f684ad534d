"""Client-side blocks of a Split over dataClay objects: ids, locations, sizes."""

from __future__ import annotations

import asyncio
import uuid
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from spliter import SplitClosedError
from spliter.backend import (
    Blocks,
    Executor,
    IntArray,
    Placement,
    PlannedPartition,
    Prefetch,
    RemoteSource,
)
from spliter_backends._shared.collection_blocks import CollectionBlocks
from spliter_backends.dataclay.client.backend_calls import BackendLostError
from spliter_backends.dataclay.client.handles import (
    PartitionHandle,
    SharedCopies,
    lost_blocks_error,
)
from spliter_backends.dataclay.client.session import Session
from spliter_backends.dataclay.message import pack_ids
from spliter_backends.dataclay.worker.source import AT_BACKEND, BackendSource

NO_POSITIONS = np.empty(0, dtype=np.int64)


class ClientSource(RemoteSource):
    """Source of a partition in the program, which sends it to its tasks.

    prefetch ("auto", False or int): How many blocks its tasks read ahead.
    """

    def __init__(self, handle: PartitionHandle, prefetch: Prefetch) -> None:
        super().__init__(AT_BACKEND)
        self._handle: PartitionHandle | None = handle
        self.prefetch = prefetch

    @property
    def handle(self) -> PartitionHandle:
        """Handle of the partition at its backend."""
        if self._handle is None:
            raise SplitClosedError("the Split of this partition was closed; split again")
        return self._handle

    def release(self) -> None:
        """Release the handle; submitted tasks keep it until they are done."""
        self._handle = None

    def __reduce__(self) -> tuple[Any, ...]:
        handle = self.handle
        return BackendSource, (handle.remote.partition.object_id, handle.nbytes, self.prefetch)


class DataClayBlocks(Blocks):
    """Blocks of one or several aligned collections in dataClay."""

    def __init__(
        self, executor: Executor, session: Session, members: Sequence[CollectionBlocks[uuid.UUID]]
    ) -> None:
        super().__init__([member.grid for member in members], executor)
        self._session = session
        self._members = list(members)
        self._holders: list[list[uuid.UUID | None]] = []
        self._copies = SharedCopies(self._session)
        self._sources: weakref.WeakSet[ClientSource] = weakref.WeakSet()

    @property
    def object_ids(self) -> Sequence[Sequence[uuid.UUID]]:
        """Ids of the persistent objects of each collection's blocks."""
        return [member.blocks for member in self._members]

    def nbytes_of(self, positions: IntArray) -> IntArray:
        """Return the bytes of blocks with their aligned blocks, as far as known, but at least 1."""
        first, *aligned = self._members
        assert first.nbytes is not None, "its blocks have been located"
        rows = first.grid.rows(positions)
        known = [member.nbytes[rows] for member in aligned if member.nbytes is not None]
        return np.maximum(sum(known, first.nbytes[positions]), 1)

    def locate(self) -> Placement:
        """Query the backends of the blocks; see :class:`spliter.backend.Blocks`."""
        placement: Placement = self._session.wait(self._locate())
        return placement

    async def _locate(self) -> Placement:
        self.counter.drifted = False
        first = self._members[0]
        every = [object_id for member in self._members for object_id in member.blocks]
        found = await self._session.locate(every) if every else []
        dead = await self._session.find_lost({one for one in found if one is not None})
        self._holders = []
        start = 0
        for member in self._members:
            held = found[start : start + len(member.blocks)]
            start += len(held)
            lost = [at for at, holder in enumerate(held) if holder is None or holder in dead]
            if lost:
                raise lost_blocks_error(member.grid, np.asarray(lost, dtype=np.int64), dead)
            self._holders.append(held)
        holders = self._holders[0]
        nbytes = await self._sizes(holders) if first.nbytes is None else first.nbytes
        return Placement.of([(str(holder),) for holder in holders], nbytes)

    async def _sizes(self, holders: Sequence[uuid.UUID | None]) -> IntArray:
        """Query the sizes of blocks from their backends, once, if the collection has none."""
        first = self._members[0]
        at: dict[uuid.UUID, list[int]] = {}
        for position, holder in enumerate(holders):
            assert holder is not None, "lost blocks have been rejected"
            at.setdefault(holder, []).append(position)
        answers = await asyncio.gather(
            *(
                self._session.peer(holder).request(
                    "sizes", pack_ids(first.blocks[position] for position in positions)
                )
                for holder, positions in at.items()
            ),
            return_exceptions=True,
        )
        nbytes = np.zeros(len(holders), dtype=np.int64)
        for positions, answer in zip(at.values(), answers, strict=True):
            if isinstance(answer, BackendLostError):
                lost = np.asarray(positions, dtype=np.int64)
                raise lost_blocks_error(first.grid, lost, {answer.backend_id: str(answer)})
            if isinstance(answer, BaseException):
                raise answer
            nbytes[positions] = answer
        self._members[0] = CollectionBlocks(first.grid, first.blocks, nbytes)
        return nbytes

    def sources(self, planned: Sequence[PlannedPartition]) -> Sequence[ClientSource]:
        """Create all partitions at their blocks' backends, concurrently."""
        made = [ClientSource(self._handle(part), self.prefetch) for part in planned]
        try:
            self._session.wait(self._create_all(made, planned))
        except BackendLostError as error:
            lost = error.backend_id
            positions = [part.positions for part in planned if part.location == str(lost)]
            raise lost_blocks_error(
                self.grids[0], np.concatenate([NO_POSITIONS, *positions]), {lost: str(error)}
            ) from None
        self._sources.update(made)
        return made

    def _rows(self, part: PlannedPartition) -> list[list[int]]:
        """Return the positions of the partition's blocks in each collection."""
        rows = self._members[0].grid.rows(part.positions).tolist()
        return [part.positions.tolist(), *(rows for _ in self._members[1:])]

    def _handle(self, part: PlannedPartition) -> PartitionHandle:
        return PartitionHandle(
            self._session,
            [
                [member.blocks[position] for position in positions]
                for member, positions in zip(self._members, self._rows(part), strict=True)
            ],
            part.nbytes.tolist(),
            self._members[0].grid,
            part.positions,
            self.counter,
            self._copies,
        )

    async def _create_all(
        self, made: Sequence[ClientSource], planned: Sequence[PlannedPartition]
    ) -> None:
        await asyncio.gather(
            *(
                source.handle.create(
                    uuid.UUID(part.location),
                    [
                        [held[position] for position in positions]
                        for held, positions in zip(self._holders, self._rows(part), strict=True)
                    ],
                )
                for source, part in zip(made, planned, strict=True)
            )
        )

    def close(self) -> None:
        """Free partitions and copies; the blocks stay, as they belong to the user."""
        for source in self._sources:
            source.release()
