"""What runs inside a PyCOMPSs task: open the call, run it, and return whatever comes of it."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spliter import Partition
from spliter.backend import count_rows, has_rows
from spliter_backends._shared.opened import block_nbytes
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
    """A call as it is made.

    Parameters
    ----------
    fn : callable
        The user's function.
    args, kwargs
        Its arguments, futures replaced by results and partitions iterable.
    away : frozenset of (str, int, str)
        Its partitions that were planned elsewhere.
    """

    fn: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    away: frozenset[tuple[str, int, str]] = frozenset()


@dataclass(frozen=True)
class BlockFacts:
    """What a task says about a block that it was given, or has made.

    Parameters
    ----------
    host : str
        Where it ran.
    nbytes : int
        Bytes of the block.
    rows : int
        Its rows, ``-1`` where it has none.
    """

    host: str
    nbytes: int
    rows: int

    @classmethod
    def of(cls, blocks: Sequence[Any]) -> BlockFacts:
        """Describe a block, given as the pieces that are side by side in it."""
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
    """Take a call apart that has arrived.

    Parameters
    ----------
    content : bytes
        Of the payload.
    inputs : sequence
        What COMPSs has given to the task.

    Returns
    -------
    Call
        Ready to be made.

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
    """What a call has come to, if it returned.

    Parameters
    ----------
    value : object
        What it returned.
    away : frozenset of (str, int, str)
        Of its partitions.
    """

    value: Any
    away: frozenset[tuple[str, int, str]] = frozenset()


def attempted(key: str, function: Callable[[], Attempt]) -> Attempt | TaskFailure:
    """Call a function that may raise anything.

    Parameters
    ----------
    key : str
        Of the future.
    function : callable
        Without arguments.

    Returns
    -------
    Attempt or TaskFailure
        Never raises at a worker: that would end the application.
    """
    try:
        return function()
    except FailedInputError as failed:
        return TaskFailure(failed.failure.error, key, news_of_here())
    except KeyboardInterrupt:
        if at_a_worker():
            return TaskFailure(ERRORS.encode(KeyboardInterrupt()), key, news_of_here())
        raise
    except BaseException as error:  # noqa: BLE001 -- it belongs to whoever asks for the result
        return TaskFailure(ERRORS.encode(error), key, news_of_here())


def called(key: str, content: bytes | Call, inputs: Sequence[Any]) -> Attempt | TaskFailure:
    """Make a call that has arrived.

    Parameters
    ----------
    key : str
        Of its future.
    content : bytes or Call
        Of the payload; the call itself where there is no runtime.
    inputs : sequence
        What COMPSs has given to the task.

    Returns
    -------
    Attempt or TaskFailure
        What has come of it.
    """

    def function() -> Attempt:
        call = content if isinstance(content, Call) else opened(content, inputs)
        return Attempt(call.fn(*call.args, **call.kwargs), call.away)

    return attempted(key, function)


def sent_back(key: str, attempt: Attempt | TaskFailure) -> TaskResult | TaskFailure:
    """Return the outcome of a call as a task returns it.

    Parameters
    ----------
    key : str
        Of the future.
    attempt : Attempt or TaskFailure
        What has come of it.

    Returns
    -------
    TaskResult or TaskFailure
        To be pickled.
    """
    if isinstance(attempt, TaskFailure):
        return attempt
    return result_of(attempt.value, key, news_of_here(attempt.away))
