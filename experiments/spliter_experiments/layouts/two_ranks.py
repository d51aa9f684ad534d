"""Programs for two MPI ranks that exchange data which are not contiguous.

Each exchanges either packed buffers, or lets the MPI library move the data by its own datatypes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, Final, Protocol

import numpy as np

from spliter import layout as lo
from spliter_experiments.layouts.movers import stage_of
from spliter_experiments.layouts.patterns import CASES, Array, Bytes

ITERATIONS: Final = 4
"""Sweeps over the lattice in a call."""


class End(Protocol):
    """Sends and receives the data that a layout describes, from and to memory at this rank."""

    def send(self) -> None:
        """Send them to the other rank."""

    def receive(self) -> None:
        """Receive them from the other rank; other bytes of the memory stay."""


MakeEnd = Callable[[lo.Layout, Array], End]


class PackedEnd:
    """Packs with SplIter, and exchanges bytes."""

    def __init__(self, layout: lo.Layout, memory: Array, comm: Any) -> None:
        # Not by use, as by default: what is timed should not change from one call to another.
        packer = layout.commit("llvm" if find_spec("llvmlite") else "numpy")
        self._bound = packer.bind(memory, np.empty(layout.size, np.uint8))
        self._comm, self._other = comm, 1 - comm.rank

    def send(self) -> None:
        """Pack and send."""
        self._comm.Send(self._bound.pack(), self._other)

    def receive(self) -> None:
        """Receive and unpack."""
        self._comm.Recv(self._bound.packed, self._other)
        self._bound.unpack()


class DatatypeEnd:
    """Lets the MPI library move by its own datatype."""

    def __init__(self, layout: lo.Layout, memory: Array, comm: Any) -> None:
        self._data = [memory, 1, lo.to_mpi(layout)]
        self._comm, self._other = comm, 1 - comm.rank

    def send(self) -> None:
        """Send in place."""
        self._comm.Send(self._data, self._other)

    def receive(self) -> None:
        """Receive in place."""
        self._comm.Recv(self._data, self._other)


ENDS: Final[Mapping[str, Callable[[lo.Layout, Array, Any], End]]] = {
    "packed": PackedEnd,
    "mpi": DatatypeEnd,
}


class Program(Protocol):
    """A program of two ranks; both call its methods."""

    def set_up(self) -> None:
        """Clear the result."""

    def run(self) -> None:
        """Do all of it once."""

    def is_right(self) -> bool:
        """Return whether this rank's result equals, to the last bit, that of one process."""


def exchange(rank: int, source: End, to: End) -> None:
    """Send first at rank 0, and receive first at rank 1, so that neither waits for ever."""
    for call in (source.send, to.receive) if rank == 0 else (to.receive, source.send):
        call()


def bytes_from(array: Array, item: int) -> Bytes:
    """Return the memory of a contiguous array, from one of its items on.

    Examples
    --------
    >>> bytes_from(np.zeros((2, 2), "f4"), 3).nbytes
    4
    """
    return array.reshape(-1)[item:].view(np.uint8)


class PingPong:
    """The data of a pattern go to the other rank's memory, and from there back."""

    def __init__(self, case: str, size: int, end: MakeEnd, rank: int) -> None:
        self._stage, self._rank = stage_of(case, size), rank
        layout, target = self._stage.pattern.layout, self._stage.target
        self._source, self._to = (
            end(layout, self._stage.memory if rank == 0 else target),
            end(layout, target),
        )

    def set_up(self) -> None:
        """Clear the memory to receive into."""
        self._stage.set_up("unpack")

    def run(self) -> None:
        """Send and receive."""
        exchange(self._rank, self._source, self._to)

    def is_right(self) -> bool:
        """Compare what was received with what was sent; gaps are still 0."""
        stage, expected = self._stage, np.zeros_like(self._stage.target)
        for to, source in zip(
            stage.pattern.pairs(expected, stage.packed),
            stage.pattern.pairs(stage.memory, stage.packed),
            strict=True,
        ):
            at = ... if to.rows is None else to.rows
            to.memory[at] = source.memory[at]
        return np.array_equal(stage.target, expected)


class Transpose:
    """2-D FFT of a complex matrix, half of whose rows are at each rank.

    Rows are transformed, the matrix is transposed, and its rows are transformed again. The result
    is transposed.
    """

    def __init__(self, n: int, end: MakeEnd, rank: int) -> None:
        self._rank, self._half = rank, n // 2
        values = np.random.default_rng(n).standard_normal((n, n, 2)).view(np.complex128)[..., 0]
        self._own, self._theirs = (
            slice(at * self._half, (at + 1) * self._half) for at in (rank, 1 - rank)
        )
        self._part = values[self._own].copy()
        self._rows, self._turned = np.empty_like(self._part), np.empty_like(self._part)
        self.result = np.empty((self._half, n), np.complex128)
        self._expected = np.fft.fft(np.fft.fft(values, axis=1).T.copy(), axis=1)[self._own]
        item = lo.contiguous(2, "f8")
        block = lo.vector(self._half, self._half, n, item)
        column = lo.resized(lo.vector(self._half, 1, n, item), 0, 16)
        self._source, self._to = (
            end(layout, bytes_from(array, self._theirs.start))
            for layout, array in (
                (block, self._rows),
                (lo.contiguous(self._half, column), self._turned),
            )
        )

    def set_up(self) -> None:
        """Clear the result."""
        self.result[:] = 0

    def run(self) -> None:
        """Compute this rank's rows of the result."""
        np.fft.fft(self._part, axis=1, out=self._rows)
        self._turned[:, self._own] = self._rows[:, self._own].T
        exchange(self._rank, self._source, self._to)
        self.result = np.fft.fft(self._turned, axis=1)

    def is_right(self) -> bool:
        """Compare with the same transforms of the whole matrix."""
        return self.result.tobytes() == self._expected.tobytes()


def sweep(before: Array, lattice: Array, after: Array) -> Array:
    """Return the lattice after a sweep, given its planes' neighbours on both sides."""
    new: Array = 0.5 * lattice + 0.25 * (before + after)
    return new


class Halo:
    """Sweeps over a periodic 4-D lattice of vectors, cut along z, whose faces are exchanged.

    A sweep replaces each vector by half of itself and a quarter of its neighbours in z. Each rank
    has a plane of its neighbour's before its own planes, and one after them.
    """

    def __init__(self, shape: tuple[int, ...], end: MakeEnd, rank: int) -> None:
        t, z, y, x = shape
        lattice = np.random.default_rng(z).random((t, z, y * x, 6), np.float32)
        self._rank, self._planes = rank, z // 2
        own = slice(rank * self._planes, (rank + 1) * self._planes)
        self._start = lattice[:, own]
        self.result = np.zeros((t, self._planes + 2, y * x, 6), np.float32)
        for _ in range(ITERATIONS):
            lattice = sweep(np.roll(lattice, 1, axis=1), lattice, np.roll(lattice, -1, axis=1))
        self._expected = lattice[:, own]
        site = lo.contiguous(6, "f4")
        face = lo.vector(t, y * x, (self._planes + 2) * y * x, site)
        self._first, self._last, self._before, self._after = (
            end(face, bytes_from(self.result, plane * y * x * 6))
            for plane in (1, self._planes, 0, self._planes + 1)
        )

    def set_up(self) -> None:
        """Clear the result and the neighbours' planes."""
        self.result[:] = 0

    def run(self) -> None:
        """Exchange faces and sweep, several times."""
        inner = self.result[:, 1:-1]
        inner[...] = self._start
        for _ in range(ITERATIONS):
            exchange(self._rank, self._first, self._after)
            exchange(self._rank, self._last, self._before)
            inner[...] = sweep(self.result[:, :-2], inner, self.result[:, 2:])

    def is_right(self) -> bool:
        """Compare with the same sweeps over the whole lattice."""
        return self.result[:, 1:-1].tobytes() == self._expected.tobytes()


def program_of(case: str, size: int, action: str, way: str, comm: Any) -> Program:
    """Return a program of the two ranks of `comm`.

    Parameters
    ----------
    case, size
        Name and size of a pattern.
    action : {"ping-pong", "transpose", "halo"}
        What to run.
    way : {"packed", "mpi"}
        How to exchange.
    comm : mpi4py.MPI.Comm
        Of two ranks.
    """

    def end(layout: lo.Layout, memory: Array) -> End:
        return ENDS[way](layout, memory, comm)

    if action == "ping-pong":
        return PingPong(case, size, end, comm.rank)
    _, arguments = CASES[case]
    if action == "transpose":
        return Transpose(arguments[size][0], end, comm.rank)
    return Halo(arguments[size], end, comm.rank)
