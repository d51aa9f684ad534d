"""The persistent classes that SplIter keeps in dataClay; backends import them from here.

``Block``
    One block of a collection: whatever is in ``content``.
``PartitionObject``
    The blocks of one partition, by id, at their backend; tasks are called on it.
``Station``
    One at each backend, always with the same id: what clients ask a backend by.

Their methods only pass on to ``worker.tasks``, which has no state in dataClay.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from spliter_backends.dataclay.quiet import quiet
from spliter_backends.dataclay.worker import tasks as station

with quiet():
    from dataclay import DataClayObject, activemethod


class Block(DataClayObject):  # type: ignore[misc]
    """One block: any picklable object, an array as a rule.

    Parameters
    ----------
    content : object
        The block. It stays at its backend; reading the attribute elsewhere brings a copy.
    """

    content: Any

    def __init__(self, content: Any) -> None:
        self.content = content

    def spliter_block(self) -> Any:
        """Return what partitions yield for this object; called at its backend.

        Any persistent class may have a method of this name. Objects of classes without one
        are yielded themselves.

        Returns
        -------
        object
            The content, not a copy.
        """
        # Not the attribute: away from home that would ask another backend.
        return vars(self)["_dc_property_content"]

    def spliter_copy(self) -> Any:
        """Return what partitions yield for this object, in a process that is no backend.

        Returns
        -------
        object
            A copy of the content.
        """
        return self.content


class _Runner(DataClayObject):  # type: ignore[misc]
    """Something that tasks can be called on."""

    @activemethod  # type: ignore[untyped-decorator]
    def run(self, call: bytes, given: Sequence[bytes | str], name: str) -> tuple[Any, ...]:
        """Run a task; see ``worker.tasks.run``."""
        return station.run(call, given, name)


class PartitionObject(_Runner):
    """The blocks of one partition, by reference.

    Parameters
    ----------
    members : tuple of bytes
        For each aligned collection the ids of its blocks, in the partition's order, 16 bytes
        each.
    """

    members: tuple[bytes, ...]

    def __init__(self, members: tuple[bytes, ...]) -> None:
        self.members = members


class Station(_Runner):
    """What clients ask a backend by."""

    @activemethod  # type: ignore[untyped-decorator]
    def ask(self, what: str, *question: Any) -> tuple[Any, ...]:
        """Answer a question; see ``worker.tasks.answer``."""
        return station.answer(what, *question)

    # Coroutines run on the backend's event loop: they need not wait until a thread is free, and
    # tasks may have all threads for as long as they like.

    @activemethod  # type: ignore[untyped-decorator]
    async def renew(self, client: str, seconds: float) -> None:
        """Renew the lease of a client; see ``worker.leases``."""
        station.LEASES.renew(client, seconds)

    @activemethod  # type: ignore[untyped-decorator]
    async def add_partition(
        self, client: str, object_id: uuid.UUID, members: tuple[bytes, ...]
    ) -> None:
        """Make a :class:`PartitionObject` with a given id at this backend, for a client."""
        proxy = PartitionObject.new_proxy_object()
        await station.add_partition(proxy, client, object_id, members)
