"""The memory behind arrays and buffers, as bytes."""

from __future__ import annotations

from ctypes import addressof, c_char
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter._errors import InvalidArgumentError, LayoutBoundsError

Bytes: TypeAlias = npt.NDArray[np.uint8]
Buffer: TypeAlias = Any
"""A NumPy array, or an object with the buffer protocol, such as ``bytes`` and ``bytearray``."""


class _Span:
    """Tells NumPy of a range of memory that belongs to an array."""

    def __init__(self, array: npt.NDArray[Any], low: int, nbytes: int) -> None:
        self.array = array  # keeps the memory
        self.__array_interface__ = {
            "data": (low, not array.flags.writeable),
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
        }


def spanned_bytes(name: str, buffer: Buffer) -> tuple[Bytes, int]:
    """Return the bytes that an array spans, and the displacement of the first one.

    Gaps between its elements are part of them. Displacements count from its first element, which
    is not the first in memory if a stride is negative.
    """
    array = _array(name, buffer)
    if array.flags.forc or not array.size:
        return _row(array), 0
    low, high = np.lib.array_utils.byte_bounds(array)
    return np.asarray(_Span(array, low, high - low)), low - array.ctypes.data


def contiguous_bytes(name: str, buffer: Buffer, writeable: bool = False) -> Bytes:
    """Return the bytes of a contiguous array or buffer as one row; refuse others."""
    array = _array(name, buffer)
    if not array.flags.forc:
        raise InvalidArgumentError(
            f"{name} has shape {array.shape} and strides {array.strides}, which is not contiguous; "
            "pass the array that it is a view of, or a new one"
        )
    if writeable and not array.flags.writeable:
        raise InvalidArgumentError(f"{name} is read-only; pass an array that can be written to")
    return _row(array)


def _row(array: npt.NDArray[Any]) -> Bytes:
    if array.ndim != 1:
        array = (array if array.flags.c_contiguous else array.T).reshape(-1)
    return array.view(np.uint8) if array.nbytes else np.empty(0, np.uint8)


def _array(name: str, buffer: Buffer) -> npt.NDArray[Any]:
    """Return a buffer as an array, without a copy."""
    if isinstance(buffer, np.ma.MaskedArray):
        raise InvalidArgumentError(
            f"{name} is a masked array, of which only the data would move; pass {name}.data and "
            f"{name}.mask one after the other"
        )
    if not isinstance(buffer, np.ndarray):
        return _bytes_of(name, buffer)
    if buffer.dtype.hasobject:
        raise InvalidArgumentError(
            f"{name} has dtype {buffer.dtype}, whose elements are references to Python objects; "
            "convert it to numbers or strings of fixed length"
        )
    return buffer if type(buffer) is np.ndarray else buffer.view(np.ndarray)


def _bytes_of(name: str, buffer: Buffer) -> Bytes:
    try:
        return np.frombuffer(memoryview(buffer).cast("B"), np.uint8)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"{name} must be a NumPy array or a contiguous buffer of bytes, got "
            f"{type(buffer).__module__}.{type(buffer).__name__} ({error}); compute lazy arrays, "
            "and pass the data and the indices of sparse ones"
        ) from None


def address_of(data: Bytes) -> int:
    """Return the address of the first byte."""
    try:
        return addressof(c_char.from_buffer(data.data))  # three times as fast as data.ctypes
    except (TypeError, ValueError):  # read-only, or empty
        return int(data.ctypes.data)


def check_inside(low: int, high: int, first: int, end: int) -> None:
    """Check that displacements from `low` to below `high` are in a buffer from `first` to `end`."""
    if low < first or high > end:
        raise LayoutBoundsError(
            f"the layout takes bytes {low} to {high} of a buffer that has bytes {first} to {end}; "
            "pass a larger buffer, or a layout with other counts or displacements"
        )


def check_apart(low: int, high: int, begin: int, end: int) -> None:
    """Check that addresses from `low` to below `high` and from `begin` to `end` are apart."""
    if low < end and begin < high and low < high:
        raise InvalidArgumentError(
            "the array and the packed bytes share memory; pass another buffer for one of them"
        )
