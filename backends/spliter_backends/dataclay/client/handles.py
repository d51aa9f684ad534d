"""Client-side handles of partitions at dataClay backends; re-create them if blocks have moved.

A :class:`PartitionHandle` refers to one partition object, at the backend of the blocks. If a task
does not find its blocks, or the backend is lost, the handle locates the blocks and creates a
partition object there. Blocks at other backends are copied to it through the client, because
backends that call each other while tasks run can deadlock.
"""

from __future__ import annotations

import asyncio
import uuid
import weakref
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from spliter import BlockGrid, BlockLostError, Movement
from spliter.backend import IntArray, MovementCounter
from spliter_backends._shared.collection_blocks import name_blocks
from spliter_backends.dataclay.client.backend_calls import (
    BackendLostError,
    ObjectMissingError,
    Peer,
)
from spliter_backends.dataclay.client.session import Session
from spliter_backends.dataclay.message import pack_ids

MAX_CONCURRENT_COPIES: Final = 4
"""Maximum number of concurrent copies; each passes through this process's memory."""

LOCATE_ATTEMPTS: Final = 5
"""Maximum attempts to locate a block that keeps moving."""


class OwnedObject:
    """Handle of an object that SplIter created at a backend; frees it when garbage-collected."""

    def __init__(self, peer: Peer, object_id: uuid.UUID) -> None:
        self.peer = peer
        self.object_id = object_id
        weakref.finalize(self, peer.free_later, (), (object_id,)).atexit = False


@dataclass(frozen=True, eq=False)
class RemotePartition:
    """A partition object, and the copies of blocks that it refers to."""

    partition: OwnedObject
    copies: tuple[OwnedObject, ...] = ()

    @property
    def peer(self) -> Peer:
        """The backend."""
        return self.partition.peer


class SharedCopies:
    """Copies of blocks at other backends, shared among partitions."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._made: weakref.WeakValueDictionary[tuple[uuid.UUID, uuid.UUID], OwnedObject] = (
            weakref.WeakValueDictionary()
        )
        self._locks: weakref.WeakValueDictionary[tuple[uuid.UUID, uuid.UUID], asyncio.Lock] = (
            weakref.WeakValueDictionary()
        )
        self._copy_slots = asyncio.Semaphore(MAX_CONCURRENT_COPIES)

    async def copy_to(
        self, object_id: uuid.UUID, source: uuid.UUID, to: uuid.UUID
    ) -> tuple[OwnedObject, int]:
        """Return a copy of an object at a backend, and the bytes moved: 0 if there was one.

        `source` is the last known backend of the object. The handle keeps the copy alive.
        """
        place = (object_id, to)
        lock = self._locks.setdefault(place, asyncio.Lock())
        async with lock:
            copy = self._made.get(place)
            if copy is not None:
                return copy, 0
            async with self._copy_slots:
                message = await self._pull(object_id, source)
                peer = self._session.peer(to)
                copy_id, nbytes = await peer.request("create_copy", await peer.push(message))
            copy = self._made[place] = OwnedObject(peer, copy_id)
            return copy, max(nbytes, 1)

    def release(self, object_ids: Collection[uuid.UUID]) -> None:
        """Drop copies that a task did not find, so that they are made again when needed."""
        for place, copy in list(self._made.items()):
            if copy.object_id in object_ids:
                del self._made[place]

    async def _pull(self, object_id: uuid.UUID, source: uuid.UUID | None) -> bytearray:
        for _ in range(LOCATE_ATTEMPTS):
            if source is None:
                break
            try:
                return await self._session.peer(source).pull(object_id)
            except (BackendLostError, ObjectMissingError):
                ((moved_to,)) = await self._session.locate([object_id])
                if moved_to == source:
                    break
                source = moved_to
        raise BlockLostError(
            f"block {object_id} could not be read from any dataClay backend; make it again"
        )


class PartitionHandle:
    """Client-side handle of one partition, given the ids of its blocks for each collection."""

    def __init__(
        self,
        session: Session,
        members: Sequence[Sequence[uuid.UUID]],
        nbytes: Sequence[int],
        grid: BlockGrid,
        positions: IntArray,
        counter: MovementCounter,
        copies: SharedCopies,
    ) -> None:
        self._session = session
        self._members = members
        self._grid = grid
        self._positions = positions
        self._counter = counter
        self._copies = copies
        self._nbytes = nbytes
        self._lock = asyncio.Lock()
        self._remote: RemotePartition | None = None
        self.nbytes = sum(nbytes)

    @property
    def remote(self) -> RemotePartition:
        """Current partition object."""
        assert self._remote is not None, "create() has not been called"
        return self._remote

    async def create(
        self, backend_id: uuid.UUID, holders: Sequence[Sequence[uuid.UUID | None]]
    ) -> None:
        """Create the partition object; copy aligned blocks that are elsewhere to its backend.

        `holders` are the backends of each block of each collection.
        """
        own = [[backend_id] * len(self._members[0]), *holders[1:]]
        self._remote, blocks, nbytes = await self._create_remote(backend_id, own)
        self._counter.add(Movement(aligned_blocks=blocks, aligned_nbytes=nbytes))

    async def move(
        self,
        left: RemotePartition,
        to: uuid.UUID | None = None,
        missing: Collection[uuid.UUID] = (),
    ) -> None:
        """Create a partition object where the blocks are now: at `to`, or where most bytes are.

        If another task has replaced `left`, the one that failed, nothing is done. Copies among the
        `missing` objects, which a task did not find there, are made again. Raises `BlockLostError`
        if blocks are at a lost backend, or nowhere.
        """
        async with self._lock:
            if self._remote is not left:
                return
            self._counter.drifted = True
            self._copies.release(missing)
            every = [object_id for member in self._members for object_id in member]
            found = await self._session.locate(every)
            dead = await self._session.find_lost({one for one in found if one is not None})
            self._check_not_lost(found, dead)
            size = len(self._positions)
            holders = [found[at : at + size] for at in range(0, len(found), size)]
            best = to or self._best(holders[0], left.peer.backend_id)
            self._remote, blocks, nbytes = await self._create_remote(best, holders)
            self._counter.add(Movement(fetched_blocks=blocks, fetched_nbytes=nbytes))

    def _best(self, holders: Sequence[uuid.UUID | None], present: uuid.UUID) -> uuid.UUID:
        """Return the backend with most bytes of the partition; prefer `present` among equals."""
        bytes_at: Counter[uuid.UUID] = Counter()
        for holder, nbytes in zip(holders, self._nbytes, strict=True):
            assert holder is not None, "lost blocks have been rejected"
            bytes_at[holder] += max(nbytes, 1)
        return min(bytes_at, key=lambda one: (-bytes_at[one], one != present, one))

    async def _create_remote(
        self, backend_id: uuid.UUID, holders: Sequence[Sequence[uuid.UUID | None]]
    ) -> tuple[RemotePartition, int, int]:
        """Create a partition object; return it with the numbers of copied blocks and bytes."""
        away = {
            object_id: holder
            for ids, held in zip(self._members, holders, strict=True)
            for object_id, holder in zip(ids, held, strict=True)
            if holder is not None and holder != backend_id
        }
        copied = await asyncio.gather(
            *(self._copies.copy_to(it, holder, backend_id) for it, holder in away.items())
        )
        copy_ids = {it: copy.object_id for it, (copy, _) in zip(away, copied, strict=True)}
        members = tuple(pack_ids(copy_ids.get(it, it) for it in ids) for ids in self._members)
        peer = self._session.peer(backend_id)
        partition = OwnedObject(peer, uuid.uuid4())
        await peer.call_handler("add_partition", self._session.name, partition.object_id, members)
        remote = RemotePartition(partition, tuple(copy for copy, _ in copied))
        return (
            remote,
            sum(nbytes > 0 for _, nbytes in copied),
            sum(nbytes for _, nbytes in copied),
        )

    def _check_not_lost(
        self, found: Sequence[uuid.UUID | None], dead: Mapping[uuid.UUID, str]
    ) -> None:
        lost = [at for at, holder in enumerate(found) if holder is None or holder in dead]
        if lost:
            positions = np.unique(self._positions[np.asarray(lost) % len(self._positions)])
            raise lost_blocks_error(self._grid, positions, dead)


def lost_blocks_error(
    grid: BlockGrid, positions: IntArray, dead: Mapping[uuid.UUID, str]
) -> BlockLostError:
    """Return the error for blocks at lost backends, with the reasons, or unknown to dataClay."""
    blocks = tuple(grid.indexes(positions))
    where = "; ".join(f"backend {one}: {why}" for one, why in sorted(dead.items()))
    return BlockLostError(
        f"{name_blocks(blocks)} are lost"
        + (f" with {where}. " if dead else ": dataClay has no record of them. ")
        + "Make them again and split the new collection; other partitions are unaffected",
        blocks,
    )
