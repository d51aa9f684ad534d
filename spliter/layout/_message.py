"""Messages of packed bytes that say what they hold; without pickle, and checked before use.

::

    SPLM | version | CRC of the header | bytes of the header | bytes of data | header | data
    4      2         4                   8                     8

Numbers are little-endian. The header is JSON: the layout, its repetitions, and the dtype and the
shape of the data. The CRC covers all but the data.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from spliter._errors import InvalidArgumentError, LayoutMessageError
from spliter.layout._boxes import CONSTRUCTORS
from spliter.layout._constructors import checked_dtype, of_dtype
from spliter.layout._integers import whole, whole_array
from spliter.layout._layout import Layout
from spliter.layout._memory import Buffer, Bytes, contiguous_bytes
from spliter.layout._packer import Packer

MAGIC: Final = b"SPLM"
VERSION: Final = 1
PREFIX: Final = Struct("<4sHIQQ")
_CRC_AT: Final = 6, 10


@dataclass(frozen=True, eq=False)
class Message:
    """Packed bytes with their layout.

    Parameters
    ----------
    layout, count : Layout and int
        Of the sender's array, and its repetitions.
    dtype, shape : dtype and tuple of int
        Of the data.
    packed : ndarray of uint8
        A view of the buffer that the message was read from.

    Examples
    --------
    >>> from spliter import layout as lo
    >>> packer = lo.vector(2, 1, 2, "f8").commit()
    >>> message = lo.read_message(lo.write_message(packer, np.arange(1.0, 5), dtype="f8"))
    >>> message.array(), message.unpack(np.zeros(4))
    (array([1., 3.]), array([1., 0., 3., 0.]))
    """

    layout: Layout
    count: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    packed: Bytes

    def array(self) -> npt.NDArray[Any]:
        """Return the data with its dtype and shape, as a view of the buffer."""
        return self.packed.view(self.dtype).reshape(self.shape)

    def unpack(self, out: Buffer) -> Any:
        """Copy the data to the places in `out` that the sender took it from, and return `out`.

        Takes what :meth:`Packer.unpack` takes, and raises what that raises.
        """
        return self.layout.commit().unpack(self.packed, out, count=self.count)


def write_message(
    packer: Packer,
    array: Buffer,
    count: int = 1,
    dtype: npt.DTypeLike = "u1",
    shape: tuple[int, ...] | None = None,
) -> Bytes:
    """Pack an array into a message that says what it holds.

    Parameters
    ----------
    packer : Packer
        What is sent.
    array, count
        As for :meth:`Packer.pack`, whose errors are raised.
    dtype, shape
        What the receiver sees the packed bytes as; by default, a row of bytes.

    Raises
    ------
    InvalidArgumentError
        If a layout is passed that is not committed, or dtype and shape have other than the packed
        bytes.

    Examples
    --------
    >>> from spliter import layout as lo
    >>> packer = lo.subarray([3, 3], [2, 2], [0, 1], "i2").commit()
    >>> message = lo.write_message(packer, np.arange(9, dtype="i2"), dtype="i2", shape=(2, 2))
    >>> lo.read_message(message).array()
    array([[1, 2],
           [4, 5]], dtype=int16)
    """
    if not isinstance(packer, Packer):
        raise InvalidArgumentError(
            f"a message is packed by a Packer, got a {type(packer).__name__}; pass layout.commit()"
        )
    total = whole("count", count, 0) * packer.size
    seen = checked_dtype(dtype)
    one_row = (total // seen.itemsize,)
    rows = one_row if shape is None else tuple(whole("shape", rows, 0) for rows in shape)
    nbytes = math.prod(rows) * seen.itemsize
    if nbytes != total:
        raise InvalidArgumentError(
            f"dtype {seen} and shape {rows} have {nbytes} bytes, the packed layout {total}; pass "
            "those of the packed data"
        )
    described = {"layout": _encode(packer.layout), "count": int(count), "shape": rows}
    described["dtype"] = np.lib.format.dtype_to_descr(seen)
    header = json.dumps(described, separators=(",", ":")).encode()
    crc = _crc(PREFIX.pack(MAGIC, VERSION, 0, len(header), total), header)
    start = PREFIX.pack(MAGIC, VERSION, crc, len(header), total) + header
    message = np.empty(len(start) + total, np.uint8)
    message[: len(start)] = np.frombuffer(start, np.uint8)
    packer.pack(array, message[len(start) :], count=count)
    return message


def _crc(prefix: bytes, header: bytes) -> int:
    """Return the checksum of all but itself."""
    low, high = _CRC_AT
    return zlib.crc32(header, zlib.crc32(prefix[:low] + prefix[high:]))


def message_nbytes(prefix: Buffer, limit: int | None = None) -> int:
    """Return the bytes of a message, from its first 26.

    Parameters
    ----------
    prefix : array or buffer
        At least the first 26 bytes.
    limit : int, optional
        Most bytes that the receiver takes.

    Raises
    ------
    LayoutMessageError
        If it is no message, of another version, or larger than `limit`.

    Examples
    --------
    >>> from spliter import layout as lo
    >>> message = lo.write_message(lo.contiguous(4, "f8").commit(), np.zeros(4))
    >>> lo.message_nbytes(message[:26]) == len(message)
    True
    """
    _, header_nbytes, data_nbytes = _read_prefix(contiguous_bytes("prefix", prefix))
    total = PREFIX.size + header_nbytes + data_nbytes
    if limit is not None and total > limit:
        raise LayoutMessageError(
            f"the message has {total} bytes, more than the limit of {limit}; raise it, or send "
            "chunks"
        )
    return total


def _read_prefix(found: Bytes) -> tuple[int, int, int]:
    if len(found) < PREFIX.size:
        raise LayoutMessageError(
            f"a message begins with {PREFIX.size} bytes, got {len(found)}; receive all of it"
        )
    magic, version, crc, header_nbytes, data_nbytes = PREFIX.unpack(found[: PREFIX.size].tobytes())
    if (magic, version) != (MAGIC, VERSION):
        raise LayoutMessageError(
            f"the bytes begin with {magic!r} and version {version}, not with {MAGIC!r} and "
            f"{VERSION}; pass a message made by write_message of the same version of SplIter"
        )
    return crc, header_nbytes, data_nbytes


def read_message(buffer: Buffer) -> Message:
    """Read a message; its data is not copied.

    Parameters
    ----------
    buffer : array or buffer
        The bytes of one message, all of them.

    Raises
    ------
    LayoutMessageError
        If it is damaged, truncated or of another version. All lengths are checked before anything
        is allocated for them.

    Examples
    --------
    >>> from spliter import layout as lo
    >>> packer = lo.vector(2, 1, 3, "i4").commit()
    >>> message = lo.read_message(lo.write_message(packer, np.arange(4, dtype="i4"), dtype="i4"))
    >>> message.layout, message.array()
    (vector(count=2, blocklength=1, stride=3, base='i4'), array([0, 3], dtype=int32))
    """
    found = contiguous_bytes("buffer", buffer)
    crc, header_nbytes, data_nbytes = _read_prefix(found)
    begin = PREFIX.size + header_nbytes
    if len(found) != begin + data_nbytes:
        raise LayoutMessageError(
            f"the message has {len(found)} bytes, and says {begin + data_nbytes}; receive all of it"
        )
    header = found[PREFIX.size : begin].tobytes()
    if _crc(found[: PREFIX.size].tobytes(), header) != crc:
        raise LayoutMessageError("the header of the message is damaged; send it again")
    try:
        return _read_header(json.loads(header), found[begin:])
    except Exception as error:  # NumPy, too, raises any class for what a header may contain
        raise LayoutMessageError(
            f"the header of the message is wrong ({error}); write it with write_message"
        ) from error


def _read_header(header: Any, data: Bytes) -> Message:
    layout, dtype = _decode(header["layout"]), _decode_dtype(header["dtype"])
    count = whole("count", header["count"], 0)
    shape = tuple(whole("shape", n, 0) for n in header["shape"])
    sizes = {"layout": count * layout.size, "dtype and shape": math.prod(shape) * dtype.itemsize}
    for name, nbytes in sizes.items():
        if nbytes != len(data):
            raise InvalidArgumentError(f"{name}: {nbytes} bytes, but there are {len(data)}")
    data = data.view()
    data.flags.writeable = False
    return Message(layout, count, dtype, shape, data)


def _encode(layout: Layout) -> Any:
    """Return a layout as JSON has it."""
    if layout.combiner == "named":
        return np.lib.format.dtype_to_descr(layout.contents["dtype"])
    return {layout.combiner: {name: _value(one) for name, one in layout.contents.items()}}


def _value(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return base64.b64encode(value.astype("<i8").tobytes()).decode()
    if isinstance(value, tuple):
        return [_encode(one) for one in value]
    return _encode(value) if isinstance(value, Layout) else value


def _decode(found: Any) -> Layout:
    """Return a layout, made by its constructor, which checks it."""
    if not isinstance(found, dict):
        return of_dtype(_decode_dtype(found))
    ((combiner, contents),) = found.items()
    return CONSTRUCTORS[combiner](**{name: _argument(name, contents[name]) for name in contents})


def _argument(name: str, value: Any) -> Any:
    if name in {"base", "types"}:
        return _decode(value) if name == "base" else [_decode(one) for one in value]
    if isinstance(value, str) and name != "order":
        return whole_array(name, np.frombuffer(base64.b64decode(value, validate=True), "<i8"))
    return value


def _decode_dtype(found: Any) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.lib.format.descr_to_dtype(_with_tuples(found))
    if dtype.hasobject or not dtype.itemsize:
        raise InvalidArgumentError(f"dtype {dtype} is refused")
    return dtype


def _with_tuples(found: Any) -> Any:
    """Return a dtype's fields as NumPy takes them: JSON has no tuples."""
    if not isinstance(found, list):
        return found
    return [(name, _with_tuples(kind), *map(tuple, shape)) for name, kind, *shape in found]
