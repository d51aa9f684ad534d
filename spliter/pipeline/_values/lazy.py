"""Values that are evaluated when a program needs them."""

from __future__ import annotations

import contextlib
import copy
import functools
import operator
import sys
import weakref
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    MutableMapping,
    MutableSequence,
    MutableSet,
)
from typing import Any, Final

import numpy as np

from spliter.backend.contents import is_sparse
from spliter.pipeline._calls.calls import Call, Node
from spliter.pipeline._calls.graph import Graph
from spliter.pipeline._calls.metas import DTYPES
from spliter.pipeline._running.evaluate import check_use, evaluate_own, may_change


class Lazy:
    """A value that is evaluated when it is needed.

    Created by :func:`spliter.pipeline.lazy` and by captured calls, not by its constructor. Any
    attribute that is not captured evaluates the value, and is then that of the value.
    """

    __slots__ = ("__weakref__", "_graph", "_node")

    def __init__(self, node: Node, graph: Graph) -> None:
        self._node = node
        self._graph = graph
        node.lazy = weakref.ref(self)

    def _replace(self, newer: Any) -> None:
        """Take over a newer version of the value, lazy or not."""
        if not isinstance(newer, Lazy):
            self._node.finish(newer)
        else:
            newer._node.before = self._node if newer._node.is_pending else None
            self._take_over(newer._node)

    def _take_over(self, node: Node) -> None:
        """Be the value of another node."""
        self._node.lazy = None
        self._node = node
        node.lazy = weakref.ref(self)

    def _settle(self) -> None:
        """Make what follows from the value as it is now, before it may change."""

    def __getattr__(self, name: str) -> Any:
        """Evaluate, and return an attribute of the value."""
        if name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(compute(self), name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Evaluate, and return the array; to pandas, which copies arrays that it keeps, a copy."""
        self._graph.root().has_escaped = True
        is_for_pandas = str(sys._getframe(1).f_globals.get("__name__")).startswith("pandas.")
        return np.array(compute(self), dtype, copy=is_for_pandas or copy)

    def __copy__(self) -> Any:
        """Copy the value."""
        return copy.copy(compute(self))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the value itself."""
        return identity, (compute(self),)

    def __bool__(self) -> bool:
        return bool(compute(self))

    def __float__(self) -> float:
        return float(compute(self))

    def __int__(self) -> int:
        return int(compute(self))

    def __complex__(self) -> complex:
        return complex(compute(self))

    def __index__(self) -> int:
        return operator.index(compute(self))

    def __round__(self, *digits: int) -> Any:
        return round(compute(self), *digits)

    def __repr__(self) -> str:
        return repr(compute(self))

    def __str__(self) -> str:
        return str(compute(self))

    def __format__(self, spec: str) -> str:
        return format(compute(self), spec)

    def __len__(self) -> int:
        return len(compute(self))

    def __iter__(self) -> Iterator[Any]:
        return iter(compute(self))

    def __reversed__(self) -> Any:
        return reversed(compute(self))

    def __contains__(self, item: Any) -> bool:
        return item in compute(self)

    def __delitem__(self, key: Any) -> None:
        del compute(self)[computed(key)]

    def __hash__(self) -> int:
        """Return the hash of a number; arrays and frames have none."""
        return hash(compute(self))


BINARY: Final = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"),
)
"""Operators that have a reflected form and one in place."""

_OTHERS: Final = ("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "abs", "invert")


def define_operators(kind: type[Lazy], call: Callable[[Callable[..., Any], Any], Any]) -> None:
    """Give a class the operators of Python.

    Parameters
    ----------
    kind : type
    call : callable
        Takes the function of an operator and a tuple of its operands.
    """
    for name in (*BINARY, *_OTHERS):
        function = getattr(operator, f"__{name}__")
        setattr(kind, f"__{name}__", lambda *given, by=function: call(by, given))
        if name in BINARY:
            setattr(kind, f"__r{name}__", lambda one, two, by=function: call(by, (two, one)))


@contextlib.contextmanager
def asked_for_class() -> Iterator[None]:
    """Raise another error for an ``AttributeError`` of a call: ``isinstance`` would be false."""
    try:
        yield
    except AttributeError as error:
        raise RuntimeError(f"a call raised {error!r}, where its result was needed") from error


def identity(value: Any) -> Any:
    """Return a value, as what pickles of lazy ones call."""
    return value


def compute(value: Any) -> Any:
    """Evaluate a lazy value, for a program that may change it; return any other value unchanged.

    Parameters
    ----------
    value : object
    """
    if not isinstance(value, Lazy):
        return value
    evaluated(value)
    value._settle()
    return value._node.data


def evaluated(value: Lazy) -> Any:
    """Evaluate a lazy value, to read it.

    Parameters
    ----------
    value : Lazy
    """
    graph = value._graph.root()
    graph.check_at_client(value._node)
    if may_change(graph) or value._node.is_pending:
        check_use(graph)
        evaluate_own(graph)
        value._graph.root()  # raises if another thread has lost it
    return value._node.data


def lazies_in(value: Any) -> list[Lazy]:
    """Return the lazy values in a value, also in lists, tuples, dicts and slices."""
    if isinstance(value, Lazy):
        return [value]
    return _lazies_in(value, set()) if isinstance(value, _MAY_HOLD) else []


def _lazies_in(value: Any, seen: set[int]) -> list[Lazy]:
    """Return the lazy values in what may hold some, itself, too; of each object once."""
    if isinstance(value, Lazy):
        return [value]
    if id(value) in seen:
        return []
    seen.add(id(value))
    items = value
    if isinstance(value, dict):
        items = list(value.values())
    elif isinstance(value, slice):
        items = value.start, value.stop, value.step
    held = [item for item in items if isinstance(item, _MAY_HOLD)]  # few of many numbers
    return [each for item in held for each in _lazies_in(item, seen)]


_MAY_HOLD: Final = (Lazy, dict, slice, list, tuple)
_CONTAINERS: Final = (MutableMapping, MutableSequence, MutableSet)
_SCALARS: Final = (int, float, complex, str, bytes, np.generic)
_PLAIN: Final = (*_SCALARS, np.ndarray)


def computed(value: Any) -> Any:
    """Return a value with all lazy values in it evaluated, also in what :func:`lazies_in` knows."""
    if isinstance(value, Lazy):
        return compute(value)
    if is_frame(value):
        return of_numbers(value)
    if not lazies_in(value):
        return value
    if isinstance(value, dict):
        result = copy.copy(value)  # of its own class
        result.update({key: computed(item) for key, item in value.items()})
        return result
    if isinstance(value, slice):
        return slice(computed(value.start), computed(value.stop), computed(value.step))
    items = [computed(item) for item in value]
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make(items)
    return type(value)(items)


def settled(
    value: Any, value_of: Callable[[Lazy], Any] = compute, known: dict[int, Any] | None = None
) -> Any:
    """Return what a decorated function returns, without lazy values.

    Lists and dicts are changed themselves, as the program may hold them.

    Parameters
    ----------
    value : object
        Lists, tuples and dicts may hold lazy values, and plain frames lazy numbers, which pandas
        took for objects.
    value_of : callable, optional
        Returns the value of a lazy one.
    known : dict of int to object, optional
        What stands for lists and dicts, by the `id` of these; those that are settled are added, as
        they may hold themselves.
    """
    if isinstance(value, Lazy):
        return value_of(value)
    if is_frame(value):
        return of_numbers(value)
    known = {} if known is None else known
    if isinstance(value, list | dict):
        if id(value) in known:
            return known[id(value)]
        known[id(value)] = value
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in [pair for pair in pairs if not isinstance(pair[1], _PLAIN)]:
            put(value, key, each, settled(each, value_of, known))
    elif isinstance(value, tuple):
        items = [settled(each, value_of, known) for each in value]
        if any(map(operator.is_not, items, value)):
            return with_items(value, items)
    return value


def put(container: Any, key: Any, item: Any, value: Any) -> None:
    """Replace an item of a list or dict by its value, if it is still there.

    Parameters
    ----------
    container : list or dict
        Classes derived from these may refuse changes.
    key : object
    item, value : object
    """
    if value is not item and holds(container, key, item):
        base = dict if isinstance(container, dict) else list
        base.__setitem__(container, key, value)


def holds(container: Any, key: Any, item: Any) -> bool:
    """Return whether an item is still in a list or dict, which another thread may change."""
    if isinstance(container, dict):
        return container.get(key) is item
    return key < len(container) and container[key] is item


def with_items(value: Any, items: list[Any]) -> Any:
    """Return a tuple of the same class with other items."""
    return value._make(items) if hasattr(value, "_make") else tuple.__new__(type(value), items)


def of_numbers(frame: Any) -> Any:
    """Return a frame with the values of lazy numbers in it, which pandas took for objects.

    Parameters
    ----------
    frame : DataFrame or Series
    """
    for axis, labels in enumerate(frame.axes):
        if _has_lazy(labels):
            values = type(labels)([compute(each) for each in labels], name=labels.name)
            frame = frame.set_axis(values, axis=axis)
    if frame.ndim == 1:
        values = [compute(each) for each in frame.array] if _has_lazy(frame) else None
        return frame if values is None else type(frame)(values, frame.index, name=frame.name)
    objects = np.flatnonzero(frame.dtypes.to_numpy() == np.dtype(object))
    found = [at for at in objects if _has_lazy(frame.iloc[:, at])]
    frame = frame.copy() if found else frame
    for at in found:
        frame.isetitem(at, of_numbers(frame.iloc[:, at]))
    return frame


def _has_lazy(labels: Any) -> bool:
    if labels.dtype != object or hasattr(labels, "levels"):
        return False
    return any(isinstance(each, Lazy) for each in labels.array)


def is_capturable(value: Any) -> bool:
    """Return whether a value is an array, frame or series whose calls can be captured.

    Parameters
    ----------
    value : object
        Masked arrays and other subclasses are not: their own methods keep what they add.
    """
    return is_array(value) or is_frame(value)


def is_frame(value: Any) -> bool:
    """Return whether a value is a frame or series of pandas whose calls can be captured."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and type(value) in _frame_classes(pandas)


@functools.cache
def _frame_classes(pandas: Any) -> tuple[type, ...]:
    """Return the classes of frames; none before pandas 3, whose frames are views of each other."""
    is_new = int(pandas.__version__.partition(".")[0]) >= 3
    return (pandas.DataFrame, pandas.Series) if is_new else ()


def is_array(value: Any) -> bool:
    """Return whether a value is an array whose calls can be captured."""
    return type(value) is np.ndarray and value.ndim > 0 and value.dtype.kind in DTYPES


def as_argument(value: Any, graph: Graph, writes: tuple[Node, ...] = ()) -> Any:
    """Return the node of a lazy value or of an array; any other value unchanged.

    Over a Split, calls get copies of what the program may change before tasks run.
    """
    if isinstance(value, Lazy):
        node = value._node
        is_kept = type(graph) is Graph or node.is_pending or node in writes
        if is_kept or not is_capturable(node.data):
            return node
        return Node(copy.copy(node.data), None, node.meta)
    if type(value) is np.ndarray and not value.ndim:
        return value.copy()  # the program may change what it is a view of
    if isinstance(value, list | dict | set):
        return copy.copy(value)  # as it is now
    return graph.operand(value) if is_capturable(value) else value


def as_now(value: Any, graph: Graph, made: dict[int, Any] | None = None) -> Any:
    """Return a plain argument as it is now, with copies of containers and of what is in them.

    Arrays are not copied, so the call runs at once; over a Split, it gets copies.

    Parameters
    ----------
    value : object
    graph : Graph
        Of the call.
    made : dict of int to object, optional
        Copies of lists and dicts by the `id` of these, as they may hold themselves.
    """
    made = {} if made is None else made
    if id(value) in made:
        return made[id(value)]
    if isinstance(value, list | dict):
        result: Any = copy.copy(value)
        made[id(value)] = result
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if not isinstance(item, _SCALARS):
                put(result, key, item, as_now(item, graph, made))
        return result
    if isinstance(value, tuple):
        return with_items(value, [as_now(item, graph, made) for item in value])
    if isinstance(value, Lazy) or not (is_frame(value) or isinstance(value, _CONTAINERS)):
        return _data_as_now(value, graph)
    return copy.copy(value)


def _data_as_now(value: Any, graph: Graph) -> Any:
    has_items = isinstance(value, np.ndarray) or is_sparse(value)
    if has_items and type(graph) is not Graph:
        return copy.deepcopy(value)  # of objects, too
    if has_items or isinstance(value, memoryview):
        graph.reads_plain = graph.returns
    return value


def give_copies(calls: Iterable[Call]) -> None:
    """Give the program its own copies of results, as it may change them before other calls run.

    Parameters
    ----------
    calls : iterable of Call
        Over a Split, which have run.
    """
    for call in calls:
        for _, node in call.live_outputs():
            lazy = node.lazy() if node.is_held and node.lazy else None
            if lazy is not None and is_capturable(node.data):
                lazy._take_over(Node(copy.copy(node.data), None, node.meta))
