"""Compile a stage to steps on numbered registers, which a thread runs for each batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

import numpy as np

from spliter._machine.cache import cache_nbytes
from spliter.pipeline._annotations.elementwise import CONTIGUOUS_ONLY
from spliter.pipeline._calls.calls import Call, Node, Typing
from spliter.pipeline._calls.metas import ArrayMeta, Meta
from spliter.pipeline._calls.reductions import first_step
from spliter.pipeline._calls.split_types import (
    ROWS,
    Axis,
    Broadcast,
    SplitType,
    Unknown,
    item_nbytes,
)
from spliter.pipeline._options import Options
from spliter.pipeline._planning.stages import Stage

MAX_BATCH_NBYTES: Final = 2**23
"""Bytes of the live pieces of a batch of calls in Python, which hold the interpreter lock: fewer
calls on pieces from the level-3 cache are faster. With batches of 4, 8, 16, 32, 64 and 128 thousand
items of 96 bytes Black-Scholes took 434, 325, 290, 271, 268 and 268 ms."""

COMPILED_SHARE: Final = 1.0
"""Bytes of the live pieces of a batch of compiled calls, in level-2 caches: with 1/8, 1/4, 1/2, 1,
2, 4 and 8 of them ten additions took 13.5, 11.2, 10.0, 9.6, 11.7, 12.7 and 13.0 ms."""

MAX_TEMPORARY_NBYTES: Final = 2**21
"""Most bytes of the temporaries of a thread."""

LEAST_FRAME_ROWS, MOST_FRAME_ROWS, MOST_FRAME_THREADS = 2**18, 2**20, 4
"""Rows of a batch with frames, and threads unless more are asked for: calls of pandas take some 50
us, and hold the lock. With 1/8, 1/4, 1/2 and 1 million rows the index of crimes took 131, 89, 62
and 54 ms; with 2, 4, 8 and 16 threads the names of babies 241, 166, 211 and 342 ms."""


class Step(NamedTuple):
    """A call on registers."""

    fn: Callable[..., Any]
    args: tuple[int, ...]
    kwargs: tuple[tuple[str, int], ...]
    results: tuple[int, ...]
    outs: tuple[int, ...]  # arrays for the results, passed as `out`; none if the call makes them
    takes_start: bool  # the call gets the position of the first item
    call: Call
    last_used: tuple[int, ...]  # results of earlier calls that no later step needs
    checked: tuple[tuple[int, SplitType, Meta], ...]  # results of users, and what they declare


class Scratch(NamedTuple):
    """Memory of a thread for the results of one or more calls of a batch."""

    register: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass
class Program:
    """A compiled stage."""

    length: int
    registers: int = 0
    constants: dict[int, Any] = field(default_factory=dict)
    cuts: list[tuple[int, SplitType, Any]] = field(default_factory=list)
    scratch: list[Scratch] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    # Registers whose pieces are collected, by split type.
    results: list[tuple[int, SplitType, Node]] = field(default_factory=list)
    # Results that the calls write straight into an array.
    allocated: list[tuple[Node, Any]] = field(default_factory=list)
    # Whether items are rows of frames.
    has_frames: bool = False
    # Bytes of an item of all pieces that are live at a time.
    item_nbytes: float = 0.0
    # Bytes of an item of those that are neither sources nor results.
    temporary_nbytes: float = 0.0

    def threads(self, options: Options) -> int:
        """Return how many threads run batches."""
        count = options.thread_count
        limits = self.has_frames and options.threads == "auto"
        return min(count, MOST_FRAME_THREADS) if limits else count

    def batch(self, options: Options, driver: str) -> int:
        """Return the items of a batch, so that its pieces fit the cache."""
        if isinstance(options.batch, int):
            return options.batch
        threads = self.threads(options)
        count = -(-self.length // self._fitting(driver, threads))
        if count > 1 or not self.has_frames:  # as many for each thread
            count = -(-count // threads) * threads
        return -(-self.length // count)

    def _fitting(self, driver: str, threads: int) -> int:
        """Return the most items of a batch."""
        if self.has_frames:
            return min(max(-(-self.length // threads), LEAST_FRAME_ROWS), MOST_FRAME_ROWS)
        most = COMPILED_SHARE * cache_nbytes() if driver == "compiled" else MAX_BATCH_NBYTES
        in_cache = most / max(self.item_nbytes, 1.0)
        bounded = MAX_TEMPORARY_NBYTES / max(self.temporary_nbytes, 1.0)
        return max(int(min(in_cache, bounded)), 1)

    def add_temporary(self, nbytes: float) -> None:
        """Count bytes of an item of a temporary."""
        self.item_nbytes += nbytes
        self.temporary_nbytes += nbytes


class Compiler:
    """Makes the program of a stage that is cut: assigns registers, and reuses scratch memory."""

    def __init__(self, stage: Stage) -> None:
        self.program = program = Program(cast(int, stage.length))
        self.stage = stage
        self.at: dict[Node, int] = {}
        self.cut_at: dict[tuple[Any, SplitType], int] = {}
        self.free: dict[tuple[Any, ...], list[int]] = {}
        self.slot_of: dict[Node, tuple[list[int], int]] = {}
        self.allocated: dict[Node, float] = {}
        self.allocated_nbytes = self.peak_nbytes = 0.0
        self.stored = {*stage.stored}
        last_use: dict[Node, int] = {}
        for number, (call, _) in enumerate(stage.calls):
            last_use.update(dict.fromkeys(call.inputs, number))
            last_use.update((node, number) for _, node in stage.results[number])
        last_uses: list[list[Node]] = [[] for _ in stage.calls]
        for node, number in last_use.items():
            last_uses[number].append(node)
        self.kept_inputs = {
            node for call, _ in stage.calls if not call.annotation.scratch for node in call.inputs
        }
        for number, (call, typing) in enumerate(stage.calls):
            self._add(call, typing, stage.results[number])
            self._release(last_uses[number])
        written = {id(node) for node, _ in program.allocated}
        program.results += [
            (self.at[node], stage.made[node], node)
            for node in stage.stored
            if id(node) not in written
        ]

    def _release(self, nodes: list[Node]) -> None:
        """Reuse or free the memory of values that the last step was the last to use."""
        for node in nodes:
            if node in self.slot_of:
                free, register = self.slot_of.pop(node)
                free.append(register)
        if freed := [node for node in nodes if node in self.allocated and node not in self.stored]:
            step = self.program.steps[-1]
            self.allocated_nbytes -= sum(self.allocated.pop(node) for node in freed)
            registers = {self.at[node] for node in freed} - {*step.results}
            self.program.steps[-1] = step._replace(last_used=tuple(registers))

    def _register(self) -> int:
        self.program.registers += 1
        return self.program.registers - 1

    def _add(self, call: Call, typing: Typing, live: list[tuple[int, Node]]) -> None:
        kinds = iter(typing.inputs)
        args = tuple([self._input(value, kinds) for value in call.args])
        kwargs = tuple([(name, self._input(value, kinds)) for name, value in call.kwargs.items()])
        outs = self._outs(call, typing, live)
        results = outs or tuple([self._register() for _ in call.outputs])
        fn, takes_start = typing.fn or first_step(call.fn, typing.outputs), False
        for kind in typing.outputs:
            takes_start |= getattr(kind, "takes_start", False)
        for number, node in live:
            self.at[node] = results[number]
            if not outs:
                self._allocate(node, typing.outputs[number])
        checked: list[tuple[int, SplitType, Meta]] = []
        if typing.is_checked:
            metas = {number: node.meta for number, node in live}
            triples = enumerate(zip(results, typing.outputs, strict=True))
            checked = [(at, kind, metas.get(number)) for number, (at, kind) in triples]
        self.program.steps.append(
            Step(fn, args, kwargs, results, outs, takes_start, call, (), tuple(checked))
        )

    def _allocate(self, node: Node, kind: SplitType) -> None:
        """Count the bytes of an item of a result that a call allocates."""
        self.allocated[node] = nbytes = _expected_nbytes(node, kind)
        self.allocated_nbytes += nbytes
        if self.allocated_nbytes > self.peak_nbytes:
            self.program.add_temporary(self.allocated_nbytes - self.peak_nbytes)
            self.peak_nbytes = self.allocated_nbytes

    def _input(self, value: Any, kinds: Iterator[SplitType]) -> int:
        if isinstance(value, Node):
            kind = next(kinds)
            if value in self.at:
                return self.at[value]
            if not isinstance(kind, Broadcast):
                return self._cut(value.data, kind)
            value = value.data
        register = self._register()
        self.program.constants[register] = value
        return register

    def _cut(self, data: Any, kind: SplitType) -> int:
        """Return the register of a value's pieces."""
        key = _identity(data), kind
        if key not in self.cut_at:
            self.cut_at[key] = self._register()
            self.program.cuts.append((self.cut_at[key], kind, data))
            self.program.item_nbytes += item_nbytes(kind, data)
            self.program.has_frames |= hasattr(type(data), "iloc")
        return self.cut_at[key]

    def _outs(self, call: Call, typing: Typing, live: list[tuple[int, Node]]) -> tuple[int, ...]:
        """Return registers of arrays into which a ufunc writes its results."""
        is_ufunc = isinstance(call.fn, np.ufunc) and len(live) == len(call.outputs)
        nodes = [node for _, node in live]
        if not is_ufunc or typing.outputs[0] != ROWS or not self.kept_inputs.isdisjoint(nodes):
            return ()
        metas = [node.meta for node in nodes if node.meta and node.meta.exact]
        if len(metas) < len(nodes) or (len(metas[0].shape) > 1 and call.fn in CONTIGUOUS_ONLY):
            return ()
        return tuple([self._out(*pair) for pair in zip(nodes, metas, strict=True)])

    def _out(self, node: Node, meta: ArrayMeta) -> int:
        shape = cast(tuple[int, ...], meta.shape)
        if node in self.stored:
            result = np.empty(shape, meta.dtype)
            self.program.allocated.append((node, result))
            return self._cut(result, ROWS)
        free = self.free.setdefault((meta.dtype, shape), [])
        if not free:
            free.append(self._register())
            self.program.scratch.append(Scratch(free[0], shape, meta.dtype))
            self.program.add_temporary(_expected_nbytes(node, ROWS))
        self.slot_of[node] = free, (register := free.pop())
        return register


def _identity(data: Any) -> Any:
    """Return what equal views have in common, which a program makes wherever it slices anew."""
    if not isinstance(data, np.ndarray) or data.base is None:
        return id(data)
    start = data.__array_interface__["data"][0]
    return start, data.shape, data.strides, data.dtype, data.flags.writeable


def _expected_nbytes(node: Node, kind: SplitType) -> float:
    """Return the bytes of an item of a result, as far as they are known."""
    if not isinstance(node.meta, ArrayMeta) or not isinstance(kind, Axis | Unknown):
        return 0.0
    axis = kind.axis if isinstance(kind, Axis) else 0
    rest = [extent or 1 for at, extent in enumerate(node.meta.shape) if at != axis]
    return float(node.meta.dtype.itemsize * math.prod(rest))


def allocate(scratch: Scratch, batch: int) -> Any:
    """Return the memory of batches of some items."""
    length, *rest = scratch.shape
    return np.empty([min(batch, length), *rest], scratch.dtype)
