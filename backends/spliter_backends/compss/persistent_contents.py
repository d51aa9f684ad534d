"""Read the contents of dataClay objects inside a PyCOMPSs task, one by one."""

from __future__ import annotations

import functools
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload


@dataclass(frozen=True)
class PersistentObjects:
    """Persistent objects whose contents are the blocks.

    Parameters
    ----------
    ids : tuple of UUID
        Ids of the objects, in order; empty if the objects themselves are inputs.
    service : tuple of (str, int)
        Host and port of the metadata service.
    """

    ids: tuple[uuid.UUID, ...]
    service: tuple[str, int]


class PersistentContents(Sequence[Any]):
    """Contents of persistent objects, each read on access.

    Parameters
    ----------
    persistent : PersistentObjects
        Ids of the objects.
    given : sequence
        The objects, if the task received them as inputs.
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
            return _content(self._given[index])
        return _content(_object(self._persistent.ids[index], self._persistent.service))


def _content(value: Any) -> Any:
    """Return what partitions yield for a persistent object."""
    for name in ("spliter_copy", "spliter_block"):
        own = getattr(value, name, None)
        if own is not None:
            return own()
    return value


def _object(object_id: Any, service: tuple[str, int]) -> Any:
    from dataclay import DataClayObject
    from dataclay.config import get_runtime

    if get_runtime() is None:
        _client_of_process(os.getpid(), service)
    return DataClayObject.get_by_id(object_id)


@functools.cache
def _client_of_process(process: int, service: tuple[str, int]) -> Any:
    """Start a client in a worker; cached per process, as a fork copies the cache."""
    from dataclay import Client

    client = Client(host=service[0], port=service[1])
    client.start()
    return client
