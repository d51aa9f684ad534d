"""Body of every task on a partition: unpickle the call and run it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from distributed.protocol.pickle import loads

from spliter_backends._shared.error_codec import as_task_failure
from spliter_backends.dask.worker.binding import MaterializedPartition, run_at_location
from spliter_backends.dask.worker.results import check_picklable


@dataclass(frozen=True)
class Placeholder:
    """Placeholder for an argument that is sent separately from the pickled call.

    Parameters
    ----------
    number : int
        Index of the task's input.
    """

    number: int


@dataclass(frozen=True, eq=False)
class PickledPartition:
    """A pickled partition, sent with each task on it.

    Parameters
    ----------
    data : bytes
        The pickle.
    """

    data: bytes


def run_call(function: bytes, arguments: bytes, *inputs: Any) -> Any:
    """Run a pickled call at a worker.

    Parameters
    ----------
    function, arguments : bytes
        Pickled by the client; see ``dask.client.calls``.
    *inputs
        Pickled partitions, and results of other tasks.

    Returns
    -------
    object
        Result of the function.

    Raises
    ------
    TaskFailedError
        If the function calls ``sys.exit``, which would end the worker, or raises another
        ``BaseException``. ``KeyboardInterrupt`` ends the worker, as usual in Dask.
    TaskNotSerializableError
        If the result cannot be pickled.
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
        if isinstance(value, MaterializedPartition):
            return MaterializedPartition(fill(value.partition), fill(value.block))
        if not isinstance(value, Placeholder):
            return value
        value = inputs[value.number]
        return loads(value.data) if isinstance(value, PickledPartition) else value

    filled_args = [fill(value) for value in args]
    filled_kwargs = {name: fill(value) for name, value in kwargs.items()}
    return run_at_location(fn, filled_args, filled_kwargs)
