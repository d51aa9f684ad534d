"""Ways to pack, unpack and copy the data of a pattern in one process."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from spliter import layout as lo
from spliter_experiments.layouts.patterns import Array, Bytes, Pattern, pattern_of

Call = Callable[[], Any]

IN_ONE_PROCESS: Final = ("pack", "unpack", "copy")
"""Actions that need no other rank."""


@dataclass(frozen=True, eq=False)
class Stage:
    """A pattern with its buffers: memory to pack, packed bytes, and memory to unpack into."""

    pattern: Pattern
    memory: Bytes
    packed: Bytes
    target: Bytes
    movers: dict[str, Mover] = field(default_factory=dict)
    """Those made so far, by way."""

    def set_up(self, action: str) -> None:
        """Clear what the action fills, and fill what it reads."""
        self.packed[:] = 0
        self.target[:] = 0
        if action == "unpack":
            self._pack(self.memory)

    def result(self, action: str, call: Call) -> Bytes:
        """Return what the action filled; of a copy, which is made anew, the packed bytes."""
        if action == "copy":
            self._pack(call().view(np.uint8))
        return self.target if action == "unpack" else self.packed

    def _pack(self, memory: Bytes) -> None:
        for pair in self.pattern.pairs(memory, self.packed):
            pair.packed[...] = pair.memory if pair.rows is None else pair.memory[pair.rows]


@functools.lru_cache(maxsize=1)
def stage_of(case: str, size: int) -> Stage:
    pattern = pattern_of(case, size)
    memory, packed = pattern.memory(), np.empty(pattern.layout.size, np.uint8)
    return Stage(pattern, memory, packed, np.empty_like(memory))


class Mover(NamedTuple):
    """One way to move: from a stage's memory to its packed bytes, and from there to memory.

    `copy` copies the stage's memory to new memory, by way of its packed bytes unless there is a
    shorter one.
    """

    pack: Call
    unpack: Callable[[Bytes], Any]
    copy: Call | None = None

    def call(self, stage: Stage, action: str) -> Call:
        if action == "pack":
            return self.pack
        if action == "unpack":
            return functools.partial(self.unpack, stage.target)
        return self.copy or functools.partial(self._copy, stage)

    def _copy(self, stage: Stage) -> Bytes:
        copied = np.empty_like(stage.memory)
        self.pack()
        self.unpack(copied)
        return copied


def with_packer(stage: Stage, engine: Literal["numpy", "llvm"]) -> Mover:
    packer = stage.pattern.layout.commit(engine)
    return Mover(
        lambda: packer.pack(stage.memory, out=stage.packed),
        lambda memory: packer.unpack(stage.packed, out=memory),
    )


def with_bound_packer(stage: Stage) -> Mover:
    packer = stage.pattern.layout.commit("llvm")
    source, target = (packer.bind(each, stage.packed) for each in (stage.memory, stage.target))
    return Mover(source.pack, lambda _: target.unpack())


def with_datatype(stage: Stage) -> Mover:
    from mpi4py import MPI

    from spliter import layout as lo

    datatype, comm = lo.to_mpi(stage.pattern.layout), MPI.COMM_SELF
    # mpi4py would move as many items as the memory has room for.
    one = slice(0, stage.pattern.layout.extent)
    return Mover(
        lambda: datatype.Pack(stage.memory[one], stage.packed, 0, comm),
        lambda memory: datatype.Unpack(stage.packed, 0, memory[one], comm),
    )


def with_views(stage: Stage) -> Mover:
    """Return the mover of NumPy's functions on views, which are made before."""
    pairs_in = functools.lru_cache(2)(
        lambda into: [*stage.pattern.pairs(stage.target if into else stage.memory, stage.packed)]
    )

    def pack() -> None:
        for memory, packed, rows in pairs_in(False):
            if rows is None:
                np.copyto(packed, memory)
            else:  # with another mode NumPy fills a buffer first
                memory.take(rows, 0, packed, "clip")

    def unpack(_: Bytes) -> None:
        for memory, packed, rows in pairs_in(True):
            memory[... if rows is None else rows] = packed

    def copy() -> Array:
        assert stage.pattern.rows is not None
        return stage.memory.view(stage.pattern.rows).copy()

    return Mover(pack, unpack, copy)


def mover_of(way: str, stage: Stage) -> Mover:
    if way not in stage.movers:
        stage.movers[way] = MOVERS[way](stage)
    return stage.movers[way]


MOVERS: Final[Mapping[str, Callable[[Stage], Mover]]] = {
    "llvm": functools.partial(with_packer, engine="llvm"),
    "bound": with_bound_packer,
    "numpy": functools.partial(with_packer, engine="numpy"),
    "views": with_views,
    "mpi": with_datatype,
}
"""How a process moves, by the names of the ways; ``mpi`` is the MPI library of its environment."""


class End(NamedTuple):
    """Calls that send and receive what a layout describes; other bytes of the memory stay."""

    send: Callable[[], None]
    receive: Callable[[], None]


def packed(layout: lo.Layout, memory: Array, comm: Any) -> End:
    """Pack with SplIter, and exchange bytes."""
    # Not by use, as by default: what is timed should not change from one call to another.
    packer = layout.commit("llvm" if find_spec("llvmlite") else "numpy")
    bound, other = packer.bind(memory, np.empty(layout.size, np.uint8)), 1 - comm.rank

    def receive() -> None:
        comm.Recv(bound.packed, other)
        bound.unpack()

    return End(lambda: comm.Send(bound.pack(), other), receive)


def by_datatype(layout: lo.Layout, memory: Array, comm: Any) -> End:
    """Let the MPI library move by its own datatype, in place."""
    data, other = [memory, 1, lo.to_mpi(layout)], 1 - comm.rank
    return End(lambda: comm.Send(data, other), lambda: comm.Recv(data, other))


ENDS: Final[Mapping[str, Callable[[lo.Layout, Array, Any], End]]] = {
    "packed": packed,
    "mpi": by_datatype,
}


@dataclass(frozen=True)
class PingPong:
    """The data of a pattern go to the other rank's memory, and from there back."""

    stage: Stage
    calls: tuple[Callable[[], None], ...]

    def run(self) -> None:
        for call in self.calls:
            call()

    def is_right(self) -> bool:
        """Compare what was received with what was sent; gaps are still 0."""
        stage, expected = self.stage, np.zeros_like(self.stage.target)
        for to, source in zip(
            stage.pattern.pairs(expected, stage.packed),
            stage.pattern.pairs(stage.memory, stage.packed),
            strict=True,
        ):
            at = ... if to.rows is None else to.rows
            to.memory[at] = source.memory[at]
        return np.array_equal(stage.target, expected)


def ping_pong_of(case: str, size: int, way: str, comm: Any) -> PingPong:
    """Return the exchange of a pattern between the two ranks of `comm`, by one of the `ENDS`."""
    stage, end = stage_of(case, size), ENDS[way]
    layout, memory = stage.pattern.layout, stage.memory if comm.rank == 0 else stage.target
    send, receive = end(layout, memory, comm).send, end(layout, stage.target, comm).receive
    # In this order neither rank waits for ever.
    return PingPong(stage, (send, receive) if comm.rank == 0 else (receive, send))
