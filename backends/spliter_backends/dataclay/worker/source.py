"""Source of a partition at its backend: locate, read and concatenate its blocks.

Blocks are read from the memory of this process, without a copy. If dataClay has written a block to
disk, it is loaded, possibly before its turn; if dataClay has moved it, the task gets `StaleError`.
"""

from __future__ import annotations

import asyncio
import functools
import uuid
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from spliter import NotEnoughMemoryError
from spliter.backend import (
    BlockSource,
    CachedValue,
    Fetches,
    Prefetch,
    blocks_of,
    check_rows,
    concatenate,
    not_local_error,
)
from spliter_backends.dataclay.message import encode, object_by_id, pack_ids, unpack_ids
from spliter_backends.dataclay.output import suppress_output

with suppress_output():
    from dataclay import event_loop
    from dataclay.config import get_runtime, settings
    from dataclay.exceptions import DoesNotExistError

AT_BACKEND: Final = "at a dataClay backend"

PREFIX: Final = "_dc_property_"
"""Of dataClay's names for the attributes of an object."""

READ_ATTEMPTS: Final = 5
"""Maximum attempts to read a block that dataClay is writing to disk or reading at the same time."""

concatenated: Final[dict[uuid.UUID, CachedValue[Any]]] = {}
"""Concatenated blocks, by the id of their partition object."""


class StaleError(BaseException):
    """Objects are not at this backend. Not an ``Exception``, so that tasks do not catch it."""

    def __init__(self, object_ids: Sequence[uuid.UUID]) -> None:
        super().__init__(object_ids)
        self.object_ids = list(object_ids)


def this_backend() -> Any:
    """Return the id of the backend that this process is."""
    return get_runtime().backend_id


def on_loop(coroutine: Coroutine[Any, Any, Any], timeout: float | None = None) -> Any:
    """Run a coroutine of dataClay from an active method's thread."""
    loop = event_loop.get_dc_event_loop()
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result(timeout)


def local_object(object_id: uuid.UUID) -> Any:
    """Return an object of this backend, loaded into memory.

    Raises `StaleError` if it is elsewhere, or if only a replica, which is not kept up to date, is
    here.
    """
    try:
        found = object_by_id(object_id)
    except DoesNotExistError:
        raise StaleError([object_id]) from None
    if _is_local(found) and not found._dc_is_loaded:
        on_loop(get_runtime().data_manager.load_object(found))
    if not _is_local(found):
        raise StaleError([object_id])
    return found


def _is_local(found: Any) -> bool:
    return found._dc_is_local and not found._dc_is_replica


def block_of(object_id: uuid.UUID) -> Any:
    """Return the block of an object at this backend, without a copy.

    It is the result of its ``spliter_block`` method, or the object itself if its class has none.
    Raises `StaleError` if it is elsewhere, or the error of the method.
    """
    for _ in range(READ_ATTEMPTS):
        found = local_object(object_id)
        if not hasattr(type(found), "spliter_block"):
            return found
        try:
            return found.spliter_block()
        except Exception:
            if on_loop(_is_in_memory(found)):
                raise  # the method's own error: its object is in memory
    raise StaleError([object_id])


async def _is_in_memory(found: Any) -> bool:
    # On the event loop, where dataClay unloads objects, so that it cannot happen at the same time.
    return _is_local(found) and found._dc_is_loaded


@dataclass(eq=False)
class BackendSource(BlockSource):
    """Source of one partition at its backend, by the id of its partition object.

    nbytes: Bytes of its blocks, as far as known.
    prefetch ("auto", False or int): How many blocks to read ahead.
    """

    partition_id: uuid.UUID
    nbytes: int
    prefetch: Prefetch
    has_unloaded: bool = field(default=False, init=False)
    """Whether blocks were on disk when the task began."""

    def read(self) -> Iterator[Any]:
        """Return an iterator over the blocks, or tuples of aligned blocks."""
        members = self._members()
        return map(functools.partial(_read, members), range(len(members[0])))

    def fetches(self) -> Fetches | None:
        """Return the reads of the blocks; None if all are in memory."""
        if self.prefetch is False or not self.has_unloaded:
            return None
        members = self._members()
        nbytes = [sum(map(_nbytes_on_disk, ids)) for ids in zip(*members, strict=True)]
        if not any(nbytes):
            return None
        read = functools.partial(_read, members)
        return Fetches(
            read, nbytes, self.prefetch, str(this_backend()), has_memory=_has_memory_to_spare
        )

    def materialized(self) -> Any:
        """Return the concatenated blocks, made once and shared by all tasks of this process."""
        self._members()  # check that this is their backend
        total = psutil.virtual_memory().total
        if self.nbytes > total:
            raise NotEnoughMemoryError(
                f"the partition has {self.nbytes} bytes, and the machine of backend "
                f"{this_backend()} has {total} in all; iterate over the blocks, or increase "
                "partitions_per_location"
            )
        once = concatenated.setdefault(self.partition_id, CachedValue())
        return once.get(lambda: concatenate(blocks_of(self)))

    def check_present(self) -> None:
        """Check that the partition and its blocks are here, and whether they are in memory.

        Raises `StaleError` with the ids of missing objects.
        """
        objects = get_runtime().inmemory_objects
        members = local_object(self.partition_id).members
        missing = []
        for object_id in (object_id for member in members for object_id in unpack_ids(member)):
            found = objects.get(object_id)
            if found is None:  # possibly written to disk
                try:
                    found = object_by_id(object_id)
                except DoesNotExistError:
                    missing.append(object_id)
                    continue
            if not _is_local(found):
                missing.append(object_id)
            self.has_unloaded |= not found._dc_is_loaded
        if missing:
            raise StaleError(missing)

    def _members(self) -> list[list[uuid.UUID]]:
        runtime = get_runtime()
        try:
            if runtime is not None and runtime.is_backend:
                return [unpack_ids(member) for member in local_object(self.partition_id).members]
        except StaleError:
            pass  # it is at another backend
        raise not_local_error(AT_BACKEND)


def _read(members: Sequence[Sequence[uuid.UUID]], number: int) -> Any:
    """Return a block of a partition, or a tuple of aligned blocks."""
    if len(members) == 1:
        return block_of(members[0][number])
    blocks = tuple(block_of(member[number]) for member in members)
    check_rows(blocks, f"position {number} of their partition")
    return blocks


def _nbytes_on_disk(object_id: uuid.UUID) -> int:
    """Return the bytes of an object that dataClay has written to disk; 0 if it is in memory."""
    if object_id in get_runtime().data_manager.loaded_objects:
        return 0
    try:
        return Path(settings.storage_path, str(object_id)).stat().st_size
    except OSError:  # possibly loaded meanwhile
        return 0


def _has_memory_to_spare() -> bool:
    """Return whether dataClay is not about to write objects to disk."""
    return not get_runtime().data_manager.is_memory_over_threshold()


async def read_records(object_ids: bytes) -> tuple[bytes, bytes]:
    """Return a message with the records of the objects that are here, and the ids of the others.

    On the backend's event loop: it needs no thread, all of which may be waiting for records of each
    other's backends, and dataClay unloads objects there, so none is unloaded while it is read. Code
    of the objects is not called.
    """
    records = {one: await _attributes(one) for one in unpack_ids(object_ids)}
    away = [one for one, record in records.items() if record is None]
    here = {one: record for one, record in records.items() if record is not None}
    return encode(here).join(), pack_ids(away)


async def _attributes(object_id: uuid.UUID) -> dict[str, Any] | None:
    """Return the attributes of an object; None if it is elsewhere or does not exist."""
    try:
        found = await get_runtime().get_object_by_id(object_id)
    except DoesNotExistError:
        return None
    if found._dc_is_local and not found._dc_is_replica and not found._dc_is_loaded:
        await get_runtime().data_manager.load_object(found)
    if not found._dc_is_local or found._dc_is_replica or not found._dc_is_loaded:
        return None
    return {name.removeprefix(PREFIX): value for name, value in found._dc_properties.items()}
