"""Read the contents of dataClay's persistent objects inside a PyCOMPSs task, one by one."""

from __future__ import annotations

import functools
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload


@dataclass(frozen=True)
class Persistent:
    """Persistent objects whose content is the blocks.

    Parameters
    ----------
    ids : tuple of UUID
        Of the objects, in the order of inputs; none if they are inputs themselves.
    service : tuple of (str, int)
        Address of the metadata service.
    """

    ids: tuple[uuid.UUID, ...]
    service: tuple[str, int]


class Contents(Sequence[Any]):
    """The contents of persistent objects, each read when it is asked for.

    Parameters
    ----------
    persistent : Persistent
        Which objects.
    given : sequence
        The objects, if the task was given them.
    """

    def __init__(self, persistent: Persistent, given: Sequence[Any]) -> None:
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
        """Return the content of one object, or of some."""
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
    """Start a client in a worker; by process, as a fork copies what this remembers."""
    from dataclay import Client

    client = Client(host=service[0], port=service[1])
    client.start()
    return client
