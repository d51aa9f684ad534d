"""``task``: make a function run at the location of its partition."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, overload

from spliter._checks import check_keywords, check_task_function, name_of
from spliter._errors import InvalidArgumentError
from spliter._format import describe_type
from spliter._hints import is_frame
from spliter._partition import Partition
from spliter._split import Split
from spliter.backend.registry import decorators_keywords, is_collection, options_of_tasks

Arguments = ParamSpec("Arguments")

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
    future. Called without one, or at a location, it is the plain function. Next to a partition,
    any other arguments are passed on as they are.

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
        If `fn` is not callable or is a coroutine function. On a call with a Split, a list of
        partitions, a collection or a DataFrame in place of a partition; with partitions at
        different locations; or with an option of Dask's ``submit`` that `fn` does not accept.

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
                _reject_collections(fn, given)
            return fn(*args, **kwargs)
        locations = {partition.location for partition in found}
        if len(locations) > 1:
            raise InvalidArgumentError(
                "a task takes partitions of one location, got partitions of "
                f"{sorted(locations)}; pass futures of the others' results instead"
            )
        for partition in found:
            partition._opened()
        check_keywords(fn, kwargs, options_of_tasks())
        dispatch = found[0]._dispatch
        assert dispatch is not None
        # Send the wrapper: it is importable under the function's name, the function is not.
        given = args, {**kwargs, **decorator_kwargs}
        return dispatch.submit(submit_or_call, *given, is_alone=len(partitions) == 1)

    return submit_or_call


def _reject_collections(fn: Callable[..., Any], arguments: Iterable[Any]) -> None:
    """Reject what a task takes partitions of, and a frame: iterating it would not yield blocks.

    A list of blocks is accepted, as a function may be tried on it.
    """
    name = name_of(fn)
    for argument in arguments:
        listed = isinstance(argument, list | tuple)
        if (listed or isinstance(argument, Split)) and len(argument):
            first = argument[0]
            if isinstance(first, Partition) and first.executor is not None:
                raise InvalidArgumentError(
                    f"{name}() got a {type(argument).__name__} of {len(argument)} partitions, but "
                    f"a task runs on one; call it for each: [{name}(partition) for partition in "
                    f"parts], or parts.map({name})"
                )
        elif is_frame(argument):
            raise InvalidArgumentError(
                f"{name}() got a {describe_type(argument)} in memory, but a task runs on a "
                f"partition; split a list of parts of it: [{name}(partition) for partition in "
                f"split(parts)], or call it here with a list of blocks: {name}([frame])"
            )
        elif not listed and is_collection(argument):
            raise InvalidArgumentError(
                f"{name}() got a {describe_type(argument)}, but a task runs on a partition; split "
                f"it and call {name} for each: [{name}(partition) for partition in split(x)], or "
                f"split(x).map({name})"
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
