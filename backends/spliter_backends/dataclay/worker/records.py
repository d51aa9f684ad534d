"""Return the records of objects at this backend to lookups in any process.

On the backend's event loop: it needs no thread, all of which may be waiting for records of each
other's backends, and dataClay unloads objects there, so none is unloaded while it is read. Code of
the objects is not called.
"""

from __future__ import annotations

import uuid
from typing import Any, Final

from spliter_backends.dataclay.message import encode, pack_ids, unpack_ids
from spliter_backends.dataclay.output import suppress_output

with suppress_output():
    from dataclay.config import get_runtime
    from dataclay.exceptions import DoesNotExistError

PREFIX: Final = "_dc_property_"
"""Of dataClay's names for the attributes of an object."""


async def read_records(object_ids: bytes) -> tuple[bytes, bytes]:
    """Return a message with the records of the objects that are here, and the ids of the others."""
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
