"""Body of every task on a partition: unpickle the call and run it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from distributed import get_worker
from distributed.protocol.pickle import dumps, loads
from tblib import pickling_support

from spliter_backends._shared.error_codec import as_picklable
from spliter_backends.dask.worker.binding import MaterializedPartition, run_at_location
from spliter_backends.dask.worker.results import check_picklable


@dataclass(frozen=True)
class Placeholder:
    """Placeholder for an argument that is sent separately from the pickled call.

    number: Index of the task's partition or input.
    """

    number: int
    is_partition: bool


@dataclass(frozen=True, eq=False)
class PickledPartition:
    """A pickled partition, sent with each task on it; pickled once for all of them."""

    data: bytes


def run_call(function: bytes, arguments: bytes, partitions: bytes, *inputs: Any) -> Any:
    """Run a call, pickled by ``dask.client.calls``, at a worker.

    Raises `TaskFailedError` if the function calls ``sys.exit``, which would end the worker, or
    raises another ``BaseException``, or an error that cannot be pickled. ``KeyboardInterrupt`` ends
    the worker, as usual in Dask.
    """
    failure: BaseException | None = None
    try:
        fn = loads(function)
        result = _call(fn, arguments, loads(partitions), inputs)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if isinstance(error, ModuleNotFoundError):
            error.add_note(_missing_module(error))
        failure = as_picklable(error, _dumps_error, loads)
        if failure is error:
            raise
    if failure is not None:  # raised here, without the error as its context, which Dask pickles
        raise failure
    check_picklable(fn, result)
    return result


def _missing_module(error: ModuleNotFoundError) -> str:
    """Return how a module gets to the workers."""
    name = (error.name or "module").partition(".")[0]
    return (
        f"{name} cannot be imported at worker {get_worker().address}: if it is a file of yours, "
        f"client.upload_file('{name}.py') sends it to the workers; packages are installed there"
    )


def _dumps_error(error: BaseException) -> Any:
    """Pickle an error as Dask does, which also can pickle those with other arguments."""
    pickling_support.install(error)
    return dumps(error)


def _call(
    fn: Callable[..., Any], arguments: bytes, partitions: Sequence[bytes], inputs: Sequence[Any]
) -> Any:
    args, kwargs = loads(arguments)

    def fill(value: Any) -> Any:
        if isinstance(value, MaterializedPartition):
            return MaterializedPartition(fill(value.partition), fill(value.block))
        if not isinstance(value, Placeholder):
            return value
        return loads(partitions[value.number]) if value.is_partition else inputs[value.number]

    filled_args = [fill(value) for value in args]
    filled_kwargs = {name: fill(value) for name, value in kwargs.items()}
    return run_at_location(fn, filled_args, filled_kwargs)
