"""Values that are evaluated when a program needs them."""

from __future__ import annotations

import copy
import operator
import weakref
from typing import Any, Final

import numpy as np

from spliter.pipeline._calls.calls import Node
from spliter.pipeline._calls.graph import Graph


class Lazy:
    """A value that is evaluated when it is needed; created by captured calls."""

    __slots__ = ("__weakref__", "_fixed", "_graph", "_node")

    def __init__(self, node: Node, graph: Graph, fixed: str = "") -> None:
        self._node = node
        self._graph = graph
        self._fixed = fixed  # what it is, if it cannot be changed in place
        node.lazy = weakref.ref(self)

    def _replace(self, newer: Lazy) -> None:
        """Stand for another value, which nothing else stands for."""
        self._node.lazy = None
        self._node = newer._node
        self._node.lazy = weakref.ref(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Evaluate, and return the array, read-only unless it is a copy."""
        if not copy:
            self._fixed = self._fixed or "a value of which an array has been taken"
        return np.array(read_only(compute(self, "asarray")), dtype, copy=copy)

    def __copy__(self) -> Any:
        """Copy the value."""
        return copy.copy(compute(self))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the value itself."""
        return copy.copy, (compute(self),)


def read_only(value: Any) -> Any:
    """Return a view of an array that cannot be changed; any other value unchanged."""
    if not isinstance(value, np.ndarray) or not value.ndim:
        return value
    view = value.view()
    view.flags.writeable = False
    return view


def compute(value: Any, by: str = "") -> Any:
    """Evaluate a lazy value; return any other value unchanged."""
    if not isinstance(value, Lazy):
        return value
    graph, node = value._graph.root(), value._node
    graph.check()
    graph.by = by
    if by or node.is_pending:
        graph.trace()
    if node.is_pending:
        graph.evaluate()
    return graph.value(node)


for _by in (
    *(bool, float, int, complex, round, repr, str, format, hash, len, iter),
    *(operator.index, operator.contains),
):
    setattr(Lazy, f"__{_by.__name__}__", lambda self, *given, by=_by: by(compute(self), *given))

_MAY_HOLD: Final = (Lazy, dict, slice, list, tuple)


def lazies_in(value: Any) -> list[Lazy]:
    """Return the lazy values in a value, also in lists, tuples, dicts and slices."""
    if isinstance(value, Lazy):
        return [value]
    items: Any = value if isinstance(value, list | tuple) else ()
    if isinstance(value, dict):
        items = value.values()
    elif isinstance(value, slice):
        items = value.start, value.stop, value.step
    held = [item for item in items if isinstance(item, _MAY_HOLD)]  # few of many numbers
    return [each for item in held for each in lazies_in(item)]


def computed(value: Any, by: str = "") -> Any:
    """Return a value with all lazy values in it evaluated, for a function to read."""
    if isinstance(value, Lazy):
        return read_only(compute(value, by))
    if not lazies_in(value):
        return value
    if isinstance(value, dict):
        return {key: computed(item, by) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*[computed(each, by) for each in (value.start, value.stop, value.step)])
    return with_items(value, [computed(item, by) for item in value])


def with_items(value: Any, items: list[Any]) -> Any:
    """Return a list or tuple, a named one too, with other items."""
    if hasattr(value, "_make"):
        return value._make(items)
    return items if isinstance(value, list) else tuple(items)
