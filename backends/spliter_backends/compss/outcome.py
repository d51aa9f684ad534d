"""Outcome of a task: its value or error, and a report of where it ran.

PyCOMPSs pickles the return value of a task into a file and unpickles it in the main program, when
it waits for it, or in the next task. Unpickling an outcome has side effects::

    worker: run() ──> TaskResult(value, report) ─pickled──> main program: the value itself;
                                                           report recorded, future settled
                                                    └────> next task: the value itself;
                                                           report forwarded with its own outcome
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
from typing import Any, Final

import cloudpickle
import numpy as np

from spliter.backend import RECORDS, Pass
from spliter_backends._shared.error_codec import ErrorCodec, result_not_pickled
from spliter_backends._shared.machine import available_memory, usable_cores

ERRORS: Final = ErrorCodec(
    functools.partial(cloudpickle.dumps, protocol=5), pickle.loads, "spliter_backends.compss.worker"
)
"""Encodes errors as return values: a task that raises would end the COMPSs application."""

MAX_UNSENT_REPORTS: Final = 1000
"""Maximum number of unsent reports a worker buffers for its next task with a result."""

PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), np.generic)


@dataclass(frozen=True)
class HostResources:
    """Last reported state of a node.

    cores: Cores that its tasks may use.
    free: Available memory in bytes.
    """

    cores: int
    free: int | None


@dataclass(frozen=True)
class TaskReport:
    """Report of one or several tasks.

    away: Split, number of the partition, and node, for tasks that ran elsewhere than planned.
    passes: What they measured.
    """

    hosts: dict[str, HostResources] = field(default_factory=dict)
    away: frozenset[tuple[str, int, str]] = frozenset()
    passes: tuple[Pass, ...] = ()

    def merged(self, other: TaskReport) -> TaskReport:
        """Return both reports merged; `other` takes precedence."""
        return TaskReport(
            {**self.hosts, **other.hosts}, self.away | other.away, self.passes + other.passes
        )


hosts: dict[str, HostResources] = {}
"""In the main program: last report of each node."""

futures: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
"""In the main program: pending futures (``CompssFuture``) by key."""

splits: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
"""In the main program: blocks of Splits (``CompssBlocks``) by token."""

_last_error: list[BaseException] = []
"""In the main program: the last error that arrived, to recognise it in PyCOMPSs' wrapper."""

_unsent_reports: deque[TaskReport] = deque(maxlen=MAX_UNSENT_REPORTS)


def host_name() -> str:
    """Return COMPSs' name of the node that a task runs on; ``"this process"`` without a runtime."""
    return os.environ.get("COMPSS_HOSTNAMES", "").split(",")[0] or "this process"


def local_report(away: frozenset[tuple[str, int, str]] = frozenset()) -> TaskReport:
    """Return the report of a task, merged with the reports that its arguments brought.

    `away` are its partitions that were planned at another node.
    """
    # In the main program itself, what was measured is where it belongs.
    passes = tuple(RECORDS.take_all()) if is_worker() else ()
    here = {host_name(): HostResources(usable_cores(), available_memory())}
    found = TaskReport(here, away, passes)
    while _unsent_reports:
        found = _unsent_reports.popleft().merged(found)
    return found


def is_worker() -> bool:
    """Return whether this process runs tasks for a COMPSs runtime."""
    context: Any = sys.modules.get("pycompss.util.context")
    return context is not None and bool(context.CONTEXT.in_worker())


def record(report: TaskReport) -> None:
    """Record a report in the main program."""
    hosts.update(report.hosts)
    for token, partition, host in report.away:
        split = splits.get(token)
        if split is not None:
            split.record_move(partition, host)
    for one in report.passes:
        RECORDS.add(one)


@dataclass(frozen=True)
class TaskResult:
    """Result of a task.

    value: The value, or its pickle.
    """

    value: Any
    pickled: bool
    key: str
    report: TaskReport

    def __reduce__(self) -> tuple[Any, ...]:
        """Unpickle by :func:`unpickle_result`."""
        return unpickle_result, (self.value, self.pickled, self.key, self.report)


@dataclass(frozen=True)
class TaskFailure:
    """Error of a task."""

    error: bytes
    key: str
    report: TaskReport

    def __reduce__(self) -> tuple[Any, ...]:
        """Unpickle by :func:`unpickle_failure`."""
        return unpickle_failure, (self.error, self.key, self.report)


class FailedInputError(Exception):
    """An input of a task is the failure of another task."""

    def __init__(self, failure: TaskFailure) -> None:
        super().__init__(failure)
        self.failure = failure


def result_of(value: Any, key: str, report: TaskReport) -> TaskResult | TaskFailure:
    """Return a value as a task returns it; a failure if it cannot be pickled."""
    if not is_worker():
        return TaskResult(value, False, key, report)  # it stays in this process
    if isinstance(value, PLAIN) or (type(value) is np.ndarray and not value.dtype.hasobject):
        return TaskResult(value, False, key, report)
    try:
        return TaskResult(cloudpickle.dumps(value, protocol=5), True, key, report)
    except Exception as cause:  # noqa: BLE001 -- a __reduce__ may raise anything
        error = result_not_pickled(value, cause)
        error.__cause__ = cause
        return TaskFailure(ERRORS.encode(error), key, report)


def unpickle_result(value: Any, pickled: bool, key: str, report: TaskReport) -> Any:
    """Unpickle a :class:`TaskResult` to its value; record its report and settle its future."""
    found = pickle.loads(value) if pickled else value
    if is_worker():
        _unsent_reports.append(report)
        return found
    record(report)
    future = futures.pop(key, None)
    if future is not None:
        future.outcome = found, None
    return found


def unpickle_failure(message: bytes, key: str, report: TaskReport) -> TaskFailure:
    """Unpickle a :class:`TaskFailure`: raise the error in the main program.

    A worker gets the failure, to be forwarded.
    """
    if is_worker():
        return TaskFailure(message, key, report)
    record(report)
    error = ERRORS.decode(message)
    future = futures.pop(key, None)
    if future is not None:
        future.outcome = None, error
    _last_error[:] = [error]
    raise error


def unwrap_task_error(raised: BaseException) -> BaseException | None:
    """Return the task's error that PyCOMPSs has wrapped, or None if it is another error."""
    found: BaseException | None = raised
    while found is not None and found not in _last_error:
        found = found.__cause__
    _last_error.clear()
    return found
