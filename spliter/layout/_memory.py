"""The memory behind arrays and buffers, as bytes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
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


@dataclass(frozen=True, eq=False)
class Memory:
    """The bytes that an array spans, with the gaps between its elements.

    Parameters
    ----------
    array : ndarray
        Keeps the memory.
    address : int
        Address of the array's first element, from which displacements count.
    begin, end : int
        Displacements of the first byte in memory, and behind the last.
    """

    array: npt.NDArray[Any]
    address: int
    begin: int
    end: int

    @classmethod
    def of(cls, name: str, buffer: Buffer) -> Memory:
        """Return the memory of an array or buffer.

        Raises
        ------
        InvalidArgumentError
            If it is none, or holds references to Python objects.
        """
        array = _array(name, buffer)
        address = array.ctypes.data
        if array.flags.forc or not array.size:
            return cls(array, address, 0, array.nbytes)
        low, high = np.lib.array_utils.byte_bounds(array)
        return cls(array, address, low - address, high - address)

    @cached_property
    def data(self) -> Bytes:
        """All bytes, from the first in memory to the last."""
        return np.asarray(_Span(self.array, self.address + self.begin, self.end - self.begin))

    def check(self, low: int, high: int) -> None:
        """Check that displacements from `low` to below `high` are inside.

        Raises
        ------
        LayoutBoundsError
            If they are not.
        """
        if low < self.begin or high > self.end:
            raise LayoutBoundsError(
                f"the layout takes bytes {low} to {high} of a buffer that has bytes {self.begin} "
                f"to {self.end}; pass a larger buffer, or a layout with other counts or "
                "displacements"
            )

    def check_apart(self, low: int, high: int, begin: int, nbytes: int) -> None:
        """Check that displacements from `low` to below `high` are not in the packed bytes.

        Parameters
        ----------
        low, high : int
            Displacements in bytes.
        begin, nbytes : int
            Address and length of the packed bytes.

        Raises
        ------
        InvalidArgumentError
            If they are.
        """
        if low < high and self.address + low < begin + nbytes and begin < self.address + high:
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
    rows = array if array.flags.c_contiguous else array.T
    return rows.reshape(-1).view(np.uint8)


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
