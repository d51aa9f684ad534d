"""Add calls to the graph of a program; run calls that cannot be captured on evaluated arguments."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from spliter._errors import InvalidArgumentError
from spliter.pipeline._annotations.rows import WHOLE
from spliter.pipeline._calls.calls import Annotation, Call, Node, UnforeseenResultError
from spliter.pipeline._calls.graph import RUNNING, Graph, common_graph
from spliter.pipeline._calls.metas import DTYPES, ArrayMeta, FrameMeta
from spliter.pipeline._calls.sites import Site
from spliter.pipeline._options import CURRENT
from spliter.pipeline._running.evaluate import claim, evaluate
from spliter.pipeline._values.any_rows import check_mistake
from spliter.pipeline._values.lazy import (
    BINARY,
    Lazy,
    as_argument,
    asked_for_class,
    compute,
    computed,
    define_operators,
    is_array,
    is_capturable,
    is_frame,
    lazies_in,
    of_numbers,
)
from spliter.pipeline._values.lazy_numbers import number

MAX_PENDING: Final = 10_000
"""Most calls that wait, each in some 2 kB; longer programs are evaluated on the way."""


class LazyObject(Lazy):
    """A result of which nothing is known before it is evaluated, which every operator does."""

    __slots__ = ()

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The class of the value, for all but this package and arrays; evaluates."""
        if str(sys._getframe(1).f_globals.get("__name__")).startswith("spliter."):
            return LazyObject
        with asked_for_class():
            return self._class()

    def _class(self) -> Any:
        found = known(self)
        is_elsewhere = isinstance(found, Lazy) and type(found._graph.root()) is not Graph
        if is_elsewhere and found._node.is_pending:  # NumPy asks for it, too
            return found.__class__ if isinstance(found._node.meta, FrameMeta) else LazyObject
        value = compute(self)
        return LazyObject if isinstance(value, np.ndarray) else type(value)

    def __getitem__(self, key: Any) -> Any:
        is_here = type(self._graph.root()) is Graph
        if is_here and isinstance(key, Lazy) and isinstance(key._node.meta, FrameMeta):
            return capture(operator.getitem, (self, key), {}, WHOLE)
        if isinstance(found := known(self), Lazy) and found._node.is_pending:  # over a Split
            return operator.getitem(found, key)
        return plain(operator.getitem, (self, key), {})

    def __len__(self) -> int:
        return len(known(self))

    def __setitem__(self, key: Any, value: Any) -> None:
        plain(operator.setitem, (self, key, value), {})

    def __getattr__(self, name: str) -> Any:
        """Evaluate, and return an attribute, as of what the value turns out to be."""
        found = self if name.startswith("__") else known(self)
        if isinstance(found, LazyObject):
            return super().__getattr__(name)
        return getattr(found, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Evaluate, and set an attribute."""
        if name in ("_node", "_graph"):
            super().__setattr__(name, value)
        else:
            setattr(known(self), name, computed(value))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Evaluate, and call a function of NumPy or capture it for another argument."""
        return run_known(func, args, kwargs)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Evaluate, and run the ufunc or capture it for another argument."""
        return plain_into(getattr(ufunc, method), inputs, kwargs)


LAZY_CLASSES: Final[dict[type, type[Lazy]]] = {}
"""Classes of lazy values, by those of their metas."""


def wrap(node: Node, graph: Graph) -> Any:
    """Return the lazy value of a node, of a class that fits what is known of it."""
    return LAZY_CLASSES.get(type(node.meta), LazyObject)(node, graph)


def plain(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Evaluate the arguments of a call that is not annotated, and run it.

    Parameters
    ----------
    fn : callable
    args, kwargs
        Its arguments.

    Returns
    -------
    object
        In a decorated function, a lazy value in place of an array: calls on it are captured.
    """
    given = lazies_in((args, kwargs))
    if not given:  # of lists of numbers, which have been evaluated
        return fn(*args, **kwargs)
    graph = shared_graph(given)
    if type(graph) is not Graph:
        check_mistake(fn, args, kwargs, given)
    result = fn(*computed(args), **computed(kwargs))
    if is_frame(result):  # methods that change a frame in place return it
        for each in given:
            if each._node.data is result:
                return each
    return rewrapped(result, graph, given)


def graph_of(*values: Any) -> Graph:
    """Return one graph for all lazy values in some values."""
    return shared_graph(lazies_in(values))


def shared_graph(lazies: Sequence[Lazy]) -> Graph:
    """Return one graph for the lazy values of a call.

    Over a Split that is the one of its rows. Values of other graphs are evaluated first: a pass is
    sent copies of them.

    Parameters
    ----------
    lazies : sequence of Lazy
    """
    graph = common_graph([each._graph for each in lazies])
    if type(graph) is Graph:
        return graph
    of_rows = {each._graph.root() for each in lazies if _may_have_rows(each)}
    if len(of_rows) > 1:
        raise InvalidArgumentError(
            f"{Site.of_caller()} combines rows of pipelines over several Splits; return them from "
            "these, and split the collections together: split(x, y)"
        )
    graph = common_graph(of_rows or [graph])
    for each in lazies:
        if each._graph.root() is not graph:
            compute(each)
    return graph


def _may_have_rows(value: Lazy) -> bool:
    """Return whether a value is known to be distributed."""
    meta = value._node.meta
    is_unknown = meta is not None and not meta.is_known and value._node.is_pending
    return is_unknown and type(value._graph.root()) is not Graph


define_operators(LazyObject, lambda function, operands: run_known(function, operands, {}))


def in_place(name: str) -> Callable[[Lazy, Any], Any]:
    """Return an operator that changes the value itself, if its class can be changed.

    Parameters
    ----------
    name : str
        Such as ``"add"``.
    """
    function = getattr(operator, f"__i{name}__")

    def change(value: Lazy, other: Any) -> Any:
        before = compute(value)
        after = function(before, computed(other))
        return value if after is before else rewrapped(after, value._graph.root())

    return change


for _name in (*BINARY, "lshift", "rshift"):
    setattr(LazyObject, f"__i{_name}__", in_place(_name))
for _name, _function in (
    *(("divmod", divmod), ("lshift", operator.lshift), ("rshift", operator.rshift)),
):
    setattr(LazyObject, f"__{_name}__", lambda *given, by=_function: plain(by, given, {}))
    setattr(LazyObject, f"__r{_name}__", lambda one, two, by=_function: plain(by, (two, one), {}))


def run_known(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a call once the values of which nothing is known are evaluated.

    If another argument is lazy then, the call may be captured.
    """
    graph = graph_of(args, kwargs)
    args = tuple([_with_known(each) for each in args])
    kwargs = {name: _with_known(each) for name, each in kwargs.items()}
    if lazies_in((args, kwargs)):
        return fn(*args, **kwargs)
    return rewrapped(fn(*computed(args), **computed(kwargs)), graph, lazies_in((args, kwargs)))


def _with_known(value: Any) -> Any:
    """Return a value, or a list or tuple of values, of classes that they turn out to be."""
    if type(value) in (list, tuple):
        return type(value)([_with_known(each) for each in value])
    return known(value)


def _is_unknown(value: Any) -> bool:
    """Return whether nothing is known of a value, or of one in a list or tuple."""
    return type(value) is LazyObject or (
        type(value) in (list, tuple) and any(map(_is_unknown, value))
    )


def known(value: Any) -> Any:
    """Evaluate a value of which nothing is known; return one of the class that it turns out to be.

    Once evaluated, an array or a number is not evaluated again: changes of it may be pending.
    """
    if type(value) is not LazyObject:
        return value
    if value._node.is_pending and value._node.meta is None:
        value._graph.root().learn(value._node)
        if value._node.meta is None:
            compute(value)
    data = value._node.data
    if value._node.is_pending:  # over a Split
        held, found = value._node.lazy, wrap(value._node, value._graph.root())
        value._node.lazy = held  # the program holds this one, and must not change the other
        value._graph.root().add_view(found, value, None)
        return found
    if is_capturable(data) or (isinstance(data, np.generic) and data.dtype.kind in DTYPES):
        return wrap(value._node, value._graph.root())
    return compute(value)


def plain_into(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a call on evaluated arguments; return what was passed as ``out``, if anything.

    It is captured after all if nothing was known of an argument, and now is.
    """
    if any(map(_is_unknown, (*args, *kwargs.values()))):
        return run_known(fn, args, kwargs)
    result = plain(fn, args, kwargs)
    outs = kwargs.get("out")
    if not isinstance(outs, tuple):
        return result if outs is None else outs
    if len(outs) == 1:
        return outs[0]
    return tuple([made if out is None else out for made, out in zip(result, outs, strict=True)])


CONSTANTS: Final = (
    *(bool, int, float, complex, str, bytes, type(None), type(...)),
    *(np.generic, np.dtype, type),
)
"""Types of values that share no memory."""


def with_numbers(value: Any) -> Any:
    """Return a list, tuple or dict with values in place of lazy numbers, if it has no others.

    Parameters
    ----------
    value : object
        A lazy value is returned as it is.
    """
    found = () if isinstance(value, Lazy) else lazies_in(value)
    return computed(value) if found and all(_is_number(each._node) for each in found) else value


def rewrapped(result: Any, graph: Graph, given: Sequence[Lazy] = ()) -> Any:
    """Return lazy values for arrays in a decorated function, else the result itself.

    Of other objects that may share memory with arrays, such as iterators, later changes of arrays
    do not wait. After an array that is not lazy, and not new, no call waits: the program may change
    it.

    Parameters
    ----------
    result : object
    graph : Graph
    given : sequence of Lazy
        Arguments of the call, one of which may be the result.
    """
    is_plain = not graph.returns or not is_array(result)
    if is_plain and isinstance(result, np.ndarray):
        is_new = result.base is None and not any(each._node.data is result for each in given)
        graph.is_eager |= result.flags.writeable and not is_new
    if not graph.returns and type(result) in (list, tuple):
        for each in result:
            rewrapped(each, graph, given)
    if not graph.returns or isinstance(result, CONSTANTS):
        return result
    if is_frame(result):
        result = of_numbers(result)
    if is_capturable(result):
        return wrap(graph.source(result), graph)
    if type(result) is tuple or (type(result) is list and any(map(is_array, result[:1]))):
        return type(result)([rewrapped(each, graph, given) for each in result])
    if isinstance(result, tuple) and hasattr(result, "_make"):
        return result._make([rewrapped(each, graph) for each in result])
    graph.has_escaped |= not is_frame(result)
    return result


def capture(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    annotation: Annotation,
    writes: tuple[Node, ...] = (),
    into: Node | None = None,
    graph: Graph | None = None,
) -> Any:
    """Add a call to the graph of its arguments.

    Parameters
    ----------
    fn, args, kwargs
        The call; values are lazy values, nodes or plain ones.
    annotation : Annotation
        How it may be cut.
    writes : tuple of Node
        Inputs that it changes.
    into : Node or None
        What a ufunc writes its result into.
    graph : Graph, optional
        Graph of the nodes; by default that of the lazy values.

    Returns
    -------
    Lazy, tuple of Lazy, or None
        As many as the call has results.

    Raises
    ------
    UnforeseenResultError
        If a call with `into` has to run at once.
    """
    if graph is None:
        given = (*args, *kwargs.values())
        graph = shared_graph([each for each in given if isinstance(each, Lazy)])
    if RUNNING.get() is graph:  # in a function of the user's, on a piece
        return fn(*computed(args), **computed(kwargs))
    with graph as graph:
        if claim(graph):
            _ = [each._graph.root() for each in lazies_in((args, kwargs))]  # raises of lost ones
        call = Call(
            fn,
            tuple([as_argument(each, graph, writes) for each in args]),
            {name: as_argument(each, graph, writes) for name, each in kwargs.items()},
            annotation,
            writes,
            into,
        )
        try:
            nodes = call.make_outputs(annotation.metas(call))
        except UnforeseenResultError:
            if into is not None:
                raise
            return plain_into(fn, args, kwargs)
        graph.pending.append(call)
        graph.writes_wait |= bool(writes)
        if CURRENT.get().pedantic:
            graph.locks.add(node.data for node in call.inputs)
        lazies = tuple([wrap(node, graph) for node in nodes])
        is_here = type(graph) is Graph  # copies of arrays over a Split must not be older
        must_write = writes and (graph.has_escaped or not (graph.returns and is_here))
        if must_write or graph.reads_plain or graph.is_eager or len(graph.pending) >= MAX_PENDING:
            evaluate(graph)
    if type(graph) is Graph:  # over a Split numbers wait for one pass
        lazies = tuple([number(each) if _is_number(each._node) else each for each in lazies])
    if len(lazies) == 1:
        return lazies[0]
    return lazies or None


def _is_number(node: Node) -> bool:
    return isinstance(node.meta, ArrayMeta) and not node.meta.shape
