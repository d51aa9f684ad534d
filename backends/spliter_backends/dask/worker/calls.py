"""Run a call that the client has pickled: the body of every task on a partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from distributed.protocol.pickle import loads

from spliter_backends._shared.error_codec import as_task_failure
from spliter_backends.dask.worker.results import check_picklable
from spliter_backends.dask.worker.source import Materialized, run_at_location


@dataclass(frozen=True)
class Placeholder:
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


def run_call(function: bytes, arguments: bytes, *inputs: Any) -> Any:
    """Run a pickled call at a worker.

    Parameters
    ----------
    function, arguments : bytes
        As pickled by the client; see ``dask.client.calls``.
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
        raise as_task_failure(error) from None
    check_picklable(fn, result)
    return result


def _call(fn: Callable[..., Any], arguments: bytes, inputs: Sequence[Any]) -> Any:
    args, kwargs = loads(arguments)

    def fill(value: Any) -> Any:
        if isinstance(value, Materialized):
            return Materialized(fill(value.partition), fill(value.block))
        if not isinstance(value, Placeholder):
            return value
        value = inputs[value.number]
        return loads(value.data) if isinstance(value, PickledPartition) else value

    filled_args = [fill(value) for value in args]
    filled_kwargs = {name: fill(value) for name, value in kwargs.items()}
    return run_at_location(fn, filled_args, filled_kwargs)
