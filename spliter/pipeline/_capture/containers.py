"""Lists, dicts and tuples that the caller passes: arrays in them are lazy, and they are read-only.

The body gets copies, which refuse to be changed; where it returns one, the caller's is returned.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

from spliter._errors import InvalidArgumentError
from spliter._split import Split
from spliter.pipeline._calls.calls import source
from spliter.pipeline._calls.graph import Graph
from spliter.pipeline._calls.metas import is_array, is_frame
from spliter.pipeline._capture.capture import refused, wrap
from spliter.pipeline._capture.lazy import Lazy, compute, with_items

ARGUMENT: Final = "an argument of the caller"


def _refusing(name: str) -> Callable[..., Any]:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        kind = "list" if isinstance(self, list) else "dict"
        raise refused(
            f"calls {name} on a {kind} of the caller, which is read only in a pipeline",
            f"change a copy, such as {kind}(x), and return it",
        )

    return refuse


class CallersList(list[Any]):
    """A copy of a list of the caller, which refuses changes."""

    given: list[Any]


class CallersDict(dict[Any, Any]):
    """A copy of a dict of the caller, which refuses changes."""

    given: dict[Any, Any]


for _kind, _base, _names in (
    (CallersList, list, "append extend insert pop remove clear sort reverse __iadd__ __imul__"),
    (CallersDict, dict, "__ior__ pop popitem clear update setdefault"),
):
    for _name in ("__setitem__", "__delitem__", *_names.split()):
        setattr(_kind, _name, _refusing(_name))
    _kind.__reduce_ex__ = lambda self, _, base=_base: (base, (base(self),))  # type: ignore[method-assign, misc]


def wrapped(value: Any, graph: Graph, made: dict[int, Any]) -> Any:
    """Return an argument with arrays made lazy, also in lists, tuples and dicts."""
    if id(value) in made:
        return made[id(value)]
    if isinstance(value, Split):
        raise InvalidArgumentError(
            "a list, tuple or dict of the arguments holds a Split; pass the Split itself: f(parts)"
        )
    if is_array(value) or is_frame(value):
        result = made[id(value)] = wrap(source(value), graph, ARGUMENT)
        return result
    if type(value) is list:
        result = made[id(value)] = CallersList()
        list.extend(result, [wrapped(item, graph, made) for item in value])
    elif type(value) is dict:
        result = made[id(value)] = CallersDict()
        dict.update(result, {key: wrapped(item, graph, made) for key, item in value.items()})
    if type(value) in (list, dict):
        result.given = value
        return result
    if isinstance(value, tuple):
        items = [wrapped(item, graph, made) for item in value]
        return value if all(map(operator.is_, items, value)) else with_items(value, items)
    return value


def settled(value: Any, value_of: Callable[[Lazy], Any] = compute) -> Any:
    """Return what the body returns, without lazy values; its own lists and dicts are changed."""
    if isinstance(value, Lazy):
        return value_of(value)
    if isinstance(value, CallersList | CallersDict):
        return value.given
    if isinstance(value, tuple):
        items = [settled(item, value_of) for item in value]
        return value if all(map(operator.is_, items, value)) else with_items(value, items)
    if isinstance(value, list | dict):
        for key, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
            if (found := settled(item, value_of)) is not item:
                value[key] = found
    return value
