"""Outcome of a task: its value or error, and a report of where it ran.

PyCOMPSs pickles the return value of a task into a file and unpickles it in the main program, when
it waits for it, or in the next task. Unpickling an outcome has side effects::

    worker: run() ──> TaskResult(value, news) ──pickled──> main program: the value itself;
                                                           news recorded, future settled
                                                    └────> next task: the value itself;
                                                           news forwarded with its own outcome
    worker: run() ──> TaskFailure(error) ──────pickled──> main program: the error is raised
                                                    └────> next task: TaskFailure, forwarded

So ``compss_wait_on`` returns the user function's value, and no task of ours fails in COMPSs, which
would end the application.
"""

from __future__ import annotations

import functools
import os
import pickle
import sys
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import cloudpickle
import numpy as np

from spliter_backends._shared.error_codec import ErrorCodec, result_not_pickled
from spliter_backends._shared.machine import available_memory, usable_cores

ERRORS: Final = ErrorCodec(
    functools.partial(cloudpickle.dumps, protocol=5),
    pickle.loads,
    "spliter_backends.compss.worker",
)
"""Encodes errors as return values: a task that raises would end the COMPSs application."""

MOST_NEWS: Final = 1000
"""Maximum number of unsent reports a worker buffers for its next task with a result."""

PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), np.generic)


@dataclass(frozen=True)
class HostFacts:
    """Last reported state of a node.

    Parameters
    ----------
    cores : int
        Cores that its tasks may use.
    free : int or None
        Available memory in bytes.
    """

    cores: int
    free: int | None


@dataclass(frozen=True)
class News:
    """Report of one or several tasks.

    Parameters
    ----------
    hosts : dict of str to HostFacts
        Nodes where they ran.
    away : frozenset of (str, int, str)
        Split, number of the partition, and node, for tasks that ran elsewhere than planned.
    """

    hosts: dict[str, HostFacts] = field(default_factory=dict)
    away: frozenset[tuple[str, int, str]] = frozenset()

    def and_also(self, other: News) -> News:
        """Return both reports merged; `other` takes precedence."""
        return News({**self.hosts, **other.hosts}, self.away | other.away)


class Awaiting(Protocol):
    """A future that can be settled."""

    def settle(self, value: Any, error: BaseException | None) -> None:
        """Set the result or the error."""
        ...


class TellsOfMoves(Protocol):
    """Blocks of a Split, which count fetched blocks."""

    def ran_away(self, partition: int, host: str) -> None:
        """Count a partition's blocks as fetched by another node."""
        ...


hosts: dict[str, HostFacts] = {}
"""In the main program: last report of each node."""

futures: weakref.WeakValueDictionary[str, Awaiting] = weakref.WeakValueDictionary()
"""In the main program: pending futures by key."""

splits: weakref.WeakValueDictionary[str, TellsOfMoves] = weakref.WeakValueDictionary()
"""In the main program: Splits by token."""

_last_error: list[BaseException] = []
"""In the main program: the last error that arrived, to recognise it in PyCOMPSs' wrapper."""

_unsent_reports: deque[News] = deque(maxlen=MOST_NEWS)


def host_name() -> str:
    """Return COMPSs' name of the node that a task runs on; ``"this process"`` without a runtime."""
    return os.environ.get("COMPSS_HOSTNAMES", "").split(",")[0] or "this process"


def news_of_here(away: frozenset[tuple[str, int, str]] = frozenset()) -> News:
    """Return the report of a task, merged with the reports that its arguments brought.

    Parameters
    ----------
    away : frozenset of (str, int, str)
        Its partitions that were planned at another node.
    """
    found = News({host_name(): HostFacts(usable_cores(), available_memory())}, away)
    while _unsent_reports:
        found = _unsent_reports.popleft().and_also(found)
    return found


def at_a_worker() -> bool:
    """Return whether this process runs tasks for a COMPSs runtime."""
    context: Any = sys.modules.get("pycompss.util.context")
    return context is not None and bool(context.CONTEXT.in_worker())


def record(news: News) -> None:
    """Record a report in the main program."""
    hosts.update(news.hosts)
    for token, partition, host in news.away:
        split = splits.get(token)
        if split is not None:
            split.ran_away(partition, host)


@dataclass(frozen=True)
class TaskResult:
    """Result of a task.

    Parameters
    ----------
    value : object
        The value, or its pickle.
    pickled : bool
        Whether `value` is pickled.
    key : str
        Key of the future.
    news : News
        Report of the task.
    """

    value: Any
    pickled: bool
    key: str
    news: News

    def __reduce__(self) -> tuple[Any, ...]:
        """Unpickle by :func:`arrive`."""
        return arrive, (self.value, self.pickled, self.key, self.news)


@dataclass(frozen=True)
class TaskFailure:
    """Error of a task.

    Parameters
    ----------
    error : bytes
        The error, pickled.
    key : str
        Key of the future.
    news : News
        Report of the task.
    """

    error: bytes
    key: str
    news: News

    def __reduce__(self) -> tuple[Any, ...]:
        """Unpickle by :func:`arrive_failed`."""
        return arrive_failed, (self.error, self.key, self.news)


class FailedInputError(Exception):
    """An input of a task is the failure of another task."""

    def __init__(self, failure: TaskFailure) -> None:
        super().__init__(failure)
        self.failure = failure


def result_of(value: Any, key: str, news: News) -> TaskResult | TaskFailure:
    """Return a value in the form that a task returns.

    Parameters
    ----------
    value : object
        Return value of the user's function.
    key : str
        Key of the future.
    news : News
        Report of the task.

    Returns
    -------
    TaskResult or TaskFailure
        A failure if the value cannot be pickled: COMPSs would end the application.
    """
    if not at_a_worker():
        return TaskResult(value, False, key, news)  # it stays in this process
    if isinstance(value, PLAIN) or (type(value) is np.ndarray and not value.dtype.hasobject):
        return TaskResult(value, False, key, news)
    try:
        return TaskResult(cloudpickle.dumps(value, protocol=5), True, key, news)
    except Exception as cause:  # noqa: BLE001 -- a __reduce__ may raise anything
        error = result_not_pickled(value, cause)
        error.__cause__ = cause
        return TaskFailure(ERRORS.encode(error), key, news)


def arrive(value: Any, pickled: bool, key: str, news: News) -> Any:
    """Unpickle a :class:`TaskResult` to its value; record its report and settle its future."""
    found = pickle.loads(value) if pickled else value
    if at_a_worker():
        _unsent_reports.append(news)
        return found
    record(news)
    future = futures.pop(key, None)
    if future is not None:
        future.settle(found, None)
    return found


def arrive_failed(message: bytes, key: str, news: News) -> TaskFailure:
    """Unpickle a :class:`TaskFailure`: raise the error in the main program.

    Returns
    -------
    TaskFailure
        At a worker, to be forwarded.

    Raises
    ------
    BaseException
        The error of the task.
    """
    if at_a_worker():
        return TaskFailure(message, key, news)
    record(news)
    error = ERRORS.decode(message)
    future = futures.pop(key, None)
    if future is not None:
        future.settle(None, error)
    _last_error[:] = [error]
    raise error


def task_error_in(raised: BaseException) -> BaseException | None:
    """Return the task's error that PyCOMPSs has wrapped, or None if it is another error."""
    found: BaseException | None = raised
    while found is not None and found not in _last_error:
        found = found.__cause__
    _last_error.clear()
    return found
