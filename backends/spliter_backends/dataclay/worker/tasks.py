"""Run tasks in the process of a backend, and keep data there for clients.

A task arrives as one call of an active method. Its partitions refer to blocks by id; blocks in this
process's memory are yielded without a copy. A block that is not here is never requested from
another backend: two backends whose tasks wait for each other would deadlock. Instead the task ends
with ``StaleError``, and the client locates the block and sends the task again::

    run(call) ──> all blocks here ──> fn(partition) ──> small result: in the reply
                    │                                   large one:    kept here, named in the reply
                    └─> some are not ──> "stale", their ids

Results, concatenated blocks, and messages received or sent in chunks are kept in the dictionaries
below until the client frees them by name, or its lease ends. Each name starts with the name of its
client.
"""

from __future__ import annotations

import contextlib
import json
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import psutil

from spliter import BlockLostError, Partition, TaskNotSerializableError
from spliter_backends._shared.error_codec import result_not_pickled
from spliter_backends._shared.readable import block_nbytes
from spliter_backends.dataclay.message import (
    CLIENT_LENGTH,
    ERRORS,
    PickledMessage,
    TooLargeError,
    decode,
    encode,
    pack_ids,
    unpack_ids,
)
from spliter_backends.dataclay.output import suppress_output
from spliter_backends.dataclay.worker.leases import Leases
from spliter_backends.dataclay.worker.source import (
    BackendSource,
    StaleError,
    concatenated,
    local_object,
    on_loop,
    this_backend,
)

with suppress_output():
    from dataclay import event_loop
    from dataclay.config import get_runtime, settings
    from dataclay.lock_manager import lock_manager

INLINE_NBYTES: Final = 2**18
"""Results of up to this size are sent with the reply. Fetching one later costs another call,
which takes about as long as moving half a megabyte."""

STORE_BATCH: Final = 2000
"""Objects per request to the key-value store, which serves no other client in the meantime."""

STORE_SECONDS: Final = 30.0

_results: dict[str, Any] = {}
_outgoing: dict[str, PickledMessage] = {}
_incoming: dict[str, bytearray] = {}
_objects: dict[uuid.UUID, str] = {}
"""Owning client of each partition object, and of each copy of a block."""


def run(call: bytes, given: Sequence[bytes | str], name: str) -> tuple[Any, ...]:
    """Run a task.

    Returns ``("done", message)``, ``("kept",)``, ``("failed", message of the error)`` or
    ``("stale", ids)``. `call` is the message of function and arguments; `given` are the values that
    it refers to: messages of partitions and results, or names of results that are kept here. Its
    result may be kept under `name`.
    """
    try:
        fn, args, kwargs = _unpickle_call(call, given)
        return _reply(fn(*args, **kwargs), name)
    except StaleError as stale:
        return "stale", stale.object_ids
    except BaseException as error:  # noqa: BLE001 -- raised when the result is requested
        return "failed", ERRORS.encode(error)


def _unpickle_call(call: bytes, given: Sequence[bytes | str]) -> tuple[Any, Any, Any]:
    """Unpickle a call, and check that the blocks of its partitions are here."""
    referred = [_result(it) if isinstance(it, str) else _unpickle(it) for it in given]
    for value in referred:
        if isinstance(value, Partition) and isinstance(value.source, BackendSource):
            value.source.check_present()
    fn, args, kwargs = _unpickle(call, referred)
    return fn, args, kwargs


def _unpickle(message: bytes, referred: Sequence[Any] = ()) -> Any:
    try:
        return decode(message, referred)
    except Exception as error:
        raise TaskNotSerializableError(
            f"the task or one of its arguments cannot be unpickled at backend {this_backend()}: "
            f"{error!r}; install its modules there, or send them by value "
            "(cloudpickle.register_pickle_by_value)"
        ) from error


def _result(name: str) -> Any:
    try:
        return _results[name]
    except KeyError:
        raise BlockLostError(
            f"backend {this_backend()} no longer has the result of an earlier task: it was "
            "restarted, or this program did not renew its lease in time; run that task again"
        ) from None


def _reply(result: Any, name: str) -> tuple[Any, ...]:
    try:
        return "done", encode(result, most=INLINE_NBYTES).join()
    except TooLargeError:
        _results[name] = result
        _ensure_lease(name)
        return ("kept",)
    except Exception as error:
        raise result_not_pickled(result, error) from error


def _ensure_lease(name: str) -> None:
    LEASES.ensure(name[:CLIENT_LENGTH])


def _describe() -> Mapping[str, Any]:
    """Return cores, host and free memory, which the client uses for planning."""
    memory = psutil.virtual_memory()
    threads = event_loop.io_bound_executor._max_workers
    # Beyond this limit dataClay writes objects to disk.
    spared = int(memory.total * (1 - settings.memory_threshold_high))
    return {
        "cores": max(1, min(event_loop.cpu_count, threads)),
        "host": socket.gethostname(),
        "free": max(0, memory.available - spared),
    }


def locate(object_ids: bytes) -> bytes:
    """Return the backend of each object, 16 bytes each, as recorded in the key-value store."""
    store = get_runtime().metadata_service.kv_manager._client
    keys = [f"/object/{object_id}" for object_id in unpack_ids(object_ids)]
    found = bytearray()
    for start in range(0, len(keys), STORE_BATCH):
        values = on_loop(_mget(store, keys[start : start + STORE_BATCH]), STORE_SECONDS)
        for value in values:
            master = None if value is None else json.loads(value)["master_backend_id"]
            found += uuid.UUID(master).bytes if master else bytes(16)
    return bytes(found)


async def _mget(store: Any, keys: Sequence[str]) -> Any:
    return await store.mget(keys)


def _sizes(object_ids: bytes) -> list[int]:
    """Return the bytes of objects; 0 for objects not in memory here."""
    return [_size(get_runtime().inmemory_objects.get(it)) for it in unpack_ids(object_ids)]


def _size(found: Any) -> int:
    if found is None or not found._dc_is_local or not found._dc_is_loaded:
        return 0
    return sum(map(block_nbytes, found._dc_properties.values()))


def _pull(transfer: str, what: str | uuid.UUID, start: int, stop: int) -> tuple[int, bytes]:
    """Return the length and a chunk of the message of a result, or of an object to be copied."""
    pickled = _outgoing.get(transfer)
    if pickled is None:
        pickled = _pickle_result(what) if isinstance(what, str) else encode(_content_of(what))
    if stop < pickled.nbytes:
        _outgoing[transfer] = pickled
        _ensure_lease(transfer)
    else:
        _outgoing.pop(transfer, None)
    return pickled.nbytes, pickled.chunk(start, stop)


def _pickle_result(name: str) -> PickledMessage:
    result = _result(name)
    try:
        return encode(result)
    except Exception as error:
        raise result_not_pickled(result, error) from error


def _content_of(object_id: uuid.UUID) -> tuple[type, Any, Any]:
    found = local_object(object_id)
    _, properties, state = found._dc_state
    return type(found), properties, state


def _push(transfer: str, total: int, start: int, chunk: bytes) -> None:
    """Store a chunk of a message."""
    if not start:
        _incoming[transfer] = bytearray(total)
        _ensure_lease(transfer)
    message = _incoming.get(transfer)
    if message is None:
        raise _transfer_lost()
    message[start : start + len(chunk)] = chunk


def _transfer_lost() -> BlockLostError:
    return BlockLostError(
        f"backend {this_backend()} no longer has the part of a block that it had received: it was "
        "restarted, or this program did not renew its lease in time; run the task again"
    )


def _create_copy(transfer: str) -> tuple[uuid.UUID, int]:
    """Create a copy of another backend's object from its message; return its id and bytes."""
    if transfer not in _incoming:
        raise _transfer_lost()
    kind, properties, state = decode(_incoming.pop(transfer))
    copy = kind.new_proxy_object()
    if state is None:
        vars(copy).update(properties)
    else:
        copy.__setstate__(state)
    _set_owner(copy._dc_meta.id, transfer[:CLIENT_LENGTH])
    copy.make_persistent()
    return copy._dc_meta.id, _size(copy)


def _set_owner(object_id: uuid.UUID, client: str) -> None:
    """Record the owning client of an object."""
    _objects[object_id] = client
    LEASES.ensure(client)


async def add_partition(
    partition: Any, client: str, object_id: uuid.UUID, members: tuple[bytes, ...]
) -> None:
    """Make a proxy a persistent partition object here, with a given id and for a client."""
    partition._dc_meta.id = object_id
    partition._dc_property_members = members
    _set_owner(object_id, client)
    await get_runtime().make_persistent(partition)


def _free(names: Sequence[str], object_ids: bytes) -> None:
    """Free results and transfers by name, and objects that SplIter created."""
    for name in names:
        for kept in (_results, _outgoing, _incoming):
            kept.pop(name, None)
    for object_id in unpack_ids(object_ids):
        concatenated.pop(object_id, None)
        with contextlib.suppress(StaleError):
            _delete(object_id, local_object(object_id))
        _objects.pop(object_id, None)


def _delete(object_id: uuid.UUID, found: Any) -> None:
    """Delete an object, for which dataClay has no method."""
    # dataClay does the same to an original replaced by a version: it removes properties, the
    # reference and the store's entry.
    on_loop(get_runtime().proxify_object(found, object_id))
    lock_manager.locks.pop(object_id, None)
    Path(settings.storage_path, str(object_id)).unlink(missing_ok=True)


def _free_client(client: str) -> None:
    """Free everything kept for a client."""
    kept = [*_results, *_outgoing, *_incoming]
    names = [name for name in kept if name.startswith(client)]
    _free(names, pack_ids(it for it, owner in list(_objects.items()) if owner == client))


LEASES: Final = Leases(_free_client)


def _end(client: str) -> None:
    """End the lease of a client that exits normally."""
    LEASES.drop(client)
    _free_client(client)


def handle_request(what: str, *arguments: Any) -> tuple[Any, ...]:
    """Handle a request of a client, one of `HANDLERS`.

    Returns ``("answer", value)``, or ``("away",)`` if a requested object is not here. Only an
    ``Exception`` may be raised: dataClay would never answer a call that ends otherwise.
    """
    try:
        return "answer", HANDLERS[what](*arguments)
    except StaleError:
        return ("away",)


def _kept() -> int:
    """Return the number of objects kept here for clients."""
    return len(_results) + len(_outgoing) + len(_incoming) + len(concatenated)


HANDLERS: Final[dict[str, Callable[..., Any]]] = {
    "describe": _describe,
    "locate": locate,
    "sizes": _sizes,
    "pull": _pull,
    "push": _push,
    "create_copy": _create_copy,
    "free": _free,
    "end": _end,
    "kept": _kept,
}
"""Requests that a :class:`~spliter_backends.dataclay.objects.RequestHandler` accepts."""
