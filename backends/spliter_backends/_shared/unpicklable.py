"""Name the variable, attribute or argument because of which a task cannot be pickled."""

from __future__ import annotations

import functools
import inspect
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from spliter import Partition, Split, TaskNotSerializableError
from spliter.backend import name_of

DEEPEST: Final = 5
"""Levels that are searched, such as task, ``self``, ``self.settings``, ``self.settings['lock']``:
each level pickles what is below it again."""

Named = tuple[str, Any]


def not_serializable(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    cause: Exception,
    dumps: Callable[[Any], Any],
    place: str = "a worker",
) -> TaskNotSerializableError:
    """Return the error for a task that cannot be sent. To be called when pickling has failed.

    Parameters
    ----------
    fn : callable
        The user's function.
    args, kwargs
        Its arguments.
    cause : Exception
        What pickling raised.
    dumps : callable
        How the engine pickles one value.
    place : str
        Where the task was to be sent, for the message.

    Returns
    -------
    TaskNotSerializableError
        Names the innermost value that cannot be pickled by itself.

    Examples
    --------
    >>> import pickle, threading
    >>> error = TypeError("cannot pickle '_thread.lock' object")
    >>> print(not_serializable(len, [{"key": threading.Lock()}], {}, error, pickle.dumps))
    len cannot be sent to a worker: argument 1['key'] is a _thread.lock, which cannot be pickled
    (cannot pickle '_thread.lock' object). Open files, locks and connections inside the task instead
    """
    parts = [
        ("", fn),
        *((f"argument {number}", value) for number, value in enumerate(args, start=1)),
        *((f"argument {name!r}", value) for name, value in kwargs.items()),
    ]
    found = _search(parts, dumps, _module_of(fn), DEEPEST)
    reason = str(cause).strip().partition("\n")[0]
    if found is None or not found[0]:
        what, advice = f"it or one of its arguments cannot be pickled ({reason})", _advice(None)
    else:
        path, value = found
        kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
        what, advice = f"{path} is a {kind}, which cannot be pickled ({reason})", _advice(value)
    return TaskNotSerializableError(f"{name_of(fn)} cannot be sent to {place}: {what}. {advice}")


def _module_of(fn: Callable[..., Any]) -> str | None:
    """Return the module of a function, or of the class of another callable."""
    function = inspect.unwrap(fn)
    return getattr(function, "__module__", None) or type(function).__module__


def _advice(value: Any) -> str:
    if isinstance(value, Split):
        return "Pass the values that the task needs of the Split as arguments instead"
    if type(value).__name__ == "Client" and type(value).__module__.startswith("distributed"):
        return "Connect inside the task instead: with distributed.worker_client() as client:"
    return "Open files, locks and connections inside the task instead"


def _search(
    parts: Iterable[Named], dumps: Callable[[Any], Any], module: str | None, levels: int
) -> Named | None:
    """Return the innermost part of the first value that cannot be pickled."""
    for path, value in parts:
        if isinstance(value, Partition | ModuleType):
            continue
        try:
            dumps(value)
        except Exception:  # noqa: BLE001 -- a class's own pickling may raise anything
            inside = _parts_of(path, value, module)
            deeper = _search(inside, dumps, module, levels - 1) if levels > 1 else None
            return deeper or (path, value)
    return None


def _parts_of(path: str, value: Any, module: str | None) -> Iterator[Named]:
    """Yield the values that are pickled with a function, a container, or the user's own object."""
    if isinstance(value, MethodType):
        yield "self", value.__self__
    elif isinstance(value, functools.partial):
        yield path, value.func
        bound = [*value.args, *value.keywords.values()]
        yield from ((f"argument {at} of the partial", one) for at, one in enumerate(bound, start=1))
    elif isinstance(value, FunctionType):
        yield from _captured(inspect.unwrap(value))
    elif isinstance(value, list | tuple):
        yield from ((f"{path}[{at}]", one) for at, one in enumerate(value))
    elif isinstance(value, dict):
        yield from ((f"{path}[{reprlib.repr(key)}]", one) for key, one in value.items())
    elif type(value).__module__ == module:
        attributes = getattr(value, "__dict__", {})
        yield from ((f"{path or 'self'}.{name}", one) for name, one in attributes.items())


def _captured(fn: Any) -> Iterator[Named]:
    """Yield the variables of a function that are not its own, with its defaults."""
    closure = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
    for name, cell in closure:
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for name in _names(fn.__code__):
        if name in fn.__globals__:
            yield name, fn.__globals__[name]
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.default is not inspect.Parameter.empty:
            yield parameter.name, parameter.default


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that code and the functions inside of it look up."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
