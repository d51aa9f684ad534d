"""Pickle calls of task functions; workers unpickle and run them.

The client pickles function and arguments when a task is submitted: unpicklable arguments raise an
error at that line, and later changes of an argument do not affect the task. The scheduler forwards
the bytes, and needs none of the program's modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle
from dask._task_spec import Alias, GraphNode, List, parse_input
from distributed.protocol.pickle import dumps

from spliter_backends._shared.unpicklable import not_serializable
from spliter_backends.dask.client.functions import pickle_function
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
