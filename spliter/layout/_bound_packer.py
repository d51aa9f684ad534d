"""Pack and unpack between two buffers that were checked before."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_size_t
from functools import partial
from typing import NoReturn

from spliter._errors import InvalidArgumentError
from spliter.layout._kernels import KERNELS
from spliter.layout._llvm_engine import Move
from spliter.layout._memory import Buffer, Bytes, address_of
from spliter.layout._numpy_engine import NumpyEngine


class BoundPacker:
    """Moves the bytes of a layout between two buffers; made by :meth:`Packer.bind`.

    The buffers cannot be resized as long as it exists. It cannot be pickled.

    Attributes
    ----------
    array, packed : array or buffer
        The buffers.
    """

    __slots__ = ("_kept", "_packs", "_unpacks", "array", "packed")

    def __init__(
        self, array: Buffer, packed: Buffer, memory: Bytes, part: Bytes, moves: tuple[Move, ...]
    ) -> None:
        self.array: Buffer = array
        self.packed: Buffer = packed
        # The copies use addresses: memory, machine code and its arguments have to stay.
        self._kept: list[object] = [memory, part, moves]
        self._packs = [self._copy(move, memory, part, False) for move in moves]
        self._unpacks = [self._copy(move, memory, part, True) for move in moves]

    def _copy(self, move: Move, memory: Bytes, part: Bytes, unpacks: bool) -> Callable[[], object]:
        """Return the call that copies the bytes of a piece."""
        piece, call = move.piece, move.call
        if call is None:
            return partial(NumpyEngine(memory, 0, part, unpacks).copy, piece)
        kernel = KERNELS.find(call.shape, unpacks, saves=1.0)
        assert kernel is not None
        self._kept.append(kernel)
        there, here = address_of(memory) + piece.displacement, address_of(part) + piece.position
        # Converted once: ctypes takes longer for that than for the call.
        return partial(kernel.run, *map(c_size_t, (there, here, call.address)))

    def pack(self) -> Buffer:
        """Copy the bytes of the layout from the array to the packed bytes, and return those."""
        for copy in self._packs:
            copy()
        return self.packed

    def unpack(self) -> Buffer:
        """Copy the packed bytes back to their places in the array, and return that."""
        for copy in self._unpacks:
            copy()
        return self.array

    def __reduce__(self) -> NoReturn:
        raise InvalidArgumentError(
            "a bound packer belongs to memory of this process; send the packer, and bind it there"
        )

    def __repr__(self) -> str:
        return f"<BoundPacker of {memoryview(self.packed).nbytes} bytes>"
