"""Client-side handles of partitions at dataClay backends; re-create them if blocks have moved.

While blocks stay where they are, an :class:`Anchor` has one home: a partition object at their
backend. If a task does not find its blocks, or the backend is lost, the anchor locates the blocks
and creates a home there. Blocks that are at other backends are copied to it through the client,
because backends that call each other while tasks run can deadlock.
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
from spliter_backends.dataclay.client.backend_calls import BackendGoneError, ObjectAwayError, Peer
from spliter_backends.dataclay.client.session import Session
from spliter_backends.dataclay.message import packed

COPIES_AT_ONCE: Final = 4
"""Maximum number of concurrent copies; each passes through this process's memory."""

FINDS: Final = 5
"""Maximum attempts to locate a block that keeps moving."""


class Freed:
    """Handle of an object that SplIter created at a backend; frees it when garbage-collected.

    Parameters
    ----------
    peer : Peer
        The backend.
    object_id : UUID
        Id of the object.
    """

    def __init__(self, peer: Peer, object_id: uuid.UUID) -> None:
        self.peer = peer
        self.object_id = object_id
        weakref.finalize(self, peer.free_later, (), (object_id,)).atexit = False


@dataclass(frozen=True, eq=False)
class Home:
    """A partition object, and the copies of blocks that it refers to."""

    partition: Freed
    copies: tuple[Freed, ...] = ()

    @property
    def peer(self) -> Peer:
        """The backend."""
        return self.partition.peer


class Copies:
    """Copies of blocks at other backends, shared among partitions.

    Parameters
    ----------
    session : Session
        Session of the client.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._made: weakref.WeakValueDictionary[tuple[uuid.UUID, uuid.UUID], Freed] = (
            weakref.WeakValueDictionary()
        )
        self._locks: weakref.WeakValueDictionary[tuple[uuid.UUID, uuid.UUID], asyncio.Lock] = (
            weakref.WeakValueDictionary()
        )
        self._copy_slots = asyncio.Semaphore(COPIES_AT_ONCE)

    async def bring(
        self, object_id: uuid.UUID, source: uuid.UUID, to: uuid.UUID
    ) -> tuple[Freed, int]:
        """Return a copy of an object at a backend; copy it if there is none.

        Parameters
        ----------
        object_id : UUID
            Id of the object.
        source, to : UUID
            Last known backend of the object, and backend of the copy.

        Returns
        -------
        Freed
            Handle that keeps the copy alive.
        int
            Bytes moved by this call: 0 if the copy existed.
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
                copy_id, nbytes = await peer.ask("adopt", await peer.push(message))
            copy = self._made[place] = Freed(peer, copy_id)
            return copy, max(nbytes, 1)

    def forget(self, object_ids: Collection[uuid.UUID]) -> None:
        """Forget copies that a task did not find, so that they are made again when needed."""
        for place, copy in list(self._made.items()):
            if copy.object_id in object_ids:
                del self._made[place]

    async def _pull(self, object_id: uuid.UUID, source: uuid.UUID | None) -> bytearray:
        for _ in range(FINDS):
            if source is None:
                break
            try:
                return await self._session.peer(source).pull(object_id)
            except (BackendGoneError, ObjectAwayError):
                ((moved_to,)) = await self._session.locate([object_id])
                if moved_to == source:
                    break
                source = moved_to
        raise BlockLostError(f"block {object_id} could not be read from any dataClay backend")


class Anchor:
    """Client-side handle of one partition.

    Parameters
    ----------
    session : Session
        Session of the client.
    members : sequence of sequence of UUID
        For each aligned collection the ids of its blocks, in the partition's order.
    nbytes : sequence of int
        Bytes of the first collection's blocks.
    grid : BlockGrid
        Block grid of the first collection.
    positions : ndarray of int64
        Positions of the partition's blocks in it.
    counter : MovementCounter
        Transfer counter of the Split.
    copies : Copies
        Copies of the Split.
    """

    def __init__(
        self,
        session: Session,
        members: Sequence[Sequence[uuid.UUID]],
        nbytes: Sequence[int],
        grid: BlockGrid,
        positions: IntArray,
        counter: MovementCounter,
        copies: Copies,
    ) -> None:
        self._session = session
        self._members = members
        self._grid = grid
        self._positions = positions
        self._counter = counter
        self._copies = copies
        self._nbytes = nbytes
        self._lock = asyncio.Lock()
        self._home: Home | None = None
        self.nbytes = sum(nbytes)

    @property
    def home(self) -> Home:
        """Current home: the partition object at its backend."""
        assert self._home is not None, "the anchor has not been settled"
        return self._home

    async def settle(
        self, backend_id: uuid.UUID, holders: Sequence[Sequence[uuid.UUID | None]]
    ) -> None:
        """Create the first home; copy aligned blocks that are elsewhere to it.

        Parameters
        ----------
        backend_id : UUID
            Backend of the first collection's blocks.
        holders : sequence of sequence of UUID
            Backend of each block of each collection.
        """
        own = [[backend_id] * len(self._members[0]), *holders[1:]]
        self._home, blocks, nbytes = await self._create_home(backend_id, own)
        self._counter.add(Movement(aligned_blocks=blocks, aligned_nbytes=nbytes))

    async def move(
        self,
        left: Home,
        to: uuid.UUID | None = None,
        missing: Collection[uuid.UUID] = (),
    ) -> None:
        """Create a home where the blocks are now.

        Parameters
        ----------
        left : Home
            The home that failed; if another task has replaced it already, nothing is done.
        to : UUID, optional
            Backend of the new home; by default the one with the most bytes.
        missing : collection of UUID
            Objects that a task did not find there; copies among them are made again.

        Raises
        ------
        BlockLostError
            If blocks are at a lost backend, or nowhere.
        """
        async with self._lock:
            if self._home is not left:
                return
            self._counter.drifted = True
            self._copies.forget(missing)
            every = [object_id for member in self._members for object_id in member]
            found = await self._session.locate(every)
            gone = await self._session.gone_among({one for one in found if one is not None})
            self._check_not_lost(found, gone)
            size = len(self._positions)
            holders = [found[at : at + size] for at in range(0, len(found), size)]
            best = to or self._best(holders[0], left.peer.backend_id)
            self._home, blocks, nbytes = await self._create_home(best, holders)
            self._counter.add(Movement(fetched_blocks=blocks, fetched_nbytes=nbytes))

    def _best(self, holders: Sequence[uuid.UUID | None], present: uuid.UUID) -> uuid.UUID:
        """Return the backend with most bytes of the partition; prefer `present` among equals."""
        bytes_at: Counter[uuid.UUID] = Counter()
        for holder, nbytes in zip(holders, self._nbytes, strict=True):
            assert holder is not None, "lost blocks have been refused"
            bytes_at[holder] += max(nbytes, 1)
        return min(bytes_at, key=lambda one: (-bytes_at[one], one != present, one))

    async def _create_home(
        self, backend_id: uuid.UUID, holders: Sequence[Sequence[uuid.UUID | None]]
    ) -> tuple[Home, int, int]:
        """Create a home; return it with the numbers of copied blocks and bytes."""
        away = {
            object_id: holder
            for ids, held in zip(self._members, holders, strict=True)
            for object_id, holder in zip(ids, held, strict=True)
            if holder is not None and holder != backend_id
        }
        brought = await asyncio.gather(
            *(self._copies.bring(it, holder, backend_id) for it, holder in away.items())
        )
        stands_for = {it: copy.object_id for it, (copy, _) in zip(away, brought, strict=True)}
        members = tuple(packed(stands_for.get(it, it) for it in ids) for ids in self._members)
        peer = self._session.peer(backend_id)
        partition = Freed(peer, uuid.uuid4())
        await peer.at_station("add_partition", self._session.name, partition.object_id, members)
        home = Home(partition, tuple(copy for copy, _ in brought))
        return home, sum(nbytes > 0 for _, nbytes in brought), sum(nbytes for _, nbytes in brought)

    def _check_not_lost(
        self, found: Sequence[uuid.UUID | None], gone: Mapping[uuid.UUID, str]
    ) -> None:
        lost = [at for at, holder in enumerate(found) if holder is None or holder in gone]
        if lost:
            positions = np.unique(self._positions[np.asarray(lost) % len(self._positions)])
            raise lost_blocks(self._grid, positions, gone)


def lost_blocks(
    grid: BlockGrid, positions: IntArray, gone: Mapping[uuid.UUID, str], most: int = 5
) -> BlockLostError:
    """Return the error for blocks at lost backends, or unknown to dataClay.

    Parameters
    ----------
    grid : BlockGrid
        Block grid of their collection.
    positions : ndarray of int64
        Positions of the lost blocks.
    gone : mapping of UUID to str
        Lost backends, with the reasons.
    most : int
        Maximum number of blocks to name.
    """
    blocks = tuple(grid.indexes(positions))
    named = ", ".join(map(str, blocks[:most])) + (", ..." if len(blocks) > most else "")
    where = "; ".join(f"backend {one}: {why}" for one, why in sorted(gone.items()))
    return BlockLostError(
        f"{len(blocks)} block(s) ({named}) are lost"
        + (f" with {where}. " if gone else ": dataClay does not know them any more. ")
        + "Make them again and split the new collection; partitions at other backends are well",
        blocks,
    )
