"""Pickle values sent between client and backends with cloudpickle, without copying buffers.

A message is one sequence of bytes::

    number of parts | length of each | pickle | buffer | buffer | ...

Arrays are sent as buffers next to the pickle, so that building a message copies each of them once,
and reading it copies nothing: they become writable views of the message. Persistent objects are
sent by their id, and are the original objects again at their backend.
"""

from __future__ import annotations

import io
import pickle
import struct
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import cloudpickle

from spliter import TaskNotSerializableError
from spliter_backends._shared.error_codec import ErrorCodec
from spliter_backends.dataclay.output import suppress_output

with suppress_output():
    from dataclay import DataClayObject
    from dataclay.config import get_runtime

MESSAGE_LIMIT: Final = 2**31 - 2**20
"""Maximum bytes in one message. gRPC silently loses messages of 2 GiB or more; the difference
is for what it adds itself."""

CLIENT_LENGTH: Final = 32
"""Length of a client's name, which is the prefix of all names kept for it."""

ALIGNMENT: Final = 16

ReferenceFunction = Callable[[Any], int | None]
"""Takes an object found while pickling; returns the number to send instead, or ``None``."""


def object_by_id(object_id: Any) -> Any:
    """Return a persistent object: at its backend the original in memory."""
    found = get_runtime().inmemory_objects.get(object_id)
    return DataClayObject.get_by_id(object_id) if found is None else found


def pack_ids(object_ids: Iterable[uuid.UUID]) -> bytes:
    """Return ids as bytes, 16 each: many UUIDs pickle slowly."""
    return b"".join([object_id.bytes for object_id in object_ids])


def unpack_ids(object_ids: bytes) -> list[uuid.UUID]:
    """Return the ids packed by :func:`pack_ids`."""
    starts = range(0, len(object_ids), 16)
    return [uuid.UUID(bytes=object_ids[at : at + 16]) for at in starts]


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(
        self, file: Any, collect: Callable[[Any], Any] | None, refer: ReferenceFunction | None
    ) -> None:
        super().__init__(file, protocol=5, buffer_callback=collect)
        self._refer = refer

    def reducer_override(self, obj: Any) -> Any:
        if self._refer is not None and (number := self._refer(obj)) is not None:
            return _reference, (number,)
        if isinstance(obj, DataClayObject):
            if not obj._dc_is_registered:
                raise TypeError(f"{obj!r} is not persistent; call its make_persistent() first")
            return object_by_id, (obj._dc_meta.id,)
        return super().reducer_override(obj)


# Values of references while this thread reads a message.
_reading = threading.local()


def _reference(number: int) -> Any:
    return _reading.values[number]


class TooLargeError(Exception):
    """A value takes more bytes than allowed."""


@dataclass(frozen=True)
class PickledMessage:
    """A pickled value whose buffers have not been copied.

    parts: Header, pickle and buffers, each followed by its padding.
    """

    parts: Sequence[memoryview]

    @property
    def nbytes(self) -> int:
        """Bytes of the message."""
        return sum(part.nbytes for part in self.parts)

    def join(self) -> bytes:
        """Return the whole message."""
        return b"".join(self.parts)

    def chunk(self, start: int, stop: int) -> bytes:
        """Return the bytes from `start` to `stop`."""
        found = []
        at = 0
        for part in self.parts:
            if at < stop and at + part.nbytes > start:
                found.append(part[max(start - at, 0) : stop - at])
            at += part.nbytes
        return b"".join(found)


def encode(
    value: Any, *, most: int | None = None, refer: ReferenceFunction | None = None
) -> PickledMessage:
    """Pickle a value into a message that refers to the memory of its buffers.

    Functions and classes that cannot be imported are pickled by value. Raises `TooLargeError`, as
    soon as it is known, if the message takes more than `most` bytes. `refer` is called with every
    object that is not of a basic type, and returns ``None``, or an index into `referred` of
    :func:`decode` to pickle in its place.
    """
    buffers: list[memoryview] = []
    taken = 0

    def collect(buffer: pickle.PickleBuffer) -> None:
        nonlocal taken
        view = buffer.raw()
        taken += view.nbytes
        if most is not None and taken > most:
            raise TooLargeError
        buffers.append(view)

    file = io.BytesIO() if most is None else _BoundedFile(most)
    _Pickler(file, collect, refer).dump(value)
    head = file.getbuffer()
    if most is not None and taken + head.nbytes > most:
        raise TooLargeError
    return PickledMessage(_aligned([head, *buffers]))


class _BoundedFile(io.BytesIO):
    """A file that raises `TooLargeError` beyond a number of bytes."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def write(self, data: Any) -> int:
        if self.tell() + memoryview(data).nbytes > self._most:
            raise TooLargeError
        return super().write(data)


def _aligned(parts: Sequence[memoryview]) -> list[memoryview]:
    """Put the header first, and align the start of every part."""
    lengths = [part.nbytes for part in parts]
    header = struct.pack(f"<{len(lengths) + 1}Q", len(lengths), *lengths)
    laid: list[memoryview] = []
    for part in (memoryview(header), *parts):
        laid.append(part)
        if gap := -part.nbytes % ALIGNMENT:
            laid.append(memoryview(bytes(gap)))
    return laid


def decode(message: bytes | bytearray, referred: Sequence[Any] = ()) -> Any:
    """Unpickle a message; arrays are writable views of it, or of a copy if it is bytes.

    `referred` are the values for the indexes that the sender's `refer` returned.
    """
    view = memoryview(message if isinstance(message, bytearray) else bytearray(message))
    (count,) = struct.unpack_from("<Q", view)
    lengths = struct.unpack_from(f"<{count}Q", view, 8)
    at = 8 * (count + 1)
    parts = []
    for length in lengths:
        at += -at % ALIGNMENT
        parts.append(view[at : at + length])
        at += length
    outer = getattr(_reading, "values", ())
    _reading.values = referred
    try:
        return pickle.loads(parts[0], buffers=parts[1:])
    finally:
        _reading.values = outer


def check_fits(nbytes: int) -> None:
    """Reject a message that gRPC would lose."""
    if nbytes > MESSAGE_LIMIT:
        raise TaskNotSerializableError(
            f"a message to a dataClay backend has {nbytes} bytes; gRPC carries at most "
            f"{MESSAGE_LIMIT} (2 GiB). Pass less data, futures of results at the backend of the "
            "task, or data made there (spliter_backends.dataclay.generate)"
        )


def dumps(value: Any) -> bytes:
    """Pickle a value into one message; see :func:`encode`."""
    return encode(value).join()


ERRORS: Final = ErrorCodec(dumps, decode, "spliter_backends.dataclay.worker.tasks")
"""Encodes errors of tasks."""


def state_of(instance: Any) -> bytes:
    """Return the state of a volatile object as a plain pickle, which dataClay reads itself."""
    file = io.BytesIO()
    _Pickler(file, None, None).dump(instance._dc_state)
    return file.getvalue()
