"""Calls of task functions: pickled by the client, opaque to the scheduler, run by workers.

The client pickles function and arguments when a task is submitted, so that what cannot be pickled
is refused at the line that submits it, and later changes of an argument do not reach the task. The
scheduler passes the bytes on: it needs none of the modules that the program uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle
from dask._task_spec import Alias, GraphNode, List, parse_input
from distributed.protocol.pickle import dumps, loads

from spliter_backends._shared.sent_errors import failure_by
from spliter_backends._shared.unpicklable import not_serializable
from spliter_backends.dask.client.functions import pickle_function
from spliter_backends.dask.worker.results import refuse_unpicklable
from spliter_backends.dask.worker.source import Materialized, run_at_location


@dataclass(frozen=True)
class Input:
    """Placeholder for an argument that does not travel in the pickled call.

    Parameters
    ----------
    number : int
        Position among the inputs of the task.
    """

    number: int


@dataclass(frozen=True, eq=False)
class PickledPartition:
    """A partition that travels with each task on it.

    Parameters
    ----------
    data : bytes
        Its pickle.
    """

    data: bytes


@dataclass(frozen=True)
class Call:
    """A function and its arguments, pickled.

    Parameters
    ----------
    function : bytes
        The function.
    arguments : bytes
        Positional and keyword arguments, with placeholders for the inputs.
    inputs : tuple
        Pickled partitions, and Dask's references to results of other tasks.
    """

    function: bytes
    arguments: bytes
    inputs: tuple[Any, ...]


def pickle_call(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    """Pickle a call of a task function.

    Parameters
    ----------
    fn : callable
        The user's function.
    args, kwargs
        Its arguments. Futures, also in lists and the like, are replaced by their results.

    Returns
    -------
    Call
        To be run by :func:`run_call`.

    Raises
    ------
    TaskNotSerializableError
        If the function or an argument cannot be pickled.
    """
    inputs: list[Any] = []

    def placed(value: Any) -> Any:
        if isinstance(value, Materialized):
            return Materialized(placed(value.partition), placed(value.block))
        if not isinstance(value, PickledPartition):
            value = parse_input(value)
            if not isinstance(value, GraphNode):
                return value
            if not _is_reference(value):
                dumps(value)  # to be refused here, not when the batch is sent
        inputs.append(value)
        return Input(len(inputs) - 1)

    try:
        placed_args = tuple(map(placed, args))
        placed_kwargs = {name: placed(value) for name, value in kwargs.items()}
        arguments: bytes = dumps((placed_args, placed_kwargs))
        return Call(pickle_function(fn), arguments, tuple(inputs))
    except Exception as cause:
        # Not Dask's own, which logs a traceback for each value that it cannot pickle.
        raise not_serializable(fn, args, kwargs, cause, cloudpickle.dumps) from cause


def _is_reference(value: GraphNode) -> bool:
    """Whether a parsed argument is a future, or a list of nothing but futures."""
    return isinstance(value, Alias) or (
        isinstance(value, List) and all(isinstance(one, Alias) for one in value.args)
    )


def run_call(function: bytes, arguments: bytes, *inputs: Any) -> Any:
    """Run a pickled call at a worker.

    Parameters
    ----------
    function, arguments : bytes
        As in :class:`Call`.
    *inputs
        Pickled partitions, and the results of other tasks.

    Returns
    -------
    object
        Whatever the function returns.

    Raises
    ------
    TaskFailedError
        If the function calls ``sys.exit``, which would end the worker, or raises something else
        that is not an ``Exception``. ``KeyboardInterrupt`` ends the worker, as in all of Dask.
    TaskNotSerializableError
        If the result cannot be sent anywhere.
    """
    try:
        fn = loads(function)
        result = _call(fn, arguments, inputs)
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 - it would end the worker
        raise failure_by(error) from None
    refuse_unpicklable(fn, result)
    return result


def _call(fn: Callable[..., Any], arguments: bytes, inputs: Sequence[Any]) -> Any:
    args, kwargs = loads(arguments)

    def filled(value: Any) -> Any:
        if isinstance(value, Materialized):
            return Materialized(filled(value.partition), filled(value.block))
        if not isinstance(value, Input):
            return value
        value = inputs[value.number]
        return loads(value.data) if isinstance(value, PickledPartition) else value

    filled_args = [filled(value) for value in args]
    filled_kwargs = {name: filled(value) for name, value in kwargs.items()}
    return run_at_location(fn, filled_args, filled_kwargs)
