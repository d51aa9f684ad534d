"""Capture calls of NumPy's ufuncs and functions, or run them on evaluated arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from spliter.pipeline._annotations.arguments import arguments_of, as_array
from spliter.pipeline._annotations.elementwise import ELEMENTWISE, Elementwise
from spliter.pipeline._annotations.numpy import FUNCTIONS
from spliter.pipeline._calls.metas import is_array
from spliter.pipeline._capture.capture import CLASSES, CONSTANTS, capture, plain, refused, wrap
from spliter.pipeline._capture.lazy import Lazy, compute, lazies_in

_CHANGING: Final = (np.copyto, np.put, np.place, np.putmask, np.put_along_axis, np.fill_diagonal)
"""Functions that change their first argument."""


def known(value: Any) -> Any:
    """Return what an opaque value has turned out to be; it itself as long as it is pending."""
    if type(value) is not CLASSES[False] or not value._node.is_here:
        return value
    data = compute(value)
    return wrap(value._node, value._graph.root(), value._fixed) if is_array(data) else data


def is_opaque(value: Any) -> bool:
    """Return whether a value is pending, and nothing is known of it."""
    return type(value) is CLASSES[False] and not value._node.is_here


def is_operand(value: Any) -> bool:
    """Return whether a value does not take part in calls in its own way, as masked arrays do."""
    if type(value) in CLASSES.values() or isinstance(value, CONSTANTS):
        return True
    if isinstance(value, np.ndarray):
        return is_array(value) or (type(value) is np.ndarray and value.ndim == 0)
    return type(value) in (list, tuple) and not lazies_in(value)


def capture_ufunc(ufunc: np.ufunc, method: str, inputs: Any, kwargs: Any) -> Any:
    """Capture a call of a ufunc, or run it or one of its methods on evaluated arguments."""
    check_out(ufunc, kwargs)
    fn = ufunc if method == "__call__" else getattr(ufunc, method)
    inputs = tuple(map(known, inputs))
    is_usual = fn is ufunc and isinstance(ufunc, np.ufunc) and not ufunc.signature  # not Numba's
    has_lazy = any(isinstance(each, Lazy) for each in inputs) and all(map(is_operand, inputs))
    if not is_usual or kwargs.keys() - {"dtype", "casting"} or not has_lazy:
        return plain(fn, inputs, kwargs)
    return capture(ufunc, tuple(map(as_array, inputs)), kwargs, ELEMENTWISE)


def check_out(fn: Callable[..., Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse ``out=``."""
    outs = kwargs.get("out")
    if outs is not None and not (type(outs) is tuple and all(each is None for each in outs)):
        name = getattr(fn, "__name__", fn)
        raise refused(f"calls {name} with out=, or by an operator such as +=, in place")


def capture_function(fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Capture a call of an annotated function of NumPy, or run it on evaluated arguments."""
    check_out(fn, kwargs)
    if fn in _CHANGING and lazies_in(args[:1]):
        raise refused(f"calls {fn.__name__}, which changes its first argument")
    args = tuple(map(known, args))
    kwargs = {name: known(each) for name, each in kwargs.items()}
    if fn in (np.shape, np.size, np.ndim) and len(args) == 1 and not kwargs:
        return getattr(args[0], fn.__name__)
    annotation = FUNCTIONS.get(fn)
    operands = (*args, *kwargs.values())
    if annotation is None or not all(map(is_operand, operands)) or any(map(_is_empty, operands)):
        return plain(fn, args, kwargs)
    if any(map(is_opaque, operands)) and type(annotation) is not Elementwise:
        return plain(fn, args, kwargs)
    found = arguments_of(fn, annotation, args, kwargs)
    if found is None or not any(isinstance(each, Lazy) for each in (*found[0], *found[1].values())):
        return plain(fn, args, kwargs)
    return capture(fn, *found, annotation)


def _is_empty(value: Any) -> bool:
    """Return whether an array has no elements: many functions refuse it."""
    meta = value._node.meta if isinstance(value, Lazy) else None
    return meta is not None and 0 in meta.shape
