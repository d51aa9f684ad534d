"""Forms in which a function of NumPy may be called: by position, by name, with defaults."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np


def arguments_of(
    fn: Callable[..., Any], annotation: Any, args: Any, kwargs: Any
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return the arguments of a call as its annotation reads them; ``None`` if it reads no such.

    The first ones come by position, and the others by name, without those that are the default.
    """
    if len(args) == annotation.positional and not kwargs:
        return tuple(_value(annotation, *each) for each in enumerate(args)), kwargs
    names, defaults = _parameters(fn)
    if len(args) > len(names) or kwargs.keys() & set(names[: len(args)]):
        return None
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    first = names[: annotation.positional]
    others = {
        name: value
        for name, value in given.items()
        if name not in first and value is not defaults.get(name, inspect.Parameter.empty)
    }
    if any(name not in given for name in first) or others.keys() - annotation.options:
        return None
    positional = tuple(_value(annotation, at, given[name]) for at, name in enumerate(first))
    return positional, {name: _value(annotation, name, each) for name, each in others.items()}


def _value(annotation: Any, at: str | int, value: Any) -> Any:
    return as_array(value) if at in annotation.data else value


def as_array(value: Any) -> Any:
    """Return an array of a list; any other value unchanged."""
    return np.asarray(value) if type(value) in (list, tuple) else value


@functools.cache
def _parameters(fn: Callable[..., Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the names of the parameters that may be passed by position, and all defaults."""
    parameters = inspect.signature(fn).parameters.values()
    names = [each.name for each in parameters if each.kind <= each.POSITIONAL_OR_KEYWORD]
    return tuple(names), {each.name: each.default for each in parameters}
