"""Read the contents of dataClay objects inside a PyCOMPSs task, each by itself."""

from __future__ import annotations

import functools
import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, overload

from spliter.backend import Fetches, Prefetch


@dataclass(frozen=True)
class PersistentObjects:
    """Persistent objects whose contents are the blocks.

    ids: Ids of the objects, in order; empty if the objects themselves are inputs.
    service: Host and port of the metadata service.
    nbytes: Bytes of each block, with its aligned blocks.
    prefetch ("auto", False or int): How many blocks to read ahead.
    """

    ids: tuple[uuid.UUID, ...]
    service: tuple[str, int]
    nbytes: tuple[int, ...]
    prefetch: Prefetch

    def fetches(self, read: Callable[[int], Any], location: str) -> Fetches | None:
        """Return the reads, by number, of a partition's blocks, each of which copies them."""
        if self.prefetch is False:
            return None
        if self.ids:
            connect(self.service)  # here, as the threads get a copy of this one's credentials
        # COMPSs runs each task in a process of its own, one per core or fewer.
        processes = os.cpu_count() or 1
        return Fetches(read, self.nbytes, self.prefetch, location, processes=processes)


class PersistentContents(Sequence[Any]):
    """Contents of persistent objects, each read on access.

    given: The objects, if the task received them as inputs.
    """

    def __init__(self, persistent: PersistentObjects, given: Sequence[Any]) -> None:
        self._persistent = persistent
        self._given = given

    def __len__(self) -> int:
        """Return the number of objects."""
        return len(self._persistent.ids) or len(self._given)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        """Return the content of one object, or of a slice of them."""
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if not self._persistent.ids:
            return content_of(self._given[index])
        return content_of(object_of(self._persistent.ids[index], self._persistent.service))


def content_of(value: Any) -> Any:
    """Return what partitions yield for a persistent object."""
    for name in ("spliter_copy", "spliter_block"):
        own = getattr(value, name, None)
        if own is not None:
            return own()
    return value


def object_of(object_id: uuid.UUID, service: tuple[str, int]) -> Any:
    """Return a reference to a persistent object by its id."""
    from dataclay import DataClayObject

    connect(service)
    return DataClayObject.get_by_id(object_id)


def connect(service: tuple[str, int]) -> None:
    """Start a dataClay client in this process, unless there is one."""
    from dataclay.config import get_runtime

    if get_runtime() is None:
        _client_of_process(os.getpid(), service)


@functools.cache
def _client_of_process(process: int, service: tuple[str, int]) -> Any:
    """Start a client in a worker; cached per process, as a fork copies the cache."""
    from dataclay import Client

    client = Client(host=service[0], port=service[1])
    client.start()
    return client
