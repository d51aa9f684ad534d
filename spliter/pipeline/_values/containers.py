"""Lists and dicts that the caller passes: arrays in them are lazy in the body of a pipeline.

Those with arrays are copied for the body, and what it has changed is changed in the caller's when
it returns. The others are the caller's own, as other threads and callbacks may change them, too::

    caller      {"x": array}            []
    body        {"x": lazy}, a copy     the same list, to which it appends lazy values
    at the end  changed as the copy     holds arrays
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

from spliter.pipeline._calls.graph import Graph
from spliter.pipeline._values.capture import wrap
from spliter.pipeline._values.lazy import (
    Lazy,
    compute,
    holds,
    is_capturable,
    put,
    settled,
)


class Held(NamedTuple):
    """A list or dict among the arguments of a pipeline.

    Parameters
    ----------
    given : list or dict
        The caller's.
    made : list or dict
        What the body gets: a copy, or the same object.
    before : list or dict
        What was in it.
    """

    given: Any
    made: Any
    before: Any


Containers: TypeAlias = dict[int, Held]
"""Lists and dicts among the arguments, by the `id` of the caller's."""


def wrapped(value: Any, graph: Graph, containers: Containers) -> Any:
    """Return a value with arrays and frames made lazy, also in lists, tuples and dicts.

    Parameters
    ----------
    value : object
    graph : Graph
    containers : Containers
        To which lists and dicts are added.
    """
    if is_capturable(value):
        node = graph.source(value)
        return node.lazy() if node.is_held and node.lazy else wrap(node, graph)
    if id(value) in containers:  # passed twice, it is one object for the function, too
        return containers[id(value)].made
    if type(value) is tuple:
        items = tuple([wrapped(item, graph, containers) for item in value])
        return value if _are_same(items, value) else items
    if not isinstance(value, list | dict):
        return value
    made: Any = value
    if type(value) in (list, dict) and _holds_arrays(value, set()):
        made = type(value)()
        containers[id(value)] = Held(value, made, value.copy())  # as it may hold itself
        if isinstance(value, list):
            made += [wrapped(item, graph, containers) for item in value]
        else:
            made |= {key: wrapped(item, graph, containers) for key, item in value.items()}
    else:
        containers[id(value)] = Held(value, value, value)
    return made


def _holds_arrays(value: Any, seen: set[int]) -> bool:
    """Return whether there are arrays or frames in a value."""
    if not isinstance(value, list | dict | tuple):
        return is_capturable(value)
    if id(value) in seen:
        return False
    seen.add(id(value))
    return any(_holds_arrays(item, seen) for item in _items(value))


def _items(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else list(value)


def _are_same(one: Any, other: Any) -> bool:
    """Return whether two sequences hold the same objects."""
    return len(one) == len(other) and all(map(operator.is_, one, other))


def written_back(containers: Containers, result: Any) -> Any:
    """Change the caller's lists and dicts as the body has; return a result, which may hold them.

    Parameters
    ----------
    containers : Containers
    result : object
        Of the body, which has copies in place of some.
    """
    known = {id(held.made): held.given for held in containers.values()}

    def final(item: Any) -> Any:
        return settled(item, known=known)

    for given, made, before in containers.values():
        if made is given:
            for key, item in _pairs(given):
                put(given, key, item, final(item))
        elif isinstance(given, dict):
            _change_dict(given, before, {key: final(item) for key, item in made.items()})
        else:
            _change_list(given, before, [final(item) for item in made])
    return final(result)


def _pairs(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the keys or positions of items, and the items as they are now."""
    return list(value.items()) if isinstance(value, dict) else enumerate(list(value))


def _change_dict(given: Any, before: Any, after: Any) -> None:
    """Change a dict as a copy was changed; what others have changed meanwhile stays."""
    if list(after) == list(before) and _are_same(_items(after), _items(before)):
        return
    if list(given) == list(before) and _are_same(_items(given), _items(before)):
        given.clear()  # the order may be another one
        given.update(after)
        return
    for key in before.keys() - after.keys():
        given.pop(key, None)
    given.update(
        (key, item) for key, item in after.items() if key not in before or item is not before[key]
    )


def _change_list(given: Any, before: Any, after: Any) -> None:
    """Change a list as a copy was changed; what others have appended meanwhile stays."""
    start = len(before)
    if _are_same(after, before):
        return
    if _are_same(after[:start], before):
        given += after[start:]
    elif _are_same(given[:start], before):
        given[:] = [*after, *given[start:]]
    else:
        given[:] = after


def own(value: Any, containers: Containers) -> None:
    """Add lists and dicts in a value that are the caller's own in the body.

    Parameters
    ----------
    value : object
    containers : Containers
    """
    if not isinstance(value, list | dict | tuple) or id(value) in containers:
        return
    if not isinstance(value, tuple):
        containers[id(value)] = Held(value, value, value)
    for item in _items(value):
        own(item, containers)


def drop_lost(containers: Containers, value_of: Callable[[Lazy], Any] = compute) -> None:
    """Evaluate what a body that failed has put into lists and dicts, or remove it if it is lost.

    Parameters
    ----------
    containers : Containers
    value_of : callable
        Returns the value of a lazy one.
    """
    seen: set[int] = set()
    for given, made, _ in containers.values():
        if made is given:
            _drop_lost(given, value_of, seen)


def _drop_lost(value: Any, value_of: Callable[[Lazy], Any], seen: set[int]) -> None:
    if id(value) in seen:
        return
    seen.add(id(value))
    for key, item in reversed([*_pairs(value)]):
        if isinstance(item, list | dict):
            _drop_lost(item, value_of, seen)
            continue
        try:
            put(value, key, item, settled(item, value_of))
        except Exception:  # noqa: BLE001 -- the program gets the first error
            if holds(value, key, item):
                del value[key]


def refuse(value: Lazy) -> Any:
    """Raise, as a value of a body that was stopped is not computed."""
    raise LookupError("it is not computed")
