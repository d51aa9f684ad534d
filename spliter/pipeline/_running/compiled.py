"""Choose the steps of a program that run as a table of inner loops, without the interpreter lock.

These are calls of ufuncs on arrays of the dtypes of an inner loop, which write their results into
scratch memory or a new array. All other steps run in Python, and where an inner loop raised a
floating-point error, Python repeats the step and goes on: inputs are never overwritten.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

import numpy as np

from spliter.pipeline._annotations.elementwise import CACHED, dtype_of
from spliter.pipeline._calls.split_types import ROWS
from spliter.pipeline._running.inner_loops import (
    InnerCall,
    Loop,
    Table,
    Walk,
    flags_of,
    loop_of,
    runner,
)
from spliter.pipeline._running.program import Program, Step, allocate


@dataclass(frozen=True)
class Group:
    """Consecutive steps with the same handling of floating-point errors and the same driver."""

    errstate: Mapping[str, Any]
    steps: list[Step]
    table: Table | None


def groups_of(program: Program) -> list[Group]:
    """Return the steps of a program in groups."""
    compiler = _Compiler(program) if runner() is not None else None
    calls = [compiler.call(step) if compiler else None for step in program.steps]
    pairs = zip(program.steps, calls, strict=True)
    return [
        _group(list(some))
        for _, some in itertools.groupby(
            pairs, lambda pair: (pair[0].call.errstate, pair[1] is not None)
        )
    ]


def driver_of(groups: Sequence[Group]) -> str:
    """Return the name of the driver that runs groups of steps."""
    compiled = [group.table is not None for group in groups]
    return "compiled" if all(compiled) else "compiled and Python" if any(compiled) else "Python"


def _group(pairs: list[tuple[Step, InnerCall | None]]) -> Group:
    errstate = pairs[0][0].call.errstate
    calls = [call for _, call in pairs if call is not None]
    table = Table(calls, flags_of(errstate)) if calls else None
    return Group(errstate, [step for step, _ in pairs], table)


class _View(NamedTuple):
    """Dtype and place of the elements of an operand."""

    dtype: Any
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    is_cut: bool = False
    moves: bool = False  # a batch begins at its first item, as it does not in scratch memory


class _Compiler:
    """Finds the inner loops of steps."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.views = dict(_pieces(program))

    def call(self, step: Step) -> InnerCall | None:
        """Return the call that a step makes; ``None`` if it has to run in Python."""
        if not _is_plain(step):
            return None
        registers = [*step.args, *step.outs]
        views: Any = tuple([self.views.get(each) or self._constant(each) for each in registers])
        found = None if None in views else _inner_call(step.fn, views)
        if found is None:
            return None
        loop, walk = found
        for at, view in enumerate(views):
            if not view.shape:
                registers[at] = self._converted(registers[at], loop.dtypes[at])
        return None if -1 in registers else InnerCall(loop, walk, registers)

    def _constant(self, register: int) -> _View | None:
        value = self.program.constants.get(register)
        if isinstance(value, np.ndarray) and value.ndim:
            aligned = value.flags.aligned
            return _View(value.dtype, value.shape, value.strides) if aligned else None
        return None if value is None else _View(dtype_of(value))

    def _converted(self, register: int, dtype: np.dtype[Any]) -> int:
        """Return the register of a number as an array; -1 if the dtype cannot hold it."""
        try:
            with np.errstate(all="raise"):
                value = np.asarray(self.program.constants[register], dtype)
        except (OverflowError, FloatingPointError):
            return -1
        self.program.constants[self.program.registers] = value
        self.program.registers += 1
        return self.program.registers - 1


@functools.lru_cache(CACHED)
def _inner_call(ufunc: np.ufunc, views: tuple[_View, ...]) -> tuple[Loop, Walk] | None:
    """Return an inner loop for some operands, and how it passes over them, if there is one."""
    loop = loop_of(ufunc, tuple([view.dtype for view in views[: ufunc.nin]]))
    if loop is None:
        return None
    pairs = zip(views, loop.dtypes, strict=True)
    if any(view.shape and view.dtype != dtype for view, dtype in pairs):
        return None
    walk = _walk(views)
    return None if walk is None else (loop, walk)


def _is_plain(step: Step) -> bool:
    """Return whether a step is a call of a ufunc that writes a result of its own."""
    return (
        isinstance(step.fn, np.ufunc)
        and len(step.outs) == step.fn.nout
        and len(step.args) == step.fn.nin
        and not step.kwargs
    )


def _pieces(program: Program) -> Iterator[tuple[int, _View]]:
    """Yield the registers of arrays that are cut, and of scratch memory."""
    for register, kind, data in program.cuts:
        if kind == ROWS and isinstance(data, np.ndarray) and data.flags.aligned:
            yield register, _View(data.dtype, data.shape, data.strides, True, True)
    for each in program.scratch:
        yield each.register, _View(each.dtype, each.shape, allocate(each, 1).strides, True)


SHORTEST_ROW: Final = 64
"""Elements of a row: inner loops are called for each one, where NumPy merges short ones."""


def _walk(views: tuple[_View, ...]) -> Walk | None:
    """Return how loops pass over the operands of a call.

    ``None`` if they need more than two loops, or if the inner one would be short.
    """
    shape = views[-1].shape
    strides = [_broadcast(view, shape) for view in views]
    others = [axis for axis, extent in enumerate(shape) if axis and extent != 1]
    found = [each and _one_stride(each, others or [0], shape) for each in strides]
    if None in found:
        return None
    inner = cast("list[int]", found)
    outer = [each[0] for each in strides if each]
    extent = math.prod(shape[axis] for axis in others)
    has_rows = any(one != stride * extent for one, stride in zip(outer, inner, strict=True))
    if has_rows and extent < SHORTEST_ROW:
        return None
    advances = [stride if view.moves else 0 for view, stride in zip(views, outer, strict=True)]
    return Walk.of(has_rows, extent, advances, outer, inner)


def _broadcast(view: _View, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the strides of an operand along the axes of a result; ``None`` if it is cut else."""
    missing = len(shape) - len(view.shape)
    pairs = enumerate(zip(view.shape, shape[missing:], strict=True), missing)
    stretched = [axis for axis, (extent, whole) in pairs if extent == 1 and whole != 1]
    if view.is_cut == (missing > 0 or 0 in stretched):
        return None
    strides = [*(0,) * missing, *view.strides]
    for axis in stretched:
        strides[axis] = 0
    return tuple(strides)


def _one_stride(strides: Sequence[int], axes: Sequence[int], shape: Sequence[int]) -> int | None:
    """Return the stride by which one loop passes over some axes; ``None`` if there is none."""
    for axis, inner in itertools.pairwise(axes):
        if strides[axis] != strides[inner] * shape[inner]:
            return None
    return strides[axes[-1]]
