"""``task``, ``reduce``, ``gather``: run one task per partition and combine the results."""

from __future__ import annotations

import functools
import reprlib
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, overload

from spliter._errors import InvalidArgumentError
from spliter._futures import executor_of, list_futures
from spliter._partition import Partition
from spliter._planner import Location
from spliter._split import Split
from spliter._task_checks import check_keywords, check_task_function, name_of
from spliter.backend.protocols import Executor
from spliter.backend.registry import decorators_keywords

Arguments = ParamSpec("Arguments")

DEFAULT_ARITY = 8
"""Results combined by one reduction task across locations."""

_decorator_kwargs: weakref.WeakKeyDictionary[Callable[..., Any], Mapping[str, Any]] = (
    weakref.WeakKeyDictionary()
)
"""Keywords that an engine's decorators passed to a task, kept for its later calls."""


@overload
def task(fn: Callable[Arguments, Any], /) -> Callable[Arguments, Any]: ...
@overload
def task() -> Callable[[Callable[Arguments, Any]], Callable[Arguments, Any]]: ...
def task(fn: Callable[..., Any] | None = None, /) -> Callable[..., Any]:
    """Make a function run at the location of the partition among its arguments.

    Calling the decorated function with a partition, in the program that split the
    collection, submits it to that partition's location and returns the engine's own
    future. Called without one, or at a location, it is the plain function.

    Parameters
    ----------
    fn : callable
        Takes partitions as top-level arguments, and any other arguments. ``@task()`` is the
        same as ``@task``.

    Returns
    -------
    callable
        Takes the same arguments, or futures of them; returns a future if it submits.

    Raises
    ------
    InvalidArgumentError
        If `fn` is not callable or is a coroutine function; on a call with a Split or a list of
        partitions, with partitions at different locations, or with an option of Dask's
        ``submit`` that `fn` does not accept.

    Notes
    -----
    Type checkers and editors see the function's own arguments. The result is ``Any``: a future
    (of any engine) or the plain result, depending on where the call is made.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter import split, task
    >>> @task
    ... def total(partition):
    ...     return sum(float(block.sum()) for block in partition)
    >>> blocks = [np.ones(3), np.ones(2)]
    >>> sum(total(partition).result() for partition in split(blocks))
    5.0
    """
    if fn is None:
        return task
    check_task_function(fn)

    @functools.wraps(fn)
    def submit_or_call(*args: Any, **kwargs: Any) -> Any:
        decorator_kwargs = _pop_decorator_kwargs(submit_or_call, kwargs)
        given = (*args, *kwargs.values())
        partitions = [argument for argument in given if isinstance(argument, Partition)]
        found = [partition for partition in partitions if partition.executor is not None]
        if not found:
            if not partitions:
                _reject_many_partitions(fn, given)
            return fn(*args, **kwargs)
        locations = {partition.location for partition in found}
        if len(locations) > 1:
            raise InvalidArgumentError(
                "a task takes partitions of one location, got partitions of "
                f"{sorted(locations)}; pass futures of the others' results instead"
            )
        for partition in found:
            partition._check_open()
        check_keywords(fn, kwargs)
        executor = found[0].executor
        assert executor is not None
        # Send the wrapper: it is importable under the function's name, the function is not.
        sent = {**kwargs, **decorator_kwargs}
        return executor.submit(submit_or_call, args, sent, location=found[0].location)

    return submit_or_call


def _reject_many_partitions(fn: Callable[..., Any], arguments: Iterable[Any]) -> None:
    """Reject a Split, or a list of its partitions, as an argument of a task."""
    for argument in arguments:
        if not isinstance(argument, Split | list | tuple) or not len(argument):
            continue
        first = argument[0]
        if isinstance(first, Partition) and first.executor is not None:
            name = name_of(fn)
            raise InvalidArgumentError(
                f"{name}() got a {type(argument).__name__} of {len(argument)} partitions, but a "
                f"task runs on one; call it for each: [{name}(partition) for partition in parts], "
                f"or parts.map({name})"
            )


def _pop_decorator_kwargs(
    function: Callable[..., Any], kwargs: dict[str, Any]
) -> Mapping[str, Any]:
    """Remove and return the keywords that an engine's decorators above ``task`` have added.

    They may do so on the first call only, which need not submit, so the keywords are kept.
    """
    known = decorators_keywords()
    if not known.isdisjoint(kwargs):
        _decorator_kwargs[function] = {name: kwargs.pop(name) for name in known & kwargs.keys()}
    return _decorator_kwargs.get(function, {})


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
        Maximum number of results combined by one task (at least 2). By default 8 across
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
    if arity is not None and arity < 2:
        raise InvalidArgumentError(f"arity must be an int >= 2, got {arity!r}")
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
    """Raise `InvalidArgumentError` if called on the engine's event loop."""
    if not executor.blocking_call_allowed():
        raise InvalidArgumentError(
            "waiting for tasks would block the event loop that runs them; wait in a thread: "
            "await asyncio.to_thread(...)"
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
    """Combine results from left to right; the body of a reduction task.

    Parameters
    ----------
    fn : callable
        Function of two results.
    results : sequence
        At least one result.

    Returns
    -------
    object
        The combined result.

    Examples
    --------
    >>> import operator
    >>> fold(operator.add, [1, 2, 3])
    6
    """
    return functools.reduce(fn, results)
