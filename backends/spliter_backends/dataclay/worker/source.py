"""The blocks of a partition in the process of their backend: found, read, put into one.

Blocks are read from the memory of this process, without a copy. dataClay may have written them
to disk, or be moving them while they are read: they are loaded, or the task is told that they
are away.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psutil

from spliter import NotEnoughMemoryError, PartitionNotLocalError
from spliter.backend import Once, check_rows, concatenate
from spliter_backends.dataclay.message import object_by_id, unpacked
from spliter_backends.dataclay.quiet import quiet

with quiet():
    from dataclay import event_loop
    from dataclay.config import get_runtime
    from dataclay.exceptions import DoesNotExistError

LOOKS: Final = 5
"""Times that a block is looked for while dataClay writes it to disk, or reads it, meanwhile."""

as_one: Final[dict[uuid.UUID, Once[Any]]] = {}
"""Blocks put into one, by the id of their partition object."""


class StaleError(BaseException):
    """Objects are not at this backend. Not an ``Exception``: no task is to catch it."""

    def __init__(self, object_ids: Sequence[uuid.UUID]) -> None:
        super().__init__(object_ids)
        self.object_ids = list(object_ids)


def here() -> Any:
    """Return the id of the backend that this process is."""
    return get_runtime().backend_id


def on_loop(coroutine: Coroutine[Any, Any, Any], timeout: float | None = None) -> Any:
    """Run a coroutine of dataClay's from an active method's thread."""
    loop = event_loop.get_dc_event_loop()
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result(timeout)


def at_home(object_id: uuid.UUID) -> Any:
    """Return an object of this backend, in memory.

    Parameters
    ----------
    object_id : UUID
        Its id.

    Returns
    -------
    DataClayObject
        The object itself.

    Raises
    ------
    StaleError
        If it is elsewhere, or a copy of it is here that nobody keeps up to date.
    """
    try:
        found = object_by_id(object_id)
    except DoesNotExistError:
        raise StaleError([object_id]) from None
    if _is_at_home(found) and not found._dc_is_loaded:
        on_loop(get_runtime().data_manager.load_object(found))
    if not _is_at_home(found):
        raise StaleError([object_id])
    return found


def _is_at_home(found: Any) -> bool:
    return found._dc_is_local and not found._dc_is_replica


def block_of(object_id: uuid.UUID) -> Any:
    """Return the block that an object of this backend stands for, not a copy.

    Parameters
    ----------
    object_id : UUID
        Id of a persistent object.

    Returns
    -------
    object
        What its ``spliter_block`` method returns, or the object if its class has none.

    Raises
    ------
    StaleError
        If it is elsewhere.
    Exception
        What the method raises.
    """
    for _ in range(LOOKS):
        found = at_home(object_id)
        if not hasattr(type(found), "spliter_block"):
            return found
        try:
            return found.spliter_block()
        except Exception:
            if on_loop(_is_in_memory(found)):
                raise  # the method's own: its object is there
    raise StaleError([object_id])


async def _is_in_memory(found: Any) -> bool:
    # On the event loop, where dataClay takes objects away: not in the middle of that.
    return _is_at_home(found) and found._dc_is_loaded


@dataclass(frozen=True, eq=False)
class StationSource:
    """The blocks of one partition, by the id of its partition object.

    Parameters
    ----------
    partition_id : UUID
        Of the partition object.
    nbytes : int
        Bytes of its blocks, as far as known.
    """

    partition_id: uuid.UUID
    nbytes: int

    def read(self) -> Iterator[Any]:
        """Return an iterator over the blocks, or tuples of aligned blocks."""
        return _read(self._members())

    def materialized(self) -> Any:
        """Return the blocks as one, made once for all tasks here and kept with the partition."""
        members = self._members()
        total = psutil.virtual_memory().total
        if self.nbytes > total:
            raise NotEnoughMemoryError(
                f"the partition has {self.nbytes} bytes, and the machine of backend {here()} has "
                f"{total} in all; iterate over its blocks, or split into more "
                "partitions_per_location"
            )
        once = as_one.setdefault(self.partition_id, Once())
        return once.get(lambda: concatenate(_read(members)))

    def settle(self) -> None:
        """Make sure that partition and blocks are here.

        Raises
        ------
        StaleError
            With the ids of those that are not.
        """
        objects = get_runtime().inmemory_objects
        members = at_home(self.partition_id).members
        missing = []
        for object_id in (object_id for member in members for object_id in unpacked(member)):
            found = objects.get(object_id)
            if found is None:  # written to disk, perhaps
                try:
                    found = object_by_id(object_id)
                except DoesNotExistError:
                    missing.append(object_id)
                    continue
            if not _is_at_home(found):
                missing.append(object_id)
        if missing:
            raise StaleError(missing)

    def _members(self) -> list[list[uuid.UUID]]:
        runtime = get_runtime()
        try:
            if runtime is not None and runtime.is_backend:
                return [unpacked(member) for member in at_home(self.partition_id).members]
        except StaleError:
            pass  # it is another backend's
        raise PartitionNotLocalError(
            "this partition's blocks are at a dataClay backend, not here; give it to a function "
            "decorated with spliter.task, or to partition.submit(fn)"
        )


def _read(members: Sequence[Sequence[uuid.UUID]]) -> Iterator[Any]:
    if len(members) == 1:
        yield from map(block_of, members[0])
        return
    for at, object_ids in enumerate(zip(*members, strict=True)):
        blocks = tuple(map(block_of, object_ids))
        check_rows(blocks, f"position {at} of their partition")
        yield blocks
