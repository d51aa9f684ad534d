"""Capture calls of NumPy's ufuncs and functions, or run them on evaluated arguments."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import numpy as np

from spliter.pipeline._annotations.arguments import arguments_of
from spliter.pipeline._annotations.elementwise import CONTIGUOUS_ONLY, UFUNC
from spliter.pipeline._annotations.numpy import FUNCTIONS
from spliter.pipeline._calls.calls import UnforeseenResultError
from spliter.pipeline._calls.graph import Graph
from spliter.pipeline._calls.metas import ArrayMeta, Meta
from spliter.pipeline._running.evaluate import evaluate_own
from spliter.pipeline._values.capture import (
    CONSTANTS,
    LAZY_CLASSES,
    capture,
    graph_of,
    plain_into,
    with_numbers,
)
from spliter.pipeline._values.composed import capture_over_split
from spliter.pipeline._values.lazy import Lazy, compute, is_array, lazies_in
from spliter.pipeline._values.row_calls import RULES

FLAG: Final = np.dtype(bool)


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
    if len(outs) > 1 or not all(map(is_operand, (*inputs, *outs, kwargs.get("where", True)))):
        return plain_into(fn, inputs, kwargs)
    if method == "reduce" or fn in RULES:
        return capture_function(fn, inputs, kwargs)
    is_usual = fn is ufunc and isinstance(ufunc, np.ufunc) and not ufunc.signature  # not Numba's
    if not is_usual or kwargs.keys() - {"out", "where", "dtype", "casting"}:
        return plain_into(fn, inputs, kwargs)
    if type(where := kwargs.get("where")) in (list, tuple):
        where = kwargs["where"] = np.asarray(where)
    if where is not None and getattr(where, "dtype", FLAG).kind != "b":
        return plain_into(fn, inputs, kwargs)  # raises
    inputs = tuple([np.asarray(each) if type(each) in (list, tuple) else each for each in inputs])
    if not outs and all(map(_is_number_here, inputs)) and not kwargs:
        return ufunc(*[each._node.data if isinstance(each, Lazy) else each for each in inputs])
    if not outs:
        return capture(ufunc, inputs, kwargs, UFUNC)
    del kwargs["out"]
    return _capture_into(ufunc, inputs, kwargs, outs[0])


def _capture_into(
    ufunc: np.ufunc, inputs: tuple[Any, ...], kwargs: dict[str, Any], out: Any
) -> Any:
    """Capture a call with ``out``; return what was passed as ``out``."""
    with graph_of(inputs, kwargs, out) as graph:  # no other thread may evaluate in between
        return _captured_into(ufunc, inputs, kwargs, out, graph)


def _captured_into(
    ufunc: np.ufunc, inputs: tuple[Any, ...], kwargs: dict[str, Any], out: Any, graph: Graph
) -> Any:
    if type(out) is LAZY_CLASSES[ArrayMeta]:
        out._before_change()
    if not isinstance(out, Lazy) and not is_array(out):
        return plain_into(ufunc, inputs, {**kwargs, "out": (out,)})
    node = out._node if isinstance(out, Lazy) else graph.source(out)
    axes = len(cast(ArrayMeta, node.meta).shape)
    metas = [each._node.meta for each in lazies_in((inputs, kwargs))]
    metas = [node.meta, *(meta for meta in metas if _has_rows(meta, axes))]
    known = {meta is not None and meta.is_known for meta in metas}  # lengths are compared here
    is_read_only = not node.is_pending and graph.locks.is_read_only(node.data)
    if is_read_only or len(known) > 1 or ufunc in CONTIGUOUS_ONLY:
        return plain_into(ufunc, inputs, {**kwargs, "out": (out,)})
    writes = () if node.is_pending else (node,)
    try:
        newer = capture(ufunc, inputs, kwargs, UFUNC, writes, into=node, graph=graph)
    except UnforeseenResultError:
        return plain_into(ufunc, inputs, {**kwargs, "out": (out,)})
    if not writes:
        out._replace(newer)
        return out
    if not isinstance(out, Lazy):  # the program may read its own array at any time
        evaluate_own(graph)
    return out


def _has_rows(meta: Meta, axes: int) -> bool:
    """Return whether a value is not the same for all rows, so that its length must be theirs."""
    return not isinstance(meta, ArrayMeta) or (len(meta.shape) == axes and meta.shape[:1] != (1,))


def capture_function(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Capture a call of an annotated function of NumPy, or run it on evaluated arguments.

    Parameters
    ----------
    fn : callable
    args, kwargs
        Its arguments.
    """
    args = tuple(map(with_numbers, args))
    kwargs = {name: _option(name, with_numbers(each)) for name, each in kwargs.items()}
    if (found := capture_over_split(fn, args, kwargs)) is not NotImplemented:
        return found
    annotation = FUNCTIONS.get(fn)
    operands = (*args, *kwargs.values())
    if annotation is None or not all(map(is_operand, operands)):
        return plain_into(fn, tuple(map(_listed, args)), kwargs)
    if any(lazies_in(each) for each in operands if not isinstance(each, Lazy)):
        return plain_into(fn, args, kwargs)
    if any(map(_has_no_elements, operands)):
        return plain_into(fn, args, kwargs)  # many functions refuse it
    known = arguments_of(fn, annotation, args, kwargs)
    return plain_into(fn, args, kwargs) if known is None else capture(fn, *known, annotation)


def _option(name: str, value: Any) -> Any:
    """Return the value of an option that must be a number, in place of a lazy one."""
    if not isinstance(value, Lazy) or name not in ("axis", "ddof", "bins", "decimals"):
        return value
    return operator.index(value) if name == "axis" else compute(value)


def _listed(value: Any) -> Any:
    """Return a list for another sequence of lazy values, such as a deque."""
    is_known = isinstance(value, (Lazy, list, tuple)) or not isinstance(value, Sequence)
    return value if is_known or not lazies_in(list(value)) else list(value)


def _is_number_here(value: Any) -> bool:
    """Return whether a value is a number, and evaluated if it is lazy.

    Functions that pandas calls for each row then return numbers that it knows.
    """
    if not isinstance(value, Lazy):
        return isinstance(value, CONSTANTS)
    meta = value._node.meta
    return not value._node.is_pending and isinstance(meta, ArrayMeta) and not meta.shape


def _has_no_elements(value: Any) -> bool:
    meta = value._node.meta if isinstance(value, Lazy) else None
    return isinstance(meta, ArrayMeta) and 0 in meta.shape


def is_operand(value: Any) -> bool:
    """Return whether a value does not take part in calls in its own way, as masked arrays do."""
    if type(value) is LAZY_CLASSES[ArrayMeta] or isinstance(value, CONSTANTS):
        return True
    if type(value) is np.ndarray:
        return is_array(value) or value.ndim == 0
    return type(value) in (list, tuple)
