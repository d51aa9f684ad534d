"""Choose the steps of a program that run as a table of inner loops, without the interpreter lock.

These are calls of ufuncs on arrays of the dtypes of an inner loop, which write their results into
scratch memory or a new array. All other steps run in Python, and where an inner loop raised a
floating-point error, Python repeats the step and goes on: inputs are never overwritten.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from spliter.pipeline._elementwise import dtype_of
from spliter.pipeline._inner_loops import RECORD, Loop, Table, fill, flags_of, loop_of, runner
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
    table = _Table(program) if compiles and runner() is not None else None
    records = [table and table.record(step) for step in program.steps]
    pairs = zip(program.steps, records, strict=True)
    return [
        _group(dict(errstate), list(some))
        for (errstate, _), some in itertools.groupby(
            pairs, lambda pair: ([*pair[0].call.errstate.items()], pair[1] is not None)
        )
    ]


def driver_of(groups: Sequence[Group]) -> str:
    """Return the name of the driver that runs groups of steps."""
    compiled = [group.table is not None for group in groups]
    return "compiled" if all(compiled) else "compiled and Python" if any(compiled) else "Python"


def _group(errstate: Mapping[str, Any], pairs: list[tuple[Step, Any]]) -> Group:
    records = [pair for _, pair in pairs if pair is not None]
    owners = [loop for _, loop in records]
    table = Table(np.concatenate([each for each, _ in records]), owners) if records else None
    return Group(errstate, [step for step, _ in pairs], table)


class _Operand(NamedTuple):
    """An array of which a step takes a piece, or one that it takes whole."""

    register: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    axis: int | None
    moves: bool
    """Whether the piece of a batch begins at its first item, as that of scratch memory does not."""


class _Table:
    """Makes records of steps."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.operands = {operand.register: operand for operand in _pieces(program)}

    def record(self, step: Step) -> tuple[Any, Loop] | None:
        """Return the record of a step and its loop; ``None`` if it has to run in Python."""
        if not _is_plain(step):
            return None
        fn: Any = step.fn
        results = [self.operands.get(register) for register in step.outs]
        values = [self.program.constants.get(register) for register in step.args]
        known = [self.operands.get(register) for register in step.args]
        dtypes = [
            operand.dtype if operand else dtype_of(value)
            for operand, value in zip(known, values, strict=True)
        ]
        loop = loop_of(fn, tuple(dtypes))
        if loop is None:
            return None
        inputs = [
            operand or self._constant(register, dtype)
            for operand, register, dtype in zip(known, step.args, loop.dtypes, strict=False)
        ]
        operands = [operand for operand in (*inputs, *results) if operand is not None]
        if [operand.dtype for operand in operands] != [*loop.dtypes]:
            return None
        return self._filled(loop, flags_of(step.call.errstate), operands)

    def _filled(
        self, loop: Loop, flags: int, operands: Sequence[_Operand]
    ) -> tuple[Any, Loop] | None:
        walk = _walk(operands)
        if walk is None:
            return None
        record = np.zeros(1, RECORD)
        advances = [each.strides[each.axis or 0] if each.moves else 0 for each in operands]
        fill(record[0], loop, flags, [each.register for each in operands], advances, walk)
        return record, loop

    def _constant(self, register: int, dtype: np.dtype[Any]) -> _Operand | None:
        """Return a constant, converted if it is a number."""
        program = self.program
        if register not in program.constants:
            return None
        value = program.constants[register]
        if np.ndim(value) == 0:
            value = np.asarray(value, dtype)
            register, program.registers = program.registers, program.registers + 1
            program.constants[register] = value
        if not value.flags.aligned:
            return None
        return _Operand(register, value.dtype, value.shape, value.strides, None, False)


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
            yield _Operand(register, data.dtype, data.shape, data.strides, axis, True)
    for each in program.scratch:
        if each.axis == 0 or each.fortran:  # else strides depend on the items of a batch
            strides = allocate(each, 1).strides
            yield _Operand(each.register, each.dtype, each.shape, strides, each.axis, False)


def _walk(operands: Sequence[_Operand]) -> tuple[bool, int, list[int], list[int]] | None:
    """Return how two nested loops pass over operands: the arguments of ``fill``.

    ``None`` if they need more loops, or if the inner one would be short.
    """
    result = operands[-1]
    ndim, at = len(result.shape), result.axis
    assert at is not None
    strides = [_broadcast(each, result) for each in operands]
    if any(each is None for each in strides):
        return None
    others = [axis for axis in range(ndim) if axis != at and result.shape[axis] != 1]
    if at:  # in Fortran order
        others.reverse()
    extent = math.prod(result.shape[axis] for axis in others)
    outer = [each[at] for each in strides if each is not None]
    inner = [
        _one_stride(each, others, result.shape, each[at]) for each in strides if each is not None
    ]
    if None in inner:
        return None
    found = [stride for stride in inner if stride is not None]
    if all(one == stride * extent for one, stride in zip(outer, found, strict=True)):
        return False, extent, outer, found
    return (True, extent, outer, found) if extent >= SHORTEST_ROW else None


SHORTEST_ROW = 64
"""Elements of a row, as inner loops are called for each one; NumPy merges short ones otherwise."""


def _broadcast(operand: _Operand, result: _Operand) -> tuple[int, ...] | None:
    """Return the strides of an operand along the axes of a result; ``None`` if cut elsewhere."""
    missing = len(result.shape) - len(operand.shape)
    if operand.axis is not None and operand.axis + missing != result.axis:
        return None
    if operand.axis is None and missing == 0 and operand.shape[result.axis or 0] != 1:
        return None
    strides = [
        0 if extent == 1 and whole != 1 else stride
        for extent, stride, whole in zip(
            operand.shape, operand.strides, result.shape[missing:], strict=True
        )
    ]
    return (*(0,) * missing, *strides)


def _one_stride(
    strides: Sequence[int], axes: Sequence[int], shape: Sequence[int], alone: int
) -> int | None:
    """Return the stride by which one loop passes over some axes; ``None`` if there is none."""
    if not axes:
        return alone
    for axis, inner in itertools.pairwise(axes):
        if strides[axis] != strides[inner] * shape[inner]:
            return None
    return strides[axes[-1]]
