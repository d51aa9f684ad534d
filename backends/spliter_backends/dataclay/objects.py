"""Persistent classes that SplIter keeps in dataClay; backends import them from here.

``Block``
    One block of a collection, in ``content``.
``PartitionObject``
    Ids of the blocks of one partition, at their backend; tasks are methods of it.
``RequestHandler``
    One per backend, with an id derived from the backend's; receives clients' requests.

Their methods only forward to ``worker.tasks``, which has no state in dataClay.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from spliter.backend import count_rows
from spliter_backends._shared.readable import block_nbytes
from spliter_backends.dataclay.output import suppress_output
from spliter_backends.dataclay.worker import tasks
from spliter_backends.dataclay.worker.source import read_records

with suppress_output():
    from dataclay import DataClayObject, activemethod


class Block(DataClayObject):  # type: ignore[misc]
    """One block: any picklable object, usually an array.

    content: The block. It stays at its backend; reading the attribute elsewhere fetches a copy.
    """

    content: Any

    def __init__(self, content: Any) -> None:
        self.content = content

    def spliter_block(self) -> Any:
        """Return what partitions yield for this object, without a copy; called at its backend.

        Any persistent class may have a method of this name. Objects of classes without one
        are yielded themselves.
        """
        # Reading the attribute at another backend would call the object's backend.
        return vars(self)["_dc_property_content"]

    def spliter_copy(self) -> Any:
        """Return what partitions yield for this object in a process that is no backend: a copy."""
        return self.content


def keep_blocks(blocks: Sequence[Any]) -> list[tuple[uuid.UUID, int, int]]:
    """Make blocks persistent at this backend; return id, bytes and rows of each; a task."""
    made = []
    for content in blocks:
        block = Block(content)
        made.append((block._dc_meta.id, block_nbytes(content), count_rows(content)))
    return made


class _Runner(DataClayObject):  # type: ignore[misc]
    """Base class of objects that tasks are called on."""

    @activemethod  # type: ignore[untyped-decorator]
    def run(self, call: bytes, given: Sequence[bytes | str], name: str) -> tuple[Any, ...]:
        """Run a task; see ``worker.tasks.run``."""
        return tasks.run(call, given, name)


class PartitionObject(_Runner):
    """References to the blocks of one partition.

    members: For each aligned collection the ids of its blocks, in the partition's order, 16 bytes
        each.
    """

    members: tuple[bytes, ...]

    def __init__(self, members: tuple[bytes, ...]) -> None:
        self.members = members


class RequestHandler(_Runner):
    """Receives requests of clients to a backend."""

    @activemethod  # type: ignore[untyped-decorator]
    def request(self, what: str, *arguments: Any) -> tuple[Any, ...]:
        """Handle a request; see ``worker.tasks.handle_request``."""
        return tasks.handle_request(what, *arguments)

    # Coroutines run on the backend's event loop: they do not wait for a free thread, and tasks may
    # occupy all threads for any time.

    @activemethod  # type: ignore[untyped-decorator]
    async def renew(self, client: str, seconds: float) -> None:
        """Renew the lease of a client; see ``worker.leases``."""
        tasks.LEASES.renew(client, seconds)

    @activemethod  # type: ignore[untyped-decorator]
    async def records(self, object_ids: bytes) -> tuple[bytes, bytes]:
        """Return the attributes of objects of this backend; see ``worker.source``."""
        return await read_records(object_ids)

    @activemethod  # type: ignore[untyped-decorator]
    async def add_partition(
        self, client: str, object_id: uuid.UUID, members: tuple[bytes, ...]
    ) -> None:
        """Create a :class:`PartitionObject` with a given id at this backend, for a client."""
        proxy = PartitionObject.new_proxy_object()
        await tasks.add_partition(proxy, client, object_id, members)
