"""What a task returns: a value or an error, and news of where it ran.

PyCOMPSs pickles what a task returns into a file and unpickles it where it is wanted: in the main
program, when somebody waits for it, or in the next task. Unpickling an outcome *is* its arrival::

    worker: run() ──> TaskResult(value, news) ──pickled──> main program: the value itself,
                                                           news recorded, the future told
                                                    └────> next task: the value itself,
                                                           news passed on with what it returns
    worker: run() ──> TaskFailure(error) ──────pickled──> main program: the error is raised
                                                    └────> next task: TaskFailure, passed on

So ``compss_wait_on`` gives what the user's function returned, and no task of ours ever fails in
the eyes of COMPSs, which would end the application.
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

from spliter_backends._shared.machine import available_memory, usable_cores
from spliter_backends._shared.sent_errors import SentErrors, result_not_pickled

ERRORS: Final = SentErrors(
    functools.partial(cloudpickle.dumps, protocol=5),
    pickle.loads,
    "spliter_backends.compss.worker",
)
"""How an error is returned: a task that raises ends a COMPSs application, so ours never do."""

MOST_NEWS: Final = 1000
"""News kept at a worker for the next task that returns something to take along."""

PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), np.generic)


@dataclass(frozen=True)
class HostFacts:
    """What a node said about itself last.

    Parameters
    ----------
    cores : int
        Cores that its tasks may use.
    free : int or None
        Bytes of memory available.
    """

    cores: int
    free: int | None


@dataclass(frozen=True)
class News:
    """Where tasks ran.

    Parameters
    ----------
    hosts : dict of str to HostFacts
        Nodes.
    away : frozenset of (str, int, str)
        Split, number of the partition, and node, for tasks that ran elsewhere than planned.
    """

    hosts: dict[str, HostFacts] = field(default_factory=dict)
    away: frozenset[tuple[str, int, str]] = frozenset()

    def and_also(self, other: News) -> News:
        """Return both."""
        return News({**self.hosts, **other.hosts}, self.away | other.away)


class Awaiting(Protocol):
    """A future that wants to know its outcome."""

    def settle(self, value: Any, error: BaseException | None) -> None:
        """Take the outcome."""
        ...


class TellsOfMoves(Protocol):
    """A Split's blocks, who count those that were read elsewhere."""

    def ran_away(self, partition: int, host: str) -> None:
        """Take note that a task of a partition ran at another node."""
        ...


hosts: dict[str, HostFacts] = {}
"""In the main program: nodes that have been heard of."""

futures: weakref.WeakValueDictionary[str, Awaiting] = weakref.WeakValueDictionary()
"""In the main program: futures whose outcome has not arrived, by key."""

splits: weakref.WeakValueDictionary[str, TellsOfMoves] = weakref.WeakValueDictionary()
"""In the main program: Splits by token."""

_arrived: list[BaseException] = []
"""In the main program: the error that arrived last, until it has been told from the binding's."""

_to_pass_on: deque[News] = deque(maxlen=MOST_NEWS)


def host_name() -> str:
    """Return the name of the node that a task runs on, as COMPSs knows it.

    Returns
    -------
    str
        ``"this process"`` where no runtime has said.
    """
    return os.environ.get("COMPSS_HOSTNAMES", "").split(",")[0] or "this process"


def news_of_here(away: frozenset[tuple[str, int, str]] = frozenset()) -> News:
    """Return the news of a task, with those that its arguments brought.

    Parameters
    ----------
    away : frozenset of (str, int, str)
        Its partitions that were planned elsewhere.

    Returns
    -------
    News
        To go with its result.
    """
    found = News({host_name(): HostFacts(usable_cores(), available_memory())}, away)
    while _to_pass_on:
        found = _to_pass_on.popleft().and_also(found)
    return found


def at_a_worker() -> bool:
    """Whether this process runs tasks for a runtime.

    Returns
    -------
    bool
        ``False`` in the main program, and where there is no runtime.
    """
    context: Any = sys.modules.get("pycompss.util.context")
    return context is not None and bool(context.CONTEXT.in_worker())


def record(news: News) -> None:
    """Take note of news, in the main program.

    Parameters
    ----------
    news : News
        Of one or many tasks.
    """
    hosts.update(news.hosts)
    for token, partition, host in news.away:
        split = splits.get(token)
        if split is not None:
            split.ran_away(partition, host)


@dataclass(frozen=True)
class TaskResult:
    """What a task returned.

    Parameters
    ----------
    value : object
        The value, or its pickle.
    pickled : bool
        Which of them.
    key : str
        Of the future.
    news : News
        Where it ran.
    """

    value: Any
    pickled: bool
    key: str
    news: News

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as its arrival."""
        return arrive, (self.value, self.pickled, self.key, self.news)


@dataclass(frozen=True)
class TaskFailure:
    """What a task raised.

    Parameters
    ----------
    error : bytes
        The error, pickled.
    key : str
        Of the future.
    news : News
        Where it ran.
    """

    error: bytes
    key: str
    news: News

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as its arrival."""
        return arrive_failed, (self.error, self.key, self.news)


class FailedInputError(Exception):
    """An argument of a task is the failure of another."""

    def __init__(self, failure: TaskFailure) -> None:
        super().__init__(failure)
        self.failure = failure


def result_of(value: Any, key: str, news: News) -> TaskResult | TaskFailure:
    """Return a value in the form in which it leaves a worker.

    Parameters
    ----------
    value : object
        What the user's function returned.
    key : str
        Of the future.
    news : News
        Where it ran.

    Returns
    -------
    TaskResult or TaskFailure
        The latter if it cannot be pickled, which is found out here: COMPSs would end the
        application.
    """
    if not at_a_worker():
        return TaskResult(value, False, key, news)  # it does not leave
    if isinstance(value, PLAIN) or (type(value) is np.ndarray and not value.dtype.hasobject):
        return TaskResult(value, False, key, news)
    try:
        return TaskResult(cloudpickle.dumps(value, protocol=5), True, key, news)
    except Exception as cause:  # noqa: BLE001 -- a __reduce__ may raise anything
        error = result_not_pickled(value, cause)
        error.__cause__ = cause
        return TaskFailure(ERRORS.encode(error), key, news)


def arrive(value: Any, pickled: bool, key: str, news: News) -> Any:
    """Unpickle a result: this is its arrival.

    Parameters
    ----------
    value, pickled, key, news
        Of the :class:`TaskResult`.

    Returns
    -------
    object
        What the user's function returned.
    """
    found = pickle.loads(value) if pickled else value
    if at_a_worker():
        _to_pass_on.append(news)
        return found
    record(news)
    future = futures.pop(key, None)
    if future is not None:
        future.settle(found, None)
    return found


def arrive_failed(message: bytes, key: str, news: News) -> TaskFailure:
    """Unpickle a failure: in the main program that raises the error.

    Parameters
    ----------
    message, key, news
        Of the :class:`TaskFailure`.

    Returns
    -------
    TaskFailure
        At a worker, to be passed on.

    Raises
    ------
    BaseException
        What the task raised.
    """
    if at_a_worker():
        return TaskFailure(message, key, news)
    record(news)
    error = ERRORS.decode(message)
    future = futures.pop(key, None)
    if future is not None:
        future.settle(None, error)
    _arrived[:] = [error]
    raise error


def task_error_in(raised: BaseException) -> BaseException | None:
    """Return the task's error that the binding has wrapped in one of its own.

    Parameters
    ----------
    raised : BaseException
        What waiting has raised.

    Returns
    -------
    BaseException or None
        ``None`` if it was not a task's.
    """
    found: BaseException | None = raised
    while found is not None and found not in _arrived:
        found = found.__cause__
    _arrived.clear()
    return found
