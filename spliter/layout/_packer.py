"""Pack and unpack the bytes of a committed layout, whole or in parts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias

import numpy as np

from spliter._errors import InvalidArgumentError, LayoutBoundsError, LayoutOverlapError
from spliter.layout._cut import cut
from spliter.layout._explain import Explanation, describe
from spliter.layout._integers import whole, within
from spliter.layout._kernels import KERNELS, check_installed, is_installed
from spliter.layout._llvm_engine import FEW_RUNS, LlvmEngine, uses_to_pay
from spliter.layout._lower import Described, lower
from spliter.layout._memory import (
    Buffer,
    Bytes,
    Memory,
    check_contiguous,
    contiguous_bytes,
)
from spliter.layout._nodes import Node, Placed, repeat
from spliter.layout._numpy_engine import NumpyEngine
from spliter.layout._overlap import overlaps
from spliter.layout._shapes import Call, call_of

Engine: TypeAlias = Literal["numpy", "llvm"]


MOST_PLANS: Final = 8
"""Counts of repetitions that a packer has ready."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """Some repetitions of a layout: normal form, kernel and whether a byte is taken twice."""

    placed: Placed
    calls: Mapping[Node, Call]
    overlaps: bool


class Committable(Described, Protocol):
    """A layout, as a packer sees it."""

    def commit(self, engine: Engine | None = None) -> Packer: ...


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

    Examples
    --------
    >>> from spliter import layout as lo
    >>> x = np.arange(12.0).reshape(3, 4)
    >>> packer = lo.subarray([3, 4], [2, 2], [1, 1], "f8").commit()
    >>> packed = packer.pack(x)
    >>> packed.view("f8")
    array([ 5.,  6.,  9., 10.])
    >>> packer.unpack(packed, out=np.zeros((3, 4)))
    array([[ 0.,  0.,  0.,  0.],
           [ 0.,  5.,  6.,  0.],
           [ 0.,  9., 10.,  0.]])
    """

    def __init__(self, layout: Committable, engine: Engine | None = None) -> None:
        if engine not in {None, "numpy", "llvm"}:
            raise InvalidArgumentError(
                f'engine must be "numpy", "llvm" or None, got {engine!r}; leave it out'
            )
        if engine == "llvm":
            check_installed()
        self._layout = layout
        self._engine = engine
        self._one = lower(layout)
        self._plan = functools.lru_cache(MOST_PLANS)(self._make_plan)
        plan = self._plan(1)
        call = plan.calls.get(plan.placed.node)
        if engine == "llvm" and call and plan.placed.node.count_runs >= FEW_RUNS:
            KERNELS.find(call.shape, unpacks=False, saves=1)

    @property
    def layout(self) -> Any:
        """The layout that was committed."""
        return self._layout

    @property
    def size(self) -> int:
        """Bytes that one repetition packs to."""
        return self._layout.size

    def _make_plan(self, count: int) -> _Plan:
        within("count * size", count * self.size)
        within("count * extent", count * self._layout.extent)
        placed = repeat(count, self._layout.extent, self._one)
        call = call_of(placed.node) if self._compiles else None
        return _Plan(placed, {placed.node: call} if call else {}, overlaps(placed.node))

    def _plan_for(self, count: int) -> _Plan:
        return self._plan(whole("count", count, 0))

    @property
    def _compiles(self) -> bool:
        return self._engine == "llvm" or (self._engine is None and is_installed())

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
            Contiguous and writable; filled from its first byte on, as far as the packed bytes from
            `start` on go. By default, a new array for all of them.
        start : int
            First of the packed bytes to copy.
        count : int
            Repetitions of the layout, each an extent further.

        Returns
        -------
        ndarray of uint8
            The bytes that were copied: `out` as bytes, up to the last one filled.

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
        plan = self._plan_for(count)
        placed = plan.placed
        memory = Memory.of("array", array)
        memory.check(placed.low, placed.high)
        left = placed.node.size - self._start(start, placed.node.size)
        packed = np.empty(left, np.uint8) if out is None else contiguous_bytes("out", out, True)
        packed = packed[:left]
        self._move(plan, memory, packed, start, unpacks=False)
        return packed

    def unpack(self, packed: Buffer, out: Buffer, start: int | None = None, count: int = 1) -> Any:
        """Copy packed bytes back to their places in an array; gaps stay untouched.

        Parameters
        ----------
        packed : array or buffer
            Contiguous: all packed bytes, or a part of them if `start` is given.
        out : array or buffer
            Contiguous and writable; displacements count from its first element.
        start : int, optional
            Position of the first of the bytes among all packed bytes, if they are a part.
        count : int
            Repetitions of the layout.

        Returns
        -------
        object
            `out`.

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
        plan = self._plan_for(count)
        placed = plan.placed
        if plan.overlaps:
            raise LayoutOverlapError(
                f"{count} x {self._layout!r} takes some bytes more than once, so packed bytes have "
                "no one place in it; unpack with a layout without overlapping displacements"
            )
        check_contiguous("out", out, writeable=True)
        memory = Memory.of("out", out)
        memory.check(placed.low, placed.high)
        part = contiguous_bytes("packed", packed)
        total = placed.node.size
        begin = 0 if start is None else self._start(start, total)
        if len(part) > total - begin or (start is None and len(part) < total):
            raise LayoutBoundsError(
                f"packed has {len(part)} bytes, the layout {total - begin} from byte {begin} on; "
                "pass all of them, or with start=... a part"
            )
        self._move(plan, memory, part, begin, unpacks=True)
        return out

    def chunks(self, array: Buffer, nbytes: int, count: int = 1) -> Iterator[Bytes]:
        """Yield the packed bytes of an array in chunks.

        Parameters
        ----------
        array : array or buffer
            As for :meth:`pack`.
        nbytes : int
            Bytes of each chunk, from 1 on; the last one may be shorter.
        count : int
            Repetitions of the layout.

        Yields
        ------
        ndarray of uint8
            A new array each time.

        Raises
        ------
        LayoutBoundsError, InvalidArgumentError
            As for :meth:`pack`, when the first chunk is requested.

        Examples
        --------
        >>> from spliter import layout as lo
        >>> packer = lo.vector(3, 1, 2, "u1").commit()
        >>> [bytes(chunk) for chunk in packer.chunks(b"a.b.c.", nbytes=2)]
        [b'ab', b'c']
        """
        nbytes = whole("nbytes", nbytes, 1)
        total = self._plan_for(count).placed.node.size
        for start in range(0, total, nbytes):
            out = np.empty(min(nbytes, total - start), np.uint8)
            yield self.pack(array, out, start, count)

    def _start(self, start: int, total: int) -> int:
        """Return a position in the packed bytes."""
        start = whole("start", start, 0)
        if start > total:
            raise LayoutBoundsError(
                f"start is {start}, past the end of {total} packed bytes; pass 0 to {total}"
            )
        return start

    def _move(self, plan: _Plan, memory: Memory, packed: Bytes, start: int, unpacks: bool) -> None:
        """Copy the packed bytes from `start` on, between buffers whose bounds were checked."""
        here = packed.ctypes.data
        memory.check_apart(plan.placed.low, plan.placed.high, here, len(packed))
        engine: NumpyEngine | LlvmEngine
        engine = NumpyEngine(memory, packed, unpacks)
        if self._compiles:
            eager = self._engine == "llvm"
            engine = LlvmEngine(engine, memory.address, here, plan.calls, eager)
        for piece in cut(plan.placed, start, start + len(packed)):
            engine.copy(piece)

    def explain(self, count: int = 1) -> Explanation:
        """Return the engine, when compiling pays, and what is copied.

        Parameters
        ----------
        count : int
            Repetitions of the layout in each use.

        Returns
        -------
        Explanation
            Print it to read it.

        Examples
        --------
        >>> from spliter import layout as lo
        >>> print(lo.vector(1000, 1, 2, "f8").commit("numpy").explain())
        8000 bytes in 1000 runs: 1000 x (8 bytes) every 16 bytes
        engine numpy; compiling does not pay
        """
        plan = self._plan_for(count)
        node, uses = plan.placed.node, uses_to_pay(plan.placed.node)
        engine = "numpy, then llvm" if self._compiles and uses else "numpy"
        return Explanation(
            self._engine or engine,
            node.size,
            node.count_runs,
            uses,
            plan.overlaps,
            describe(plan.placed),
        )

    def __reduce__(self) -> tuple[Callable[..., Packer], tuple[Any, ...]]:
        return Packer, (self._layout, self._engine)

    def __repr__(self) -> str:
        return f"<Packer of {self.size} bytes: {self._layout!r}>"
