"""Run tasks on threads of this process: the executor half of the local backend.

A task whose arguments are futures does not occupy a thread while it waits: it is queued
when the last of them is done. So tasks that depend on each other, or on futures of other
pools, cannot block one another however few threads there are.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from spliter import BlocksMade, InvalidArgumentError, Location, Partition
from spliter._grid import IntArray
from spliter_backends._local_store import LocalSource
from spliter_backends._sent_errors import failure_by

LOCATION = Location("local")
"""The one location there is: this process."""

_thread = threading.local()


class LocalFuture(Future[Any]):
    """A future of a task on a thread of this process.

    Parameters
    ----------
    executor : LocalExecutor
        What runs the task.
    """

    def __init__(self, executor: LocalExecutor) -> None:
        super().__init__()
        self.executor = executor


class LocalExecutor:
    """Runs tasks on a pool of threads; makes threads only when there are tasks.

    A task that is submitted by a task runs at once, in the submitting thread: a pool
    whose threads all wait for tasks they have submitted would never come to an end.
    (If it has futures among its arguments that are not done, it is queued like any
    other, and the task that submitted it must not wait for it.)

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

    def __init__(self, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise InvalidArgumentError(f"threads must be an int >= 1, got {threads!r}")
        self.threads = threads or usable_cores()
        # By process: a fork copies this object but not the threads.
        self._pools: dict[int, ThreadPoolExecutor] = {}

    def _pool(self) -> ThreadPoolExecutor:
        process = os.getpid()
        if process not in self._pools:
            # setdefault, so that two threads that come here at once get the same one.
            self._pools.setdefault(process, ThreadPoolExecutor(self.threads, "spliter"))
        return self._pools[process]

    def capacities(self, locations: Collection[Location]) -> Mapping[Location, int]:
        """Return the number of threads for every location (there is only one).

        Parameters
        ----------
        locations : collection of Location
            Locations that hold blocks.

        Returns
        -------
        mapping of Location to int
            The number of threads.
        """
        return dict.fromkeys(locations, self.threads)

    def submit(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        location: Location | None = None,
    ) -> LocalFuture:
        """Run ``fn(*args, **kwargs)`` on a thread.

        Arguments and results are the caller's own objects, not copies.

        Parameters
        ----------
        fn : callable
            What to run.
        args : sequence
            Positional arguments. Partitions arrive iterable; futures arrive as their
            results, also those inside a list, tuple or dict among the arguments.
        kwargs : mapping of str to object
            Keyword arguments, likewise.
        location : Location, optional
            Not needed here.

        Returns
        -------
        LocalFuture
            A ``concurrent.futures.Future``.
        """
        future = LocalFuture(self)
        arguments = [_arriving(argument) for argument in args]
        named = {name: _arriving(argument) for name, argument in kwargs.items()}
        call = functools.partial(_run, future, fn, arguments, named)
        waiting = [
            found
            for argument in (*arguments, *named.values())
            for found in _futures_in(argument)
            if not found.done()
        ]
        if not waiting and getattr(_thread, "in_task", False):
            call()
        else:
            _after(waiting, lambda: self._queue(future, call))
        return future

    def _queue(self, future: LocalFuture, call: Callable[[], None]) -> None:
        try:
            self._pool().submit(call)
        except RuntimeError as error:
            # The interpreter is shutting down: whoever waits must get an answer.
            future.set_exception(error)

    def gather(self, futures: Sequence[Any]) -> list[Any]:
        """Wait for futures and return their results.

        Parameters
        ----------
        futures : sequence of concurrent.futures.Future
            Of any pool of this process.

        Returns
        -------
        list
            The results, in order.
        """
        return [future.result() for future in futures]

    def location_of(self, future: Any) -> Location | None:
        """Return this process for futures of this backend.

        Parameters
        ----------
        future : object
            A future.

        Returns
        -------
        Location or None
            ``None`` for futures of another pool.
        """
        return LOCATION if isinstance(future, LocalFuture) else None

    def free_memory(self, locations: Collection[Location]) -> Mapping[Location, int | None]:
        """Return the bytes that the operating system says are available.

        Parameters
        ----------
        locations : collection of Location
            Locations that hold blocks.

        Returns
        -------
        mapping of Location to (int or None)
            ``None`` on systems without ``/proc/meminfo``.
        """
        return dict.fromkeys(locations, available_memory())

    def assemble(self, results: Sequence[tuple[IntArray, Any]], made: BlocksMade) -> list[Any]:
        """Return the blocks that tasks have made as a list; waits for them.

        Parameters
        ----------
        results : sequence of (ndarray of int64, future)
            Positions of blocks, and the future of the new ones.
        made : BlocksMade
            What they are.

        Returns
        -------
        list of block
            In the order of their positions.
        """
        blocks: list[Any] = [None] * len(made.rows)
        for positions, future in results:
            result = future.result()
            new = result if made.output is None else result[made.output]
            for position, block in zip(positions.tolist(), new, strict=True):
                blocks[position] = block
        return blocks

    def blocking_call_allowed(self) -> bool:
        """Whether waiting is possible: always, as no event loop runs the tasks.

        Returns
        -------
        bool
            ``True``.
        """
        return True


def usable_cores() -> int:
    """Return how many cores this process may run on.

    Returns
    -------
    int
        Cores in its affinity mask, where there is one.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory(path: str = "/proc/meminfo") -> int | None:
    """Return the bytes of memory that new allocations may take without swapping.

    Parameters
    ----------
    path : str
        Where Linux tells.

    Returns
    -------
    int or None
        ``None`` if the system does not tell.
    """
    try:
        lines = Path(path).read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(found[0][1]) * 1024 if found else None


@functools.cache
def default_executor() -> LocalExecutor:
    """Return the executor that all Splits of this process share.

    Returns
    -------
    LocalExecutor
        With a thread per usable core.
    """
    return LocalExecutor()


def _arriving(argument: Any) -> Any:
    """Turn a partition into what its location sees; leave everything else."""
    if not isinstance(argument, Partition):
        return argument
    if argument.executor is None:
        return argument  # passed on by a task at the location
    source = argument.source
    return argument.at_location(
        # Once submitted a task reads its blocks even if the Split is closed before it runs.
        source.pinned() if isinstance(source, LocalSource) else source,
        as_one=argument.begin_pass(),
    )


def _futures_in(argument: Any) -> Iterator[Future[Any]]:
    """Yield an argument that is a future, or the futures directly inside a container."""
    if isinstance(argument, Future):
        yield argument
    elif type(argument) in {list, tuple}:
        yield from (value for value in argument if isinstance(value, Future))
    elif type(argument) is dict:
        yield from (value for value in argument.values() if isinstance(value, Future))


def _resolved(argument: Any) -> Any:
    """Put results in the place of futures; the futures are done."""
    if next(_futures_in(argument), None) is None:
        return argument
    if isinstance(argument, Future):
        return argument.result()
    if isinstance(argument, dict):
        return {key: _result(value) for key, value in argument.items()}
    return type(argument)(_result(value) for value in argument)


def _result(value: Any) -> Any:
    return value.result() if isinstance(value, Future) else value


def _after(waiting: list[Future[Any]], start: Callable[[], None]) -> None:
    """Call `start` when all futures are done; does not wait."""
    while waiting and waiting[-1].done():
        waiting.pop()
    if waiting:
        waiting.pop().add_done_callback(lambda _: _after(waiting, start))
    else:
        start()


def _run(
    future: LocalFuture,
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> None:
    """Run a task and give its outcome to the future."""
    if not future.set_running_or_notify_cancel():
        return
    outer = getattr(_thread, "in_task", False)
    _thread.in_task = True
    try:
        result = fn(*map(_resolved, args), **{k: _resolved(v) for k, v in kwargs.items()})
    except BaseException as error:  # noqa: BLE001 -- it belongs to whoever asks for the result
        _thread.in_task = outer
        # sys.exit in a task must not end the program that asks for the result.
        future.set_exception(error if isinstance(error, Exception) else failure_by(error))
    else:
        # Reset first: what waited for this result must be queued, not run inside it.
        _thread.in_task = outer
        future.set_result(result)
