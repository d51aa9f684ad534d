"""The memory behind arrays and buffers, as bytes."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Memory:
    """The bytes that an array spans, with the gaps between its elements.

    Parameters
    ----------
    data : ndarray of uint8
        From the first byte in memory to the last.
    origin : int
        Index in `data` of the array's first element, from which displacements count.
    address : int
        Address of that element.
    """

    data: Bytes
    origin: int
    address: int

    @classmethod
    def of(cls, name: str, buffer: Buffer) -> Memory:
        """Return the memory of an array or buffer.

        Raises
        ------
        InvalidArgumentError
            If it is none, or holds references to Python objects.
        """
        array = _array(name, buffer)
        low, high = np.lib.array_utils.byte_bounds(array)
        address = array.ctypes.data
        if not array.size:
            low = high = address
        return cls(np.asarray(_Span(array, low, high - low)), address - low, address)

    def check(self, low: int, high: int) -> None:
        """Check that displacements from `low` to below `high` are inside.

        Raises
        ------
        LayoutBoundsError
            If they are not.
        """
        begin, end = -self.origin, len(self.data) - self.origin
        if low < begin or high > end:
            raise LayoutBoundsError(
                f"the layout takes bytes {low} to {high} of a buffer that has bytes {begin} to "
                f"{end}; pass a larger buffer, or a layout with other counts or displacements"
            )

    def check_apart(self, low: int, high: int, packed: Bytes) -> None:
        """Check that displacements from `low` to below `high` are not in the packed bytes.

        Raises
        ------
        InvalidArgumentError
            If they are.
        """
        begin = packed.ctypes.data
        if low < high and self.address + low < begin + len(packed) and begin < self.address + high:
            raise InvalidArgumentError(
                "the array and the packed bytes share memory; pass another buffer for one of them"
            )


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


def contiguous_bytes(name: str, buffer: Buffer, writeable: bool = False) -> Bytes:
    """Return the bytes of a contiguous array or buffer as one row.

    Raises
    ------
    InvalidArgumentError
        If it is not contiguous, holds references, or is read-only and must not be.

    Examples
    --------
    >>> contiguous_bytes("out", np.zeros((2, 3), "i2")).shape
    (12,)
    """
    array = _array(name, buffer)
    check_contiguous(name, array, writeable)
    return Memory.of(name, array).data


def check_contiguous(name: str, buffer: Buffer, writeable: bool) -> None:
    """Check that a buffer is in one piece and, if it is to be written, that it may be.

    Raises
    ------
    InvalidArgumentError
        If not.
    """
    array = _array(name, buffer)
    if not array.flags.forc:
        raise InvalidArgumentError(
            f"{name} has shape {array.shape} and strides {array.strides}, which is not contiguous; "
            "pass the array that it is a view of, or a new one"
        )
    if writeable and not array.flags.writeable:
        raise InvalidArgumentError(f"{name} is read-only; pass an array that can be written to")
