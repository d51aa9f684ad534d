"""Pickle calls of task functions; workers unpickle and run them.

The client pickles function and arguments when a task is submitted: unpicklable arguments raise an
error at that line, and later changes of an argument do not affect the task. The scheduler forwards
the bytes, and needs none of the program's modules.

A function of an imported module is pickled by name. A function of the main program, or a nested
one, is pickled with its code, closure and globals, which takes up to 1 ms: more than all else that
submitting a task costs. So the pickle is cached with the state of the captured values, and made
again when that has changed.
"""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any, Final

import cloudpickle
from dask._task_spec import Alias, GraphNode, List, parse_input
from dask.sizeof import sizeof
from distributed.protocol.pickle import dumps

from spliter_backends._shared.unpicklable import global_names, not_serializable
from spliter_backends.dask.worker.binding import MaterializedPartition
from spliter_backends.dask.worker.calls import PickledPartition, Placeholder


@dataclass(frozen=True)
class Call:
    """A function and its arguments, pickled.

    arguments: Positional and keyword arguments, with a `Placeholder` for each input.
    partitions: Pickled partitions, in one list: Dask takes time for each part of a task's message.
    """

    function: bytes
    arguments: bytes
    partitions: bytes
    inputs: tuple[Any, ...]


def pickle_call(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    """Pickle a call of a task function. Futures, also nested ones, arrive as their results."""
    partitions: list[bytes] = []
    inputs: list[Any] = []

    def replace_inputs(value: Any) -> Any:
        if isinstance(value, MaterializedPartition):
            return MaterializedPartition(
                replace_inputs(value.partition), replace_inputs(value.block)
            )
        if isinstance(value, PickledPartition):
            partitions.append(value.data)
            return Placeholder(len(partitions) - 1, is_partition=True)
        value = parse_input(value)
        if not isinstance(value, GraphNode):
            return value
        if not _is_reference(value):
            dumps(value)  # raise here, not when the batch is sent
        inputs.append(value)
        return Placeholder(len(inputs) - 1, is_partition=False)

    try:
        placed_args = tuple(map(replace_inputs, args))
        placed_kwargs = {name: replace_inputs(value) for name, value in kwargs.items()}
        arguments: bytes = dumps((placed_args, placed_kwargs))
        return Call(pickle_function(fn), arguments, dumps(partitions), tuple(inputs))
    except Exception as cause:
        # cloudpickle's own: Dask's logs a traceback for each unpicklable value.
        raise not_serializable(fn, args, kwargs, cause, cloudpickle.dumps) from cause


def _is_reference(value: GraphNode) -> bool:
    """Return whether a parsed argument is a future or a list of futures."""
    return isinstance(value, Alias) or (
        isinstance(value, List) and all(isinstance(one, Alias) for one in value.args)
    )


MAX_COMPARED_NBYTES: Final = 64 * 2**10
"""Maximum bytes of a captured value to compare; comparing larger ones costs as much as pickling."""

_pickled: weakref.WeakKeyDictionary[FunctionType, tuple[object, bytes]] = (
    weakref.WeakKeyDictionary()
)


class _CannotCompareError(Exception):
    """A change of a captured value would not be noticed."""


def pickle_function(fn: Any) -> bytes:
    """Pickle a callable; the pickle of a plain function is cached.

    Examples
    --------
    >>> from distributed.protocol.pickle import loads
    >>> factor = 2
    >>> twice = lambda number: factor * number
    >>> loads(pickle_function(twice))(3)
    6
    >>> factor = 5
    >>> loads(pickle_function(twice))(3)
    15
    """
    if not isinstance(fn, FunctionType) or cloudpickle.list_registry_pickle_by_value():
        return _dumps(fn)
    try:
        state = _state_of(fn, set())
    except _CannotCompareError:
        return _dumps(fn)
    known = _pickled.get(fn)
    if known is None or known[0] != state:
        known = _pickled[fn] = (state, _dumps(fn))
    return known[1]


def _dumps(fn: Any) -> bytes:
    pickled: bytes = dumps(fn)
    return pickled


def _state_of(value: Any, seen: set[int]) -> object:
    """Return a value that differs if pickling gives another result.

    It does not refer to the function, so that the cache does not keep it alive.
    """
    if isinstance(value, ModuleType):
        return value.__name__
    if not isinstance(value, FunctionType) and sizeof(value) > MAX_COMPARED_NBYTES:
        raise _CannotCompareError
    try:
        pickled = pickle.dumps(value)
    except Exception:  # noqa: BLE001 - any class may raise anything
        pickled = b"__main__"
    if b"__main__" not in pickled:  # else it may contain a name only, of a changed object
        return pickled
    if not isinstance(value, FunctionType):
        raise _CannotCompareError
    if id(value) in seen:  # a function that refers to itself
        return None
    seen.add(id(value))
    return value.__code__, tuple(_state_of(one, seen) for one in _captured(value))


def _captured(fn: FunctionType) -> list[Any]:
    """Return the values pickled with a function."""
    names = global_names(fn.__code__)
    values = [fn.__globals__[name] for name in names if name in fn.__globals__]
    values += [fn.__defaults__, fn.__kwdefaults__, *fn.__dict__.values()]
    for cell in fn.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:  # not assigned yet
            values.append(None)
    return values
