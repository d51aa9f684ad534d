"""Pack and unpack between two buffers that were checked before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from ctypes import c_size_t
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from spliter._errors import InvalidArgumentError
from spliter.layout._kernels import KERNELS
from spliter.layout._llvm_engine import Move
from spliter.layout._memory import Buffer, Bytes, address_of
from spliter.layout._numpy_engine import NumpyEngine


@dataclass(frozen=True, eq=False, slots=True)
class BoundPacker:
    """Moves the bytes of a layout between two buffers; made by :meth:`Packer.bind`.

    The buffers cannot be resized as long as it exists. It cannot be pickled.

    Parameters
    ----------
    array, packed : array or buffer
        The buffers.
    """

    array: Buffer
    packed: Buffer
    _packs: tuple[Callable[[], object], ...]
    _unpacks: tuple[Callable[[], object], ...]
    _kept: tuple[object, ...]

    @classmethod
    def of(
        cls, array: Buffer, packed: Buffer, memory: Bytes, part: Bytes, moves: tuple[Move, ...]
    ) -> BoundPacker:
        """Return the bound packer of moves between the bytes of the two buffers."""
        # The copies use addresses: memory, machine code and its arguments have to stay.
        kept: list[object] = [memory, part, moves]
        packs, unpacks = (
            tuple(_copies(moves, memory, part, unpacks, kept)) for unpacks in (False, True)
        )
        return cls(array, packed, packs, unpacks, tuple(kept))

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
        """Raise: the buffers are memory of this process."""
        raise InvalidArgumentError(
            "a bound packer belongs to memory of this process; send the packer, and bind it there"
        )

    def __repr__(self) -> str:
        """Return the number of packed bytes."""
        return f"<BoundPacker of {memoryview(self.packed).nbytes} bytes>"


def _copies(
    moves: Iterable[Move], memory: Bytes, packed: Bytes, unpacks: bool, kept: list[Any]
) -> Iterator[Callable[[], object]]:
    """Yield the calls that copy all bytes."""
    there, here = address_of(memory), address_of(packed)
    for move in moves:
        piece, call = move.piece, move.call
        if call is None:
            yield partial(NumpyEngine(memory, 0, packed, unpacks).copy, piece)
        else:
            kernel = KERNELS.find(call.shape, unpacks, saves=1.0)
            assert kernel is not None
            kept.append(kernel)
            numbers = there + piece.displacement, here + piece.position, call.address
            # Converted once: ctypes takes longer for that than for the call.
            yield partial(kernel.run, *map(c_size_t, numbers))
