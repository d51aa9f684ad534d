"""Capture the calls of a program on lazy arrays; run other calls on evaluated arguments."""

from __future__ import annotations

import functools
import math
import operator
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import numpy as np

from spliter.pipeline._annotations import annotation_of
from spliter.pipeline._annotations.pandas import WHOLE
from spliter.pipeline._elementwise import (
    ASSIGN,
    ASTYPE,
    COLUMNS,
    ELEMENTWISE,
    FILTER,
    UFUNC,
    assign,
    assigned,
)
from spliter.pipeline._evaluate import evaluate
from spliter.pipeline._graph import (
    Annotation,
    ArrayMeta,
    Call,
    FrameMeta,
    Graph,
    Node,
    common_graph,
)
from spliter.pipeline._lazy import Lazy, as_argument, compute, computed, is_array, lazies_in
from spliter.pipeline._options import CURRENT


class LazyObject(Lazy):
    """A result of which nothing is known before it is evaluated, which every operator does."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, Lazy) and isinstance(key._node.meta, FrameMeta):
            return capture(operator.getitem, (self, key), {}, WHOLE)
        return plain(operator.getitem, (self, key), {})

    def __setitem__(self, key: Any, value: Any) -> None:
        plain(operator.setitem, (self, key, value), {})

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Evaluate, and return an array."""
        return np.array(compute(self), dtype, copy=copy)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Evaluate the arguments of a ufunc, and run it."""
        return _plain_into(getattr(ufunc, method), inputs, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate, and call."""
        return plain(compute(self), args, kwargs)


def _evaluating(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *operands: plain(function, operands, {})


def _evaluating_reflected(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda value, other: plain(function, (other, value), {})


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"):
    setattr(LazyObject, f"__{_name}__", _evaluating(getattr(operator, _name)))
    setattr(LazyObject, f"__r{_name}__", _evaluating_reflected(getattr(operator, _name)))
for _name in ("and", "or", "xor", "eq", "ne", "lt", "le", "gt", "ge", "neg", "abs", "invert"):
    setattr(LazyObject, f"__{_name}__", _evaluating(getattr(operator, f"__{_name}__")))


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
    graphs = [each._graph for each in lazies_in((args, kwargs))]
    result = fn(*computed(args), **computed(kwargs))
    return rewrapped(result, common_graph(graphs))


def rewrapped(result: Any, graph: Graph) -> Any:
    """Return a lazy value for an array in a decorated function; else the result itself."""
    if not graph.returns or not is_array(result):
        return result
    return wrap(graph.source(result), graph)


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
    """
    if graph is None:
        given = (*args, *kwargs.values())
        graph = common_graph([each._graph for each in given if isinstance(each, Lazy)])
    with graph.lock:
        call = Call(
            fn,
            tuple([as_argument(each, graph) for each in args]),
            {name: as_argument(each, graph) for name, each in kwargs.items()},
            annotation,
            writes,
            into,
        )
        nodes = call.make_outputs(annotation.metas(call))
        graph.pending.append(call)
        if CURRENT.get().pedantic:
            graph.lock_inputs(call)
    lazies = tuple([wrap(node, graph) for node in nodes])
    if writes and (graph.has_escaped or not graph.returns):
        evaluate(graph)
    if len(lazies) == 1:
        return lazies[0]
    return lazies or None


_CONSTANTS = (bool, int, float, complex, str, bytes, np.generic, type(None), type(...))
_OPERANDS = (*_CONSTANTS, np.dtype, type)


class LazyArray(np.lib.mixins.NDArrayOperatorsMixin, Lazy):
    """A NumPy array that is evaluated when it is needed; its shape and dtype are known before."""

    __slots__ = ()

    @property
    def _meta(self) -> ArrayMeta:
        """Shape and dtype; evaluates if the length is unknown."""
        meta = cast(ArrayMeta, self._node.meta)
        if not meta.is_known:
            compute(self)
        return cast(ArrayMeta, self._node.meta)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents."""
        return cast(tuple[int, ...], self._meta.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the elements."""
        return cast(ArrayMeta, self._node.meta).dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(cast(ArrayMeta, self._node.meta).shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * self.itemsize

    def __len__(self) -> int:
        """Return the extent along the first axis."""
        if not self.ndim:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        """Yield rows: views, lazy in a decorated function."""
        return (self[at] for at in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Evaluate, and return the array."""
        self._graph.root().has_escaped = True
        return np.array(compute(self), dtype, copy=copy)

    def __getattr__(self, name: str) -> Any:
        """Return a method that evaluates, or evaluate and return another attribute."""
        if name.startswith("__"):
            raise AttributeError(f"'LazyArray' object has no attribute {name!r}")
        found = getattr(np.ndarray, name)
        if callable(found):
            return functools.partial(_call_method, found, self)
        return rewrapped(getattr(compute(self), name), self._graph.root())

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Capture a call of a ufunc."""
        return capture_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Capture a call of another function of NumPy, or evaluate its arguments."""
        return capture_function(func, args, kwargs)

    def __getitem__(self, key: Any) -> Any:
        """Return a view for a basic index, a copy for others."""
        if _is_mask(key) and key.ndim == 1 and self._is_as_long_as(key):
            return capture(operator.getitem, (self, key), {}, FILTER)
        if not _is_basic(key):
            return plain(operator.getitem, (self, key), {})
        if isinstance(key, tuple) and key[0] == slice(None) and not self._is_known:
            return capture(operator.getitem, (self, key), {}, COLUMNS)
        data = self._real()
        view = data[computed(key)]
        if isinstance(view, np.ndarray):
            return wrap(self._graph.root().source(view), self._graph.root())
        return compute(self)[computed(key)]

    @property
    def _is_known(self) -> bool:
        return cast(ArrayMeta, self._node.meta).is_known

    def _is_as_long_as(self, mask: LazyArray) -> bool:
        meta = cast(ArrayMeta, self._node.meta)
        return bool(meta.shape) and meta.shape[0] == cast(ArrayMeta, mask._node.meta).shape[0]

    def __setitem__(self, key: Any, value: Any) -> None:
        """Change elements, before anything later reads them."""
        if _is_mask(key) and key.shape == self.shape and _is_number(value):
            self._assign(self, value, {"where": key})
        elif key is Ellipsis or (isinstance(key, slice) and key == slice(None)):
            self._assign(self, value, {})
        elif _is_basic(key) and isinstance(self._real()[computed(key)], np.ndarray):
            view = self._graph.root().source(self._real()[computed(key)])
            self._assign(wrap(view, self._graph.root()), value, {})
        else:
            before = compute(self)
            before[computed(key)] = computed(value)

    def _assign(self, target: Lazy, value: Any, where: dict[str, Any]) -> None:
        value = value if isinstance(value, (*_CONSTANTS, Lazy)) else np.asarray(value)
        if target._node.is_pending:
            self._replace(capture(assigned, (target, value), where, ELEMENTWISE))
        else:
            capture(assign, (target, value), where, ASSIGN, writes=(target._node,))

    def _replace(self, newer: Lazy) -> None:
        """Take over a newer version of the value."""
        self._node.lazy = None
        self._node = newer._node
        self._node.lazy = weakref.ref(self)

    def _real(self) -> Any:
        """Return the memory of the value; pending changes of it need not have happened."""
        return compute(self) if self._node.is_pending else self._node.data

    def astype(self, dtype: Any, **kwargs: Any) -> Any:
        """Return a copy with another dtype."""
        return capture(np.ndarray.astype, (self, dtype), kwargs, ASTYPE)

    def copy(self, order: Any = "C") -> Any:
        """Return a copy."""
        return capture(np.copy, (self,), {"order": order}, ELEMENTWISE)

    def __pow__(self, other: Any) -> Any:
        """Raise to a power; NumPy's operator differs from its ufunc for some exponents."""
        return self._power(other) if type(other) in (int, float) else np.power(self, other)

    def _power(self, exponent: float) -> Any:
        return capture(operator.pow, (self, exponent), {}, ELEMENTWISE)

    def __ipow__(self, other: Any) -> Any:
        """Raise to a power, in place."""
        if type(other) in (int, float):
            self[...] = self._power(other)
            return self
        return capture_ufunc(np.power, "__call__", (self, other), {"out": (self,)})


LAZY_CLASSES[ArrayMeta] = LazyArray


def _call_method(method: Callable[..., Any], value: LazyArray, *args: Any, **kwargs: Any) -> Any:
    """Call a method of arrays: by the function of the same name, if that is annotated."""
    function = getattr(np, method.__name__, None)
    if function is not None and annotation_of(function) is not None:
        return function(value, *args, **kwargs)
    return plain(method, (value, *args), kwargs)


def _is_mask(key: Any) -> bool:
    return isinstance(key, LazyArray) and key.dtype == bool


def _is_number(value: Any) -> bool:
    return not isinstance(value, Lazy) and np.ndim(value) == 0


def _is_basic(key: Any) -> bool:
    """Return whether an index makes a view."""
    keys = key if isinstance(key, tuple) else (key,)
    return all(
        each is None
        or each is Ellipsis
        or isinstance(each, slice)
        or (isinstance(each, int | np.integer) and not isinstance(each, bool))
        for each in keys
    )


def capture_ufunc(
    ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Capture a call of a ufunc or of one of its methods, or run it on evaluated arguments.

    Parameters
    ----------
    ufunc : numpy.ufunc
    method : str
        ``"__call__"``, ``"reduce"``, ...
    inputs, kwargs
        Arguments of ``__array_ufunc__``.
    """
    fn = ufunc if method == "__call__" else getattr(ufunc, method)
    outs = kwargs.get("out", ())
    operands = (*inputs, *outs, kwargs.get("where", True))
    if not all(map(_is_operand, operands)) or (len(outs) != 1 and outs):
        return _plain_into(fn, inputs, kwargs)
    if method == "reduce":
        return capture_function(fn, inputs, kwargs)
    if (
        method != "__call__"
        or ufunc.signature
        or kwargs.keys() - {"out", "where", "dtype", "casting"}
    ):
        return _plain_into(fn, inputs, kwargs)
    inputs = tuple([np.asarray(each) if type(each) in (list, tuple) else each for each in inputs])
    kwargs = {name: value for name, value in kwargs.items() if name != "out"}
    if not outs:
        return capture(ufunc, inputs, kwargs, UFUNC)
    return _capture_into(ufunc, inputs, kwargs, outs[0])


def _capture_into(
    ufunc: np.ufunc, inputs: tuple[Any, ...], kwargs: dict[str, Any], out: Any
) -> Any:
    """Capture a call with ``out``; return what was passed as ``out``."""
    if isinstance(out, LazyArray):
        node = out._node
        if node.is_pending:
            out._replace(capture(ufunc, inputs, kwargs, UFUNC, into=node))
        else:
            capture(ufunc, inputs, kwargs, UFUNC, writes=(node,), into=node)
        return out
    if not is_array(out):
        return _plain_into(ufunc, inputs, {**kwargs, "out": (out,)})
    lazies = lazies_in(inputs) + lazies_in(kwargs)
    graph = common_graph(each._graph for each in lazies)
    node = graph.source(out)
    capture(ufunc, inputs, kwargs, UFUNC, writes=(node,), into=node)
    # The program may read its own array at any time.
    evaluate(graph.root())
    return out


def _plain_into(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a call on evaluated arguments; return what was passed as ``out``, if anything."""
    result = plain(fn, args, kwargs)
    outs = kwargs.get("out")
    if outs is None:
        return result
    return outs if not isinstance(outs, tuple) else outs[0] if len(outs) == 1 else outs


def capture_function(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Capture a call of an annotated function of NumPy, or run it on evaluated arguments.

    Parameters
    ----------
    fn : callable
    args, kwargs
        Its arguments.
    """
    annotation = annotation_of(fn)
    operands = (*args, *kwargs.values())
    if annotation is None or kwargs.get("out") is not None or not all(map(_is_operand, operands)):
        return _plain_into(fn, args, kwargs)
    if any(lazies_in(each) for each in operands if not isinstance(each, Lazy)):
        return _plain_into(fn, args, kwargs)
    return capture(fn, args, kwargs, annotation)


def _is_operand(value: Any) -> bool:
    """Return whether a value does not take part in calls in its own way, as masked arrays do."""
    if type(value) is LazyArray or isinstance(value, _OPERANDS):
        return True
    if type(value) is np.ndarray:
        return is_array(value) or value.ndim == 0
    return type(value) in (list, tuple)
