"""``reduce`` and ``gather``: combine the results of tasks, or return them."""

from __future__ import annotations

import functools
import reprlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from spliter._checks import check_count
from spliter._errors import InvalidArgumentError
from spliter._planning.planner import Location
from spliter._running.futures import executor_of, list_futures
from spliter.backend.executor import Executor

DEFAULT_ARITY = 32
"""Results combined by one reduction task across locations. On Dask, a second level of tasks takes
10 ms, and a task that combines 32 small results 10 ms in all."""


def reduce(fn: Callable[[Any, Any], Any], futures: Iterable[Any], arity: int | None = None) -> Any:
    """Combine the results of many futures with a function of two arguments.

    The results are combined in a tree: at each location first, then across locations. `fn` must
    be associative and commutative, as the order depends on where the results are.

    Parameters
    ----------
    fn : callable
        Takes two results (or two combined results) and returns a new one; it must not
        change its arguments, which the engine may still hold.
    futures : iterable of future
        Futures returned by :func:`task`, :meth:`Partition.submit` or :meth:`Split.map`.
    arity : int, optional
        Maximum number of results combined by one task (at least 2). By default 32 across
        locations; the results of one location are combined by a single task.

    Returns
    -------
    future
        The engine's own future of the combined result.

    Raises
    ------
    InvalidArgumentError
        If `fn` is not callable, there are no futures, one is not a future of a known engine,
        or `arity` < 2.

    Examples
    --------
    >>> import operator
    >>> import numpy as np
    >>> from spliter import reduce, split
    >>> futures = split([np.ones(3), np.ones(2)]).map(lambda part: sum(map(np.sum, part)))
    >>> float(reduce(operator.add, futures).result())
    5.0
    """
    if not callable(fn):
        raise InvalidArgumentError(
            "reduce(fn, futures) takes the function first and the futures second, got "
            f"{reprlib.repr(fn)} as the function"
        )
    pending = list_futures(futures, "reduce")
    if not pending:
        raise InvalidArgumentError("reduce() needs at least one future, got none")
    if arity is not None:
        check_count("arity", arity, 2)
    executor = executor_of(pending, "reduce")
    by_location: dict[Location | None, list[Any]] = {}
    for future in pending:
        by_location.setdefault(executor.location_of(future), []).append(future)
    unplaced = by_location.pop(None, [])
    tops = [
        _reduce_level(executor, fn, group, arity or max(len(group), 2), location)
        for location, group in by_location.items()
    ]
    return _reduce_level(executor, fn, tops + unplaced, arity or DEFAULT_ARITY, None)


def gather(futures: Iterable[Any]) -> list[Any]:
    """Wait for many futures of one engine and return their results.

    For few and small results this is faster than :func:`reduce`, which adds a round of tasks,
    and than waiting for each future in turn.

    Parameters
    ----------
    futures : iterable of future
        Futures returned by :func:`task`, :meth:`Partition.submit` or :meth:`Split.map`.

    Returns
    -------
    list
        The results, in order.

    Raises
    ------
    InvalidArgumentError
        If one is not a future of a known engine, or this is the engine's event loop, which
        must not wait.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter import gather, split
    >>> parts = split([np.ones(3), np.ones(2)], partitions_per_location=2)
    >>> gather(parts.map(lambda part: sum(len(block) for block in part)))
    [3, 2]
    """
    pending = list_futures(futures, "gather")
    if not pending:
        return []
    executor = executor_of(pending, "gather")
    check_may_wait(executor)
    return executor.gather(pending)


def check_may_wait(executor: Executor) -> None:
    """Raise `InvalidArgumentError` if the engine's event loop would wait for itself."""
    if not executor.blocking_call_allowed():
        raise InvalidArgumentError(
            "waiting for tasks would block the event loop that runs them; wait in a thread, by "
            "await asyncio.to_thread(...), and pass numpy.asarray(value) to the engine in place of "
            "a lazy value"
        )


def _reduce_level(
    executor: Executor,
    fn: Callable[[Any, Any], Any],
    futures: Sequence[Any],
    arity: int,
    location: Location | None,
) -> Any:
    """Combine level by level, `arity` at a time, until one future is left."""
    level = list(futures)
    while len(level) > 1:
        level = [
            group[0]
            if len(group) == 1
            else executor.submit(fold, (fn, group), {}, location=location)
            for group in (level[i : i + arity] for i in range(0, len(level), arity))
        ]
    return level[0]


def fold(fn: Callable[[Any, Any], Any], results: Sequence[Any]) -> Any:
    """Combine one or more results from left to right; the body of a reduction task.

    Examples
    --------
    >>> import operator
    >>> fold(operator.add, [1, 2, 3])
    6
    """
    return functools.reduce(fn, results)
