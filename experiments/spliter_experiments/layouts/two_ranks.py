"""Exchange data which are not contiguous between two MPI ranks.

They exchange packed buffers, or let the MPI library move the data by its own datatypes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, Final, Protocol

import numpy as np

from spliter import layout as lo
from spliter_experiments.layouts.movers import stage_of
from spliter_experiments.layouts.patterns import Array


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
        self._comm.Send(self._bound.pack(), self._other)

    def receive(self) -> None:
        self._comm.Recv(self._bound.packed, self._other)
        self._bound.unpack()


class DatatypeEnd:
    """Lets the MPI library move by its own datatype."""

    def __init__(self, layout: lo.Layout, memory: Array, comm: Any) -> None:
        self._data = [memory, 1, lo.to_mpi(layout)]
        self._comm, self._other = comm, 1 - comm.rank

    def send(self) -> None:
        self._comm.Send(self._data, self._other)

    def receive(self) -> None:
        self._comm.Recv(self._data, self._other)


ENDS: Final[Mapping[str, Callable[[lo.Layout, Array, Any], End]]] = {
    "packed": PackedEnd,
    "mpi": DatatypeEnd,
}


def exchange(rank: int, source: End, to: End) -> None:
    """Send first at rank 0, and receive first at rank 1, so that neither waits for ever."""
    for call in (source.send, to.receive) if rank == 0 else (to.receive, source.send):
        call()


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
        self._stage.set_up("unpack")

    def run(self) -> None:
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


def ping_pong_of(case: str, size: int, way: str, comm: Any) -> PingPong:
    """Return the exchange of a pattern between the two ranks of `comm`.

    Parameters
    ----------
    case, size
        Name and size of a pattern.
    way : {"packed", "mpi"}
        How to exchange.
    comm : mpi4py.MPI.Comm
        Of two ranks.
    """
    return PingPong(case, size, lambda layout, memory: ENDS[way](layout, memory, comm), comm.rank)
