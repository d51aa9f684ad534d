"""Add calls to the graph of a program; run calls that cannot be captured on evaluated arguments."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from spliter._errors import InvalidArgumentError
from spliter.pipeline._calls.calls import Annotation, Call, Node, UnforeseenResultError, source
from spliter.pipeline._calls.graph import Graph
from spliter.pipeline._calls.metas import is_array, is_frame
from spliter.pipeline._calls.sites import Site
from spliter.pipeline._capture.lazy import Lazy, compute, computed, lazies_in

SLICE: Final = "a slice of another value"
COLUMNS: Final = "a value of which columns have been taken, or the columns"
NEW_VALUE: Final = "write a new name, such as x = x + 1 or x = np.where(mask, new, x)"

MAX_PENDING: Final = 10_000
"""Most calls that wait, each in some 2 kB; longer programs are evaluated on the way."""

CONSTANTS: Final = (
    *(bool, int, float, complex, str, bytes, type(None), type(...)),
    *(np.generic, np.dtype, type),
)
"""Types of values that share no memory."""

CLASSES: Final[dict[bool, type[Lazy]]] = {}
"""Classes of lazy values, by whether shape and dtype are known."""


def wrap(node: Node, graph: Graph, fixed: str = "") -> Any:
    """Return the lazy value of a node, of a class that fits what is known of it."""
    return CLASSES[node.meta is not None](node, graph, fixed)


def refused(what: str, advice: str = NEW_VALUE) -> InvalidArgumentError:
    """Return the error of a change that would have to be seen by other names."""
    return InvalidArgumentError(f"{Site.of_caller()} {what}; {advice}")


def graph_of(lazies: Sequence[Lazy]) -> Graph:
    """Return one graph for the lazy values of a call, after merging those of this process."""
    graph, *others = dict.fromkeys([each._graph.root() for each in lazies])
    for other in others:
        if not (graph.is_over_split or other.is_over_split):
            graph.absorb(other)
        elif graph.is_over_split and other.is_over_split:
            raise refused(
                "combines values of pipelines over several Splits",
                "return them, and split the collections together: split(x, y)",
            )
        elif other.is_over_split:
            graph = other
    return graph


def as_argument(value: Any, graph: Graph) -> Any:
    """Return the node of a lazy value or of a copy of an array; any other value unchanged.

    Arrays, frames, lists and dicts are copied, as the program may change them before the call runs.
    """
    if isinstance(value, Lazy):
        return value._node if value._graph.root() is graph else source(compute(value))
    if is_array(value):
        return source(value.copy("K"))
    if is_frame(value):
        return value.copy(deep=False)  # pandas copies what is changed
    if isinstance(value, list | dict | set | np.ndarray):
        return copy.copy(value)
    return value


def capture(fn: Callable[..., Any], args: Any, kwargs: Any, annotation: Annotation) -> Any:
    """Add a call to the graph of its arguments."""
    given = (*args, *kwargs.values()) if kwargs else args
    graph = graph_of([each for each in given if isinstance(each, Lazy)])
    graph.check()
    nodes = tuple([as_argument(each, graph) for each in args])
    named = {name: as_argument(each, graph) for name, each in kwargs.items()}
    try:
        return add(Call(fn, nodes, named, annotation), graph)
    except UnforeseenResultError:
        return plain(fn, args, kwargs)


def add(call: Call, graph: Graph) -> Any:
    """Add a call to a graph, and return its results; numbers of this process are evaluated."""
    nodes = call.make_outputs(call.annotation.metas(call))
    graph.pending.append(call)
    results = [wrap(node, graph) for node in nodes]
    if len(graph.pending) >= MAX_PENDING:
        graph.evaluate()
    if not graph.is_over_split:
        results = [_with_number(each) for each in results]
    return results[0] if len(results) == 1 else tuple(results) or None


def _with_number(value: Lazy) -> Any:
    """Evaluate a number, and what it follows from: programs use numbers at once."""
    graph, node = value._graph.root(), value._node
    if node.meta is None or node.meta.shape:
        return value
    if node.is_pending:
        graph.by = "" if node.call is None else node.call.name
        graph.trace()
        graph.evaluate([node])
    return node.data


def plain(fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Evaluate the arguments of a call that is not captured, and run it."""
    given = lazies_in((args, kwargs))
    name = str(getattr(fn, "__name__", fn))
    result = fn(*computed(args, name), **computed(kwargs, name))
    return rewrapped(result, given) if given else result


def rewrapped(result: Any, given: Sequence[Lazy]) -> Any:
    """Return lazy values in place of arrays."""
    if is_array(result):
        return _as_lazy(result, given)
    if isinstance(result, tuple) or (type(result) is list and any(map(is_array, result[:1]))):
        items = [rewrapped(each, given) for each in result]
        if all(one is other for one, other in zip(items, result, strict=True)):
            return result
        return result._make(items) if hasattr(result, "_make") else type(result)(items)
    if not isinstance(result, CONSTANTS):  # it may hold their memory, as iterators do
        fix(given)
    return result


def fix(values: Sequence[Lazy]) -> None:
    """Let values not be changed in place: in NumPy, others share their memory."""
    for each in values:
        each._fixed = each._fixed or "a value of which a slice has been taken"


def _as_lazy(array: Any, given: Sequence[Lazy]) -> Any:
    shared = [each for each in given if _shares(each._node.data, array)]
    if shared and not array.flags.writeable:
        with contextlib.suppress(ValueError):  # the program must not change it, its caller may
            array.flags.writeable = any(each._node.data.flags.writeable for each in shared)
    fix(shared)
    return wrap(source(array), given[0]._graph.root(), SLICE if shared else "")


def _shares(data: Any, array: Any) -> bool:
    return isinstance(data, np.ndarray) and np.may_share_memory(data, array)
