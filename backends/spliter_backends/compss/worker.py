"""Body of every PyCOMPSs task: unpickle the call, run it, pack its result or error."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spliter import Partition
from spliter.backend import count_rows, has_rows
from spliter_backends._shared.readable import block_nbytes
from spliter_backends.compss.outcome import (
    ERRORS,
    FailedInputError,
    TaskFailure,
    TaskResult,
    host_name,
    is_worker,
    local_report,
    result_of,
)
from spliter_backends.compss.source import BlockInputs, InputSource


@dataclass(frozen=True)
class Call:
    """An unpickled call.

    args, kwargs: Its arguments, with results instead of futures and iterable partitions.
    away: Its partitions that were planned at another node.
    """

    fn: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    away: frozenset[tuple[str, int, str]] = frozenset()


@dataclass(frozen=True)
class BlockMetadata:
    """Location and size of a block that a task received or made.

    rows: Its rows, ``-1`` if it has none.
    """

    host: str
    nbytes: int
    rows: int

    @classmethod
    def of(cls, blocks: Sequence[Any]) -> BlockMetadata:
        """Describe a block, given as its parts side by side."""
        rows = min((count_rows(block) for block in blocks if has_rows(block)), default=-1)
        return cls(host_name(), sum(map(block_nbytes, blocks)), rows)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, inputs: Sequence[Any], partitions: Sequence[Partition]) -> None:
        super().__init__(file)
        self._inputs = inputs
        self._partitions = partitions

    def persistent_load(self, reference: tuple[str, Any]) -> Any:
        kind, what = reference
        if kind == "partition":
            return self._partitions[what]
        value = self._inputs[what] if kind == "future" else what
        if isinstance(value, TaskFailure):
            raise FailedInputError(value)
        return value


def unpickle_call(content: bytes, inputs: Sequence[Any]) -> Call:
    """Unpickle a call, with the results and blocks among the inputs of its task.

    Raises `FailedInputError` if an input is the failure of another task.
    """
    body, task_inputs = pickle.loads(content)
    here = host_name()
    partitions: list[Partition] = []
    away: set[tuple[str, int, str]] = set()
    block_inputs: BlockInputs
    for partition, block_inputs in task_inputs:
        partitions.append(partition.at_location(InputSource(block_inputs, inputs)))
        if block_inputs.known and block_inputs.location != here:
            away.add((block_inputs.token, block_inputs.number, here))
    fn, args, kwargs = _Unpickler(io.BytesIO(body), inputs, partitions).load()
    return Call(fn, args, kwargs, frozenset(away))


@dataclass(frozen=True)
class CallResult:
    """Return value of a successful call, and its partitions that were planned at another node."""

    value: Any
    away: frozenset[tuple[str, int, str]] = frozenset()


def catch_failure(key: str, function: Callable[[], CallResult]) -> CallResult | TaskFailure:
    """Call a function without arguments and convert its errors to a failure.

    At a worker no error leaves this function, because it would end the application.
    """
    try:
        return function()
    except FailedInputError as failed:
        return TaskFailure(failed.failure.error, key, local_report())
    except KeyboardInterrupt:
        if is_worker():
            return TaskFailure(ERRORS.encode(KeyboardInterrupt()), key, local_report())
        raise
    except BaseException as error:  # noqa: BLE001 -- raised when the result is requested
        return TaskFailure(ERRORS.encode(error), key, local_report())


def run_call(key: str, content: bytes | Call, inputs: Sequence[Any]) -> CallResult | TaskFailure:
    """Run a pickled call; without a runtime, the call itself."""

    def function() -> CallResult:
        call = content if isinstance(content, Call) else unpickle_call(content, inputs)
        return CallResult(call.fn(*call.args, **call.kwargs), call.away)

    return catch_failure(key, function)


def pack_outcome(key: str, attempt: CallResult | TaskFailure) -> TaskResult | TaskFailure:
    """Convert the outcome of a call to the return value of the PyCOMPSs task."""
    if isinstance(attempt, TaskFailure):
        return attempt
    return result_of(attempt.value, key, local_report(attempt.away))
