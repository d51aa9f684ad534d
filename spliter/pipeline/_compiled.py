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

from spliter.pipeline._elementwise import CACHED, dtype_of
from spliter.pipeline._inner_loops import InnerCall, Table, Walk, flags_of, loop_of, runner
from spliter.pipeline._program import Program, Step, allocate
from spliter.pipeline._types import Axis


@dataclass(frozen=True)
class Group:
    """Consecutive steps with the same handling of floating-point errors and the same driver.

    Parameters
    ----------
    errstate : mapping of str to str
    steps : list of Step
    table : Table or None
        The calls of the steps; ``None`` if they run in Python.
    """

    errstate: Mapping[str, Any]
    steps: list[Step]
    table: Table | None

    def run(self, addresses: int, start: int, items: int) -> int:
        """Run steps on a batch; return how many need not run in Python."""
        return 0 if self.table is None else self.table.run(addresses, start, items)


def groups_of(program: Program, *, compiles: bool) -> list[Group]:
    """Return the steps of a program in groups.

    Parameters
    ----------
    program : Program
        Gets constants of the dtypes that inner loops need.
    compiles : bool
        Whether inner loops may run.
    """
    compiler = _Compiler(program) if compiles and runner() is not None else None
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
    """Where the elements of an array are.

    Parameters
    ----------
    axis : int or None
        Along which it is cut.
    moves : bool
        Whether the piece of a batch begins at its first item, as that of scratch memory does not.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    axis: int | None = None
    moves: bool = False


class _Operand(NamedTuple):
    """An array of which a step takes a piece, or one that it takes whole."""

    register: int
    dtype: np.dtype[Any]
    view: _View


class _Compiler:
    """Finds the inner loops of steps."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.pieces = {operand.register: operand for operand in _pieces(program)}

    def call(self, step: Step) -> InnerCall | None:
        """Return the call that a step makes; ``None`` if it has to run in Python."""
        if not _is_plain(step):
            return None
        fn: Any = step.fn
        constants = self.program.constants
        values = [self.pieces.get(each) or constants.get(each) for each in step.args]
        dtypes = [each.dtype if isinstance(each, _Operand) else dtype_of(each) for each in values]
        loop = loop_of(fn, tuple(dtypes))
        if loop is None:
            return None
        inputs = [
            each if isinstance(each, _Operand) else self._constant(each, register, dtype)
            for each, register, dtype in zip(values, step.args, loop.dtypes, strict=False)
        ]
        results = [self.pieces.get(register) for register in step.outs]
        operands = [operand for operand in (*inputs, *results) if operand is not None]
        if [operand.dtype for operand in operands] != [*loop.dtypes]:
            return None
        found = _walk(tuple([operand.view for operand in operands]))
        if found is None:
            return None
        return InnerCall(loop, tuple([operand.register for operand in operands]), *found)

    def _constant(self, value: Any, register: int, dtype: np.dtype[Any]) -> _Operand | None:
        """Return a constant; a number is converted, if the dtype can hold it."""
        if np.ndim(value) == 0:
            try:
                with np.errstate(all="raise"):
                    value = np.asarray(value, dtype)
            except (OverflowError, FloatingPointError):
                return None
            register, self.program.registers = self.program.registers, self.program.registers + 1
            self.program.constants[register] = value
        if not isinstance(value, np.ndarray) or not value.flags.aligned:
            return None
        return _Operand(register, value.dtype, _View(value.shape, value.strides))


def _is_plain(step: Step) -> bool:
    """Return whether a step is a call of a ufunc that writes a result of its own."""
    return (
        isinstance(step.fn, np.ufunc)
        and len(step.outs) == step.fn.nout
        and len(step.args) == step.fn.nin
        and not (step.kwargs or step.call.writes)
        and step.preset is None
    )


def _pieces(program: Program) -> Iterator[_Operand]:
    """Yield the arrays that are cut, and the scratch memory."""
    for register, kind, data in program.cuts:
        if isinstance(kind, Axis) and isinstance(data, np.ndarray) and data.flags.aligned:
            axis = kind.axis % data.ndim
            yield _Operand(register, data.dtype, _View(data.shape, data.strides, axis, True))
    for each in program.scratch:
        if each.axis == 0 or each.fortran:  # else strides depend on the items of a batch
            strides = allocate(each, 1).strides
            yield _Operand(each.register, each.dtype, _View(each.shape, strides, each.axis))


SHORTEST_ROW: Final = 64
"""Elements of a row: inner loops are called for each one, where NumPy merges short ones."""


@functools.lru_cache(CACHED)
def _walk(views: tuple[_View, ...]) -> tuple[tuple[int, ...], Walk] | None:
    """Return the bytes between items of each operand, and how loops pass over all of them.

    ``None`` if they need more than two loops, or if the inner one would be short.
    """
    result = views[-1]
    at = result.axis or 0
    strides = [_broadcast(view, result) for view in views]
    others = [axis for axis, extent in enumerate(result.shape) if axis != at and extent != 1]
    if at:  # in Fortran order
        others.reverse()
    found = [each and _one_stride(each, others or [at], result.shape) for each in strides]
    if None in found:
        return None
    inner = tuple(cast("list[int]", found))
    outer = tuple([each[at] for each in strides if each])
    extent = math.prod(result.shape[axis] for axis in others)
    has_rows = any(one != stride * extent for one, stride in zip(outer, inner, strict=True))
    if has_rows and extent < SHORTEST_ROW:
        return None
    advances = tuple(
        [stride if view.moves else 0 for view, stride in zip(views, outer, strict=True)]
    )
    return advances, Walk(has_rows, extent, outer, inner)


def _broadcast(view: _View, result: _View) -> tuple[int, ...] | None:
    """Return the strides of an operand along the axes of a result; ``None`` if cut elsewhere."""
    missing = len(result.shape) - len(view.shape)
    pairs = enumerate(zip(view.shape, result.shape[missing:], strict=True), missing)
    stretched = [axis for axis, (extent, whole) in pairs if extent == 1 and whole != 1]
    at = cast(int, result.axis)
    is_whole = at < missing or at in stretched
    if is_whole != (view.axis is None) or (view.axis is not None and view.axis + missing != at):
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
