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
    at_a_worker,
    host_name,
    news_of_here,
    result_of,
)
from spliter_backends.compss.source import GivenSource, Layout


@dataclass(frozen=True)
class Call:
    """An unpickled call.

    Parameters
    ----------
    fn : callable
        The user's function.
    args, kwargs
        Its arguments, with results instead of futures and iterable partitions.
    away : frozenset of (str, int, str)
        Its partitions that were planned at another node.
    """

    fn: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    away: frozenset[tuple[str, int, str]] = frozenset()


@dataclass(frozen=True)
class BlockFacts:
    """Location and size of a block that a task received or made.

    Parameters
    ----------
    host : str
        Node where the task ran.
    nbytes : int
        Bytes of the block.
    rows : int
        Its rows, ``-1`` if it has none.
    """

    host: str
    nbytes: int
    rows: int

    @classmethod
    def of(cls, blocks: Sequence[Any]) -> BlockFacts:
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


def opened(content: bytes, inputs: Sequence[Any]) -> Call:
    """Unpickle a call.

    Parameters
    ----------
    content : bytes
        `Payload.content`.
    inputs : sequence
        Inputs of the PyCOMPSs task.

    Raises
    ------
    FailedInputError
        If an input is the failure of another task.
    """
    body, shipped = pickle.loads(content)
    here = host_name()
    partitions: list[Partition] = []
    away: set[tuple[str, int, str]] = set()
    layout: Layout
    for partition, layout in shipped:
        partitions.append(partition.at_location(GivenSource(layout, inputs)))
        if layout.known and layout.location != here:
            away.add((layout.token, layout.number, here))
    fn, args, kwargs = _Unpickler(io.BytesIO(body), inputs, partitions).load()
    return Call(fn, args, kwargs, frozenset(away))


@dataclass(frozen=True)
class Attempt:
    """Return value of a successful call.

    Parameters
    ----------
    value : object
        Its return value.
    away : frozenset of (str, int, str)
        Its partitions that were planned at another node.
    """

    value: Any
    away: frozenset[tuple[str, int, str]] = frozenset()


def attempted(key: str, function: Callable[[], Attempt]) -> Attempt | TaskFailure:
    """Call a function without arguments and convert its errors to a failure.

    Parameters
    ----------
    key : str
        Key of the future.
    function : callable
        May raise anything; at a worker no error leaves this function, because it would end the
        application.
    """
    try:
        return function()
    except FailedInputError as failed:
        return TaskFailure(failed.failure.error, key, news_of_here())
    except KeyboardInterrupt:
        if at_a_worker():
            return TaskFailure(ERRORS.encode(KeyboardInterrupt()), key, news_of_here())
        raise
    except BaseException as error:  # noqa: BLE001 -- raised when the result is requested
        return TaskFailure(ERRORS.encode(error), key, news_of_here())


def called(key: str, content: bytes | Call, inputs: Sequence[Any]) -> Attempt | TaskFailure:
    """Run a pickled call.

    Parameters
    ----------
    key : str
        Key of its future.
    content : bytes or Call
        `Payload.content`; the call itself without a runtime.
    inputs : sequence
        Inputs of the PyCOMPSs task.
    """

    def function() -> Attempt:
        call = content if isinstance(content, Call) else opened(content, inputs)
        return Attempt(call.fn(*call.args, **call.kwargs), call.away)

    return attempted(key, function)


def sent_back(key: str, attempt: Attempt | TaskFailure) -> TaskResult | TaskFailure:
    """Convert the outcome of a call to the return value of the PyCOMPSs task."""
    if isinstance(attempt, TaskFailure):
        return attempt
    return result_of(attempt.value, key, news_of_here(attempt.away))
