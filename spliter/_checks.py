"""Check arguments: numbers of things, functions of tasks and their keywords, the process."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from spliter._errors import ForkedError, InvalidArgumentError


def check_task_function(fn: object, name: str = "a task") -> None:
    """Reject objects that cannot run as a task; `name` says in the error what the function is.

    A call of a coroutine or generator function runs nothing: iterating a partition reads memory and
    may wait, which would stop an event loop.
    """
    if not callable(fn):
        raise InvalidArgumentError(f"{name} must be a function, got {fn!r}")
    kind = lazy_kind(fn)
    if kind is not None:
        raise InvalidArgumentError(
            f"{name_of(fn)} is a {kind} function, which does nothing when it is called; {name} "
            "must be a plain function, which the engine runs in a thread"
        )


def lazy_kind(fn: Callable[..., Any]) -> str | None:
    """Return what a call of a function makes instead of running it, if anything.

    Examples
    --------
    >>> async def later(): ...
    >>> lazy_kind(later), lazy_kind(len)
    ('coroutine', None)
    """
    functions = fn, type(fn).__call__
    if any(map(inspect.iscoroutinefunction, functions)):
        return "coroutine"
    generators = inspect.isgeneratorfunction, inspect.isasyncgenfunction
    return "generator" if any(found(each) for found in generators for each in functions) else None


def check_keywords(
    fn: Callable[..., Any], kwargs: Mapping[str, Any], options: Mapping[str, str]
) -> None:
    """Reject options of an engine's own functions that the function of a task does not accept.

    `options` has for each what takes its place. Any other wrong keyword is left to Python, which
    raises ``TypeError`` in the task.

    Examples
    --------
    >>> options = {"workers": "omit it"}
    >>> check_keywords(lambda part, workers: None, {"workers": 2}, options)
    >>> try:
    ...     check_keywords(len, {"workers": "a"}, options)
    ... except InvalidArgumentError as error:
    ...     print(error)
    len() has no argument 'workers', and further keywords are passed to it; omit it
    """
    if options.keys().isdisjoint(kwargs):
        return
    parameters = _parameters(fn)
    if parameters is None or any(
        one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()
    ):
        return
    for name, advice in options.items():
        if name in kwargs and name not in parameters:
            raise InvalidArgumentError(
                f"{name_of(fn)}() has no argument {name!r}, and further keywords are passed to it; "
                f"{advice.format(name=name, value=kwargs[name])}"
            )


def check_block_function(
    fn: Callable[..., Any],
    kwargs: Mapping[str, Any],
    options: Mapping[str, str],
    filled: Collection[str],
) -> None:
    """Reject options that only an engine has, and parameters that it would fill in by itself.

    `options` and `filled` are as the engines declare them.
    """
    check_keywords(fn, kwargs, options)
    parameters = _parameters(fn) or {}
    for name in filled:
        if name in parameters and name not in kwargs:
            raise InvalidArgumentError(
                f"{name_of(fn)}() has a parameter {name!r}, which map_blocks does not fill in; "
                "start a task on each partition: partition.items() yields each block with its "
                f"index, get_indexes() returns these; or pass {name}="
            )


def _parameters(fn: Callable[..., Any]) -> Mapping[str, inspect.Parameter] | None:
    try:
        return inspect.signature(fn).parameters
    except (TypeError, ValueError):  # a few built-in functions have no signature
        return None


def name_of(fn: object) -> str:
    """Return the name of a function, for messages.

    Parameters
    ----------
    fn : object
        A function or any other callable.

    Returns
    -------
    str
        ``__name__`` of the function or of a partial's function; else the repr.

    Examples
    --------
    >>> name_of(len)
    'len'
    """
    function = fn.func if isinstance(fn, functools.partial) else fn
    return str(getattr(function, "__name__", None) or repr(function))


def check_count(name: str, value: object, least: int = 1, instead: str = "") -> None:
    """Reject what is not an int of at least `least`.

    Parameters
    ----------
    name : str
        The argument, for the error.
    value : object
        A bool is no int here, one of NumPy's integers is.
    least : int
    instead : str
        What else the argument may be, for the error: ``"None or "``.

    Raises
    ------
    InvalidArgumentError
        With the value.

    Examples
    --------
    >>> check_count("threads", 2)
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InvalidArgumentError(f"{name} must be {instead}an int >= {least}, got {value!r}")


def check_choice(name: str, value: object, *choices: object, advice: str = "") -> None:
    """Reject what is none of a few values, which are of the same types.

    Examples
    --------
    >>> check_choice("materialize", "auto", True, False, "auto")
    >>> try:
    ...     check_choice("materialize", 1, True, False, "auto")
    ... except InvalidArgumentError as error:
    ...     print(error)
    materialize must be True, False or "auto", got 1
    """
    if not any(isinstance(value, type(choice)) and value == choice for choice in choices):
        *most, last = (f'"{each}"' if isinstance(each, str) else str(each) for each in choices)
        expected = f"{', '.join(most)} or {last}"
        raise InvalidArgumentError(f"{name} must be {expected}, got {value!r}{advice}")


def owner_of(executor: Any) -> int | None:
    """Return the id of this process, to which an executor is bound; None if it works in forks."""
    return None if executor.usable_in_forks else os.getpid()


def check_process(owner: int | None, what: str) -> None:
    """Raise if this process was forked from the one that an engine's object is bound to.

    Parameters
    ----------
    owner : int or None
        Id of that process.
    what : str
        The object, for the error.

    Raises
    ------
    ForkedError
        As calls of the engine would wait forever for threads that the fork has not got.

    Examples
    --------
    >>> check_process(os.getpid(), "client")
    >>> check_process(None, "Split")
    """
    if owner is not None and owner != os.getpid():
        raise ForkedError(
            f"this process was forked from the one that the {what} belongs to, and has not got its "
            f"threads and connections; use the {what} there, or start processes by 'spawn' and "
            "connect in each"
        )
