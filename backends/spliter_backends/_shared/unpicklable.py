"""Find the variable, attribute or argument that makes a task unpicklable."""

from __future__ import annotations

import functools
import inspect
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from spliter import Partition, Split, TaskNotSerializableError
from spliter.backend import name_of

MAX_DEPTH: Final = 5
"""Maximum depth, such as task, ``self``, ``self.settings``, ``self.settings['lock']``: each level
pickles everything below it again."""

NamedValue = tuple[str, Any]


def not_serializable(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    cause: Exception,
    dumps: Callable[[Any], Any],
    place: str = "a worker",
) -> TaskNotSerializableError:
    """Return the error for a task whose pickling has failed.

    `dumps` is the engine's function to pickle one value, `place` the destination of the task, for
    the message.

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
    found = _search(parts, dumps, _module_of(fn), MAX_DEPTH)
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
        return "Pass the values that the task needs, instead of the Split"
    if type(value).__name__ == "Client" and type(value).__module__.startswith("distributed"):
        return "Connect inside the task instead: with distributed.worker_client() as client:"
    return "Open files, locks and connections inside the task instead"


def _search(
    parts: Iterable[NamedValue], dumps: Callable[[Any], Any], module: str | None, levels: int
) -> NamedValue | None:
    """Return the innermost unpicklable part of the first unpicklable value."""
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


def _parts_of(path: str, value: Any, module: str | None) -> Iterator[NamedValue]:
    """Yield the values pickled with a function, a container, or an object of the user's module."""
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
    elif is_dataclass(value) and callable(value):
        yield from ((field.name, getattr(value, field.name)) for field in fields(value))
    elif type(value).__module__ == module:
        attributes = getattr(value, "__dict__", {})
        yield from ((f"{path or 'self'}.{name}", one) for name, one in attributes.items())


def _captured(fn: Any) -> Iterator[NamedValue]:
    """Yield a function's closure variables, globals and defaults."""
    closure = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
    for name, cell in closure:
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for name in global_names(fn.__code__):
        if name in fn.__globals__:
            yield name, fn.__globals__[name]
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.default is not inspect.Parameter.empty:
            yield parameter.name, parameter.default


@functools.lru_cache(maxsize=1_000)
def global_names(code: CodeType) -> tuple[str, ...]:
    """Return the global names that code and its nested functions may use, sorted."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names.update(global_names(constant))
    return tuple(sorted(names))
