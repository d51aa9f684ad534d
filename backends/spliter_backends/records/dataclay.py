"""Records in dataClay, by the ids of persistent objects: one call for each of their backends."""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spliter import InvalidArgumentError, RecordSourceError
from spliter_backends.dataclay.client.backend_calls import MAX_ATTEMPTS, BackendLostError
from spliter_backends.dataclay.client.session import Session, session_here
from spliter_backends.dataclay.message import decode, pack_ids, unpack_ids
from spliter_backends.dataclay.worker.tasks import locate


@dataclass(frozen=True)
class DataClaySource:
    """Persistent objects of the dataClay that this process is a backend or a client of.

    Keys are their ids, as ``uuid.UUID`` or as text. A record is a dictionary of the attributes of
    an object; methods are not called.

    Parameters
    ----------
    max_batch : int, default 500
        Objects in a request.
    timeout : float, default 30
        Maximum wait for a batch, in seconds.

    Examples
    --------
    >>> DataClaySource(max_batch=20)
    DataClaySource(max_batch=20, timeout=30.0)
    """

    max_batch: int = 500
    timeout: float = 30.0

    def get(self, key: uuid.UUID | str) -> Any:
        """Return the attributes of an object, or None; see :meth:`get_many`."""
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[uuid.UUID | str]) -> list[Any]:
        """Return the attributes of objects; None for ids that dataClay does not know.

        Raises
        ------
        RecordSourceError
            If a backend that has some is lost, or does not answer in time.
        BackendNotUsableError
            If this process has no dataClay.
        """
        object_ids = list(map(_id_of, keys))
        session = session_here()
        try:
            found = session.wait(_read(session, object_ids), self.timeout)
        except (BackendLostError, TimeoutError) as error:
            reason = str(error) or f"no answer in {self.timeout:g} s"
            raise RecordSourceError(
                f"dataClay cannot read {len(keys)} records: {reason}; check its backends"
            ) from None
        return [found.get(one) for one in object_ids]


def _id_of(key: object) -> uuid.UUID:
    try:
        return key if isinstance(key, uuid.UUID) else uuid.UUID(str(key))
    except ValueError:
        raise InvalidArgumentError(
            f"keys of DataClaySource must be ids of objects, got {key!r}"
        ) from None


async def _read(session: Session, object_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, Any]:
    """Return the records of objects, also of those that are moved meanwhile."""
    found: dict[uuid.UUID, Any] = {}
    left = list(object_ids)
    for _ in range(MAX_ATTEMPTS):
        at: defaultdict[uuid.UUID, list[uuid.UUID]] = defaultdict(list)
        for object_id, backend_id in zip(left, await _located(session, left), strict=True):
            if backend_id is not None:
                at[backend_id].append(object_id)
        calls = (
            session.peer(backend_id).call_handler("records", pack_ids(here))
            for backend_id, here in at.items()
        )
        left = []
        for message, away in await asyncio.gather(*calls):
            found |= decode(message)
            left += unpack_ids(away)
        if not left:
            return found
    raise TimeoutError(f"{len(left)} objects keep moving")


async def _located(session: Session, object_ids: Sequence[uuid.UUID]) -> list[uuid.UUID | None]:
    """Return the backend of each object; None for those that dataClay does not know."""
    if not session.runtime.is_backend:
        return await session.locate(object_ids)
    # Other backends may have no thread left to answer.
    found = await asyncio.to_thread(locate, pack_ids(object_ids))
    return [one if one.int else None for one in unpack_ids(found)]
