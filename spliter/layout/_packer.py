"""Pack and unpack the bytes of a committed layout, whole or in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from spliter._errors import (
    InvalidArgumentError,
    LayoutBoundsError,
    LayoutOverlapError,
    PackageMissingError,
)
from spliter._machine.llvm import is_installed
from spliter.layout._bound_packer import BoundPacker
from spliter.layout._cut import Piece, cut
from spliter.layout._explain import Explanation, describe
from spliter.layout._integers import whole, within
from spliter.layout._llvm_engine import FEW_RUNS, Move, moves, uses_to_pay
from spliter.layout._memory import (
    Buffer,
    Bytes,
    address_of,
    check_apart,
    check_inside,
    contiguous_bytes,
    spanned_bytes,
)
from spliter.layout._nodes import Placed, vector_of
from spliter.layout._numpy_engine import NumpyEngine
from spliter.layout._overlap import overlaps

Engine: TypeAlias = Literal["numpy", "llvm"]

MOST_PLANS: Final = 8
"""Counts of repetitions that a packer has ready."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """Some repetitions of a layout, as far as the buffers do not matter."""

    placed: Placed
    size: int
    low: int
    high: int
    overlaps: bool
    """Whether a byte is taken twice."""
    moves: tuple[Move, ...]
    """Copy all bytes."""

    def position(self, start: int) -> int:
        """Return a position in the packed bytes."""
        start = whole("start", start, 0)
        if start > self.size:
            raise LayoutBoundsError(
                f"start is {start}, past the end of {self.size} packed bytes; pass 0 to {self.size}"
            )
        return start


class Packer:
    """Moves the bytes of a layout; made by :meth:`Layout.commit`.

    Immutable: any number of threads may use one packer at once. It pickles as its layout, which is
    committed again.

    Parameters
    ----------
    layout : Layout
        What is packed.
    engine : {"numpy", "llvm"} or None
        As for :meth:`Layout.commit`.
    """

    def __init__(self, layout: Any, engine: Engine | None = None) -> None:
        if engine not in {None, "numpy", "llvm"}:
            raise InvalidArgumentError(
                f'engine must be "numpy", "llvm" or None, got {engine!r}; leave it out'
            )
        if engine == "llvm" and not is_installed():
            raise PackageMissingError(
                "compiled layouts need llvmlite, which is not installed; pip install "
                "'pyspliter[jit]', or use the engine \"numpy\""
            )
        self._layout = layout
        self._engine = engine
        self._compiles = engine == "llvm" or (engine is None and is_installed())
        self._plans: dict[int, _Plan] = {}
        for move in self._plan(1).moves:
            if engine == "llvm":
                move.kernel(unpacks=False)

    @property
    def layout(self) -> Any:
        """The layout that was committed."""
        return self._layout

    @property
    def size(self) -> int:
        """Bytes that one repetition packs to."""
        size: int = self._layout.size
        return size

    def _plan(self, count: int) -> _Plan:
        count = whole("count", count, 0)
        plan = self._plans.get(count)
        if plan is None:
            if len(self._plans) == MOST_PLANS:
                self._plans.clear()
            plan = self._plans[count] = self._planned(count)
        return plan

    def _planned(self, count: int) -> _Plan:
        within("count * size", count * self.size)
        within("count * extent", count * self._layout.extent)
        placed = vector_of(count, self._layout.extent, self._layout.placed)
        node, low, high = placed.node, placed.low, placed.high
        found = tuple(self._moves(cut(placed, 0, node.size)))
        return _Plan(placed, node.size, low, high, overlaps(node), found)

    def _moves(self, pieces: Iterable[Piece], least_runs: int = 1) -> Iterable[Move]:
        if self._compiles:
            return moves(pieces, self._engine == "llvm", least_runs)
        return map(Move, pieces)

    def pack(
        self, array: Buffer, out: Buffer | None = None, start: int = 0, count: int = 1
    ) -> Bytes:
        """Copy the bytes of the layout out of an array, one after the other.

        Parameters
        ----------
        array : array or buffer
            Displacements count from its first element. Arrays that are not contiguous take the
            memory from their first byte to their last.
        out : array or buffer, optional
            Contiguous and writable; filled from its first byte on. By default, a new array.
        start : int
            First of the packed bytes to copy; as many follow as there are, or `out` has.
        count : int
            Repetitions of the layout, each an extent further.

        Returns
        -------
        ndarray of uint8
            The bytes that were copied, in `out` if that was passed.

        Raises
        ------
        LayoutBoundsError
            If the layout takes bytes outside the array, or `start` is past the end.
        InvalidArgumentError
            If an array is masked, sparse, lazy, of objects or, for `out`, not contiguous or
            read-only, or both share memory.

        Examples
        --------
        >>> from spliter import layout as lo
        >>> packer = lo.vector(3, 1, 2, "i2").commit()
        >>> packer.pack(np.arange(6, dtype="i2"), start=2).view("i2")
        array([2, 4], dtype=int16)
        """
        plan = self._plan(count)
        memory, first = spanned_bytes("array", array)
        check_inside(plan.low, plan.high, first, first + len(memory))
        start = plan.position(start)
        left = plan.size - start
        packed = np.empty(left, np.uint8) if out is None else contiguous_bytes("out", out, True)
        if len(packed) > left:
            packed = packed[:left]
        self._move(plan, memory, first, packed, start, unpacks=False)
        return packed

    def unpack(self, packed: Buffer, out: Buffer, start: int | None = None, count: int = 1) -> Any:
        """Copy packed bytes back to their places in an array; gaps stay untouched.

        Parameters
        ----------
        packed : array or buffer
            Contiguous: all packed bytes, or a part of them if `start` is given.
        out : array or buffer
            Contiguous and writable; displacements count from its first element. It is returned.
        start : int, optional
            Position of the first of the bytes among all packed bytes, if they are a part.
        count : int
            Repetitions of the layout.

        Raises
        ------
        LayoutBoundsError
            If the layout takes bytes outside `out`, or there are more or, without `start`, fewer
            packed bytes than the layout has.
        LayoutOverlapError
            If the layout names a byte twice.
        InvalidArgumentError
            As for :meth:`pack`.

        Examples
        --------
        >>> from spliter import layout as lo
        >>> packer = lo.vector(3, 1, 2, "u1").commit()
        >>> packer.unpack(b"abc", out=bytearray(b"......"))
        bytearray(b'a.b.c.')
        """
        plan, memory = self._target(count, "out", out)
        part = contiguous_bytes("packed", packed)
        begin = 0 if start is None else plan.position(start)
        left = plan.size - begin
        if len(part) > left or (start is None and len(part) < left):
            raise LayoutBoundsError(
                f"packed has {len(part)} bytes, the layout {left} from byte {begin} on; "
                "pass all of them, or with start=... a part"
            )
        self._move(plan, memory, 0, part, begin, unpacks=True)
        return out

    def _target(self, count: int, name: str, out: Buffer) -> tuple[_Plan, Bytes]:
        """Return the plan and the bytes of a buffer that can be unpacked into."""
        plan = self._plan(count)
        if plan.overlaps:
            raise LayoutOverlapError(
                f"{count} x {self._layout!r} takes some bytes more than once, so packed bytes have "
                "no one place in it; pack() alone takes it, or leave overlapping displacements out"
            )
        memory = contiguous_bytes(name, out, writeable=True)
        check_inside(plan.low, plan.high, 0, len(memory))
        return plan, memory

    def bind(self, array: Buffer, packed: Buffer, count: int = 1) -> BoundPacker:
        """Return a packer for two buffers that are used again and again.

        Their bounds are checked once, and kernels are compiled at once. Then a call costs little
        more than the copy, which matters for messages of a few kilobytes.

        Parameters
        ----------
        array : array or buffer
            Contiguous and writable; displacements count from its first element.
        packed : array or buffer
            Contiguous and writable, as long as the packed bytes.
        count : int
            Repetitions of the layout.

        Raises
        ------
        LayoutBoundsError, LayoutOverlapError, InvalidArgumentError
            As for :meth:`unpack`.

        Examples
        --------
        >>> from spliter import layout as lo
        >>> x, face = np.zeros((3, 4)), np.empty(3)
        >>> column = lo.vector(3, 1, 4, "f8").commit().bind(x, face)
        >>> x[:, 0] = 5
        >>> column.pack()
        array([5., 5., 5.])
        """
        plan, memory = self._target(count, "array", array)
        part = contiguous_bytes("packed", packed, writeable=True)
        if len(part) != plan.size:
            raise LayoutBoundsError(
                f"packed has {len(part)} bytes; pass a buffer of {plan.size}, as the layout has"
            )
        there, here = address_of(memory), address_of(part)
        check_apart(there + plan.low, there + plan.high, here, here + len(part))
        return BoundPacker(array, packed, memory, part, plan.moves)

    def _move(
        self, plan: _Plan, memory: Bytes, first: int, packed: Bytes, start: int, unpacks: bool
    ) -> None:
        """Copy the packed bytes from `start` on, between buffers whose bounds were checked."""
        there, here = address_of(memory) - first, address_of(packed)
        check_apart(there + plan.low, there + plan.high, here, here + len(packed))
        found: Iterable[Move] = plan.moves
        if len(packed) < plan.size:
            found = self._moves(cut(plan.placed, start, start + len(packed)), FEW_RUNS)
        for move in found:
            kernel, piece = move.kernel(unpacks), move.piece
            if kernel is None or move.call is None:
                NumpyEngine(memory, first, packed, unpacks).copy(piece)
            else:
                kernel.run(there + piece.displacement, here + piece.position, move.call.address)

    def explain(self, count: int = 1) -> Explanation:
        """Return the engine, when compiling pays, and what is copied; print it to read it.

        Parameters
        ----------
        count : int
            Repetitions of the layout in each use.

        Examples
        --------
        >>> from spliter import layout as lo
        >>> print(lo.vector(1000, 1, 2, "f8").commit("numpy").explain())
        8000 bytes in 1000 runs: 1000 x (8 bytes) every 16 bytes
        engine numpy; compiling does not pay
        """
        plan = self._plan(count)
        node = plan.placed.node
        uses = uses_to_pay(node)
        engine = self._engine or ("numpy, then llvm" if self._compiles and uses else "numpy")
        return Explanation(
            engine, node.size, node.count_runs, uses, plan.overlaps, describe(plan.placed)
        )

    def __reduce__(self) -> tuple[Callable[..., Packer], tuple[Any, ...]]:
        return Packer, (self._layout, self._engine)

    def __repr__(self) -> str:
        return f"<Packer of {self.size} bytes: {self._layout!r}>"
