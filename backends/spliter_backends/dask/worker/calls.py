"""Body of every task on a partition: unpickle the call, run it, and check its result.

Dask pickles a result when the program or another worker fetches it; an error at that time names
neither the function nor the task. So it is checked in the task that it can be pickled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import cloudpickle
import numpy as np
from distributed import get_worker
from distributed.protocol import serialize
from distributed.protocol.pickle import dumps, loads
from tblib import pickling_support

from spliter import TaskNotSerializableError
from spliter.backend import name_of
from spliter_backends._shared.error_codec import as_picklable
from spliter_backends.dask.worker.binding import MaterializedPartition, run_at_location

MAX_CHECKED_NBYTES: Final = 2**20
"""Bytes after which a result is assumed to be picklable: the check must not take as long as sending
the result."""

MOST_ELEMENTS: Final = 100
"""Maximum number of elements of a tuple or list that are checked one by one."""

PLAIN_TYPES: Final = frozenset({type(None), bool, int, float, complex, str, bytes})


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


class _LimitReachedError(Exception):
    """More than `MAX_CHECKED_NBYTES` have been pickled."""


class _Counter:
    """A file that counts bytes and discards them."""

    def __init__(self) -> None:
        self.nbytes = 0

    def write(self, data: Any) -> int:
        self.nbytes += len(data)
        if self.nbytes > MAX_CHECKED_NBYTES:
            raise _LimitReachedError
        return len(data)


def check_picklable(fn: Callable[..., Any], result: Any) -> None:
    """Raise if a task's result cannot be pickled.

    Examples
    --------
    >>> check_picklable(len, 3)
    >>> check_picklable(iter, (number for number in range(3)))
    Traceback (most recent call last):
        ...
    spliter._errors.TaskNotSerializableError: iter returned a generator, which cannot be ...
    """
    if _is_plain(result):
        return
    # Out-of-band buffers: arrays are not copied.
    pickler = cloudpickle.Pickler(_Counter(), protocol=5, buffer_callback=lambda buffer: None)
    try:
        pickler.dump(result)
    except _LimitReachedError:
        return
    except Exception as cause:  # noqa: BLE001 - any class may raise anything
        if not _is_known_to_dask(result):
            raise TaskNotSerializableError(
                f"{name_of(fn)} returned a {type(result).__name__}, which cannot be pickled: "
                f"{cause}. Return numbers, arrays or other picklable values"
            ) from None


def _is_plain(value: Any) -> bool:
    """Return whether a value is of a common type that can always be pickled."""
    if type(value) in PLAIN_TYPES or isinstance(value, np.generic):
        return True
    if isinstance(value, np.ndarray):
        return not value.dtype.hasobject
    few = type(value) in (tuple, list) and len(value) <= MOST_ELEMENTS
    return few and all(map(_is_plain, value))


def _is_known_to_dask(value: Any) -> bool:
    """Return whether Dask itself can serialize a value."""
    try:
        serialize(value, serializers=["dask"], on_error="raise")
    except Exception:  # noqa: BLE001 - as above
        return False
    return True
