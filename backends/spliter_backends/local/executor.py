"""Run tasks on threads of this process: the executor of the local backend.

A task whose arguments are futures occupies no thread while it waits: it is queued when the last
future is done. So tasks that depend on each other, or on futures of other pools, cannot deadlock
with any number of threads.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

from spliter import Location
from spliter.backend import Executor, call_with_results, check_count, futures_in
from spliter_backends._shared.error_codec import as_task_failure
from spliter_backends._shared.machine import available_memory, usable_cores
from spliter_backends._shared.process_blocks import at_location
from spliter_backends._shared.waiting import when_done

LOCATION = Location("local")
"""The only location: this process."""

_in_task: ContextVar[bool] = ContextVar("in_task", default=False)
"""Whether this code runs in a task; also in threads that the task has started in its context."""


class LocalFuture(Future[Any]):
    """A future of a task on a thread of this process."""

    def __init__(self, executor: LocalExecutor) -> None:
        super().__init__()
        self.executor = executor
        self.location = LOCATION


class LocalExecutor(Executor):
    """Runs tasks on a pool of threads, which are started when needed.

    A task submitted by a task runs immediately in the submitting thread: a pool whose threads all
    wait for tasks they have submitted would deadlock. (If some of its arguments are pending
    futures, it is queued like any other, and the submitting task must not wait for it.)

    Parameters
    ----------
    threads : int, optional
        Number of threads; by default the number of cores this process may use.

    Raises
    ------
    InvalidArgumentError
        If `threads` is less than 1.

    Examples
    --------
    >>> import operator
    >>> executor = LocalExecutor(threads=2)
    >>> six = executor.submit(operator.mul, (2, 3), {})
    >>> executor.submit(operator.add, (six, 1), {}).result()
    7
    """

    usable_in_forks = True

    def __init__(self, threads: int | None = None) -> None:
        if threads is not None:
            check_count("threads", threads, instead="None or ")
        self.threads = threads or usable_cores()
        # Per process: a fork copies this object but not the threads.
        self._pools: dict[int, ThreadPoolExecutor] = {}

    def _pool(self) -> ThreadPoolExecutor:
        process = os.getpid()
        if process not in self._pools:
            # setdefault is atomic, so two concurrent threads get the same pool.
            self._pools.setdefault(process, ThreadPoolExecutor(self.threads, "spliter"))
        return self._pools[process]

    def capacities(self, locations: Collection[Location]) -> Mapping[Location, int]:
        """Return the number of threads for every location (there is only one)."""
        return dict.fromkeys(locations, self.threads)

    def submit(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        location: Location | None = None,
    ) -> LocalFuture:
        """Run ``fn(*args, **kwargs)`` on a thread; `location` is ignored.

        Arguments and results are the caller's own objects, not copies. Futures also arrive as their
        results inside a list, tuple or dict among the arguments.
        """
        future = LocalFuture(self)
        arguments = [at_location(argument) for argument in args]
        named = {name: at_location(argument) for name, argument in kwargs.items()}
        call = functools.partial(_run, future, fn, arguments, named)
        waiting = [
            found
            for argument in (*arguments, *named.values())
            for found in futures_in(argument, Future)
            if not found.done()
        ]
        if not waiting and _in_task.get():
            call()
        else:
            when_done(waiting, lambda: self._queue(future, call))
        return future

    def _queue(self, future: LocalFuture, call: Callable[[], None]) -> None:
        try:
            self._pool().submit(call)
        except RuntimeError as error:
            # The interpreter is shutting down; waiting threads need an answer.
            future.set_exception(error)

    def free_memory(self, locations: Collection[Location]) -> Mapping[Location, int | None]:
        """Return the available memory in bytes; None on systems without ``/proc/meminfo``."""
        return dict.fromkeys(locations, available_memory())


@functools.cache
def default_executor() -> LocalExecutor:
    """Return the executor shared by all Splits of this process, with a thread per usable core."""
    return LocalExecutor()


def executor_of_future(future: Any) -> Executor | None:
    """Return the executor for a future of this process.

    The one that created it; the shared one for a future of another pool of threads or processes;
    ``None`` for anything but a ``concurrent.futures.Future``.
    """
    if isinstance(future, LocalFuture):
        return future.executor
    return default_executor() if isinstance(future, Future) else None


def _run(
    future: LocalFuture, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Run a task and store its result or error in the future."""
    if not future.set_running_or_notify_cancel():
        return
    outer = _in_task.set(True)
    try:
        result = call_with_results(Future, fn, args, kwargs)
    except BaseException as error:  # noqa: BLE001 -- stored in the future
        _in_task.reset(outer)
        # sys.exit in a task must not end the program that requests the result.
        future.set_exception(error if isinstance(error, Exception) else as_task_failure(error))
    else:
        # Reset first: tasks that wait for this result must be queued, not run inside it.
        _in_task.reset(outer)
        future.set_result(result)
