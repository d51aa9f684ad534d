"""Read the contents of dataClay objects inside a PyCOMPSs task, each by itself."""

from __future__ import annotations

import functools
import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

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

    def content(self, number: int, given: Sequence[Any]) -> Any:
        """Return the content of an object, read now; `given` are those that are inputs."""
        return content_of(object_of(self.ids[number], self.service) if self.ids else given[number])


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
