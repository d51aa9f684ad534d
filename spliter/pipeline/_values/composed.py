"""Functions of NumPy over a Split that follow from others, which blocks compute.

Each takes the arguments that it can do with, and returns ``NotImplemented`` for other values of
them. In this process they run on whole arrays.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from spliter.pipeline._values.any_rows import has_rows
from spliter.pipeline._values.lazy import Lazy, computed
from spliter.pipeline._values.row_calls import (
    capture_by_rows,
    counts_in_bins,
    counts_of_integers,
    lazies_over_split,
)


def capture_over_split(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Capture a call that blocks of a Split can make; ``NotImplemented`` for any other one.

    Parameters
    ----------
    fn : callable
    args, kwargs
        Its arguments.
    """
    found = capture_by_rows(fn, args, kwargs)
    composed = COMPOSED.get(fn)
    operands = {name: each for name, each in kwargs.items() if name != "out"}
    if found is not NotImplemented or composed is None or not lazies_over_split(args, operands):
        return found
    try:
        inspect.signature(composed).bind(*args, **kwargs)
    except TypeError:  # of arguments that are not known here
        return NotImplemented
    return composed(*args, **kwargs) if args and has_rows(args[0]) else NotImplemented


def _is_over_rows(axis: Any) -> bool:
    return axis is None or (type(axis) is int and axis == 0)


def _of_no_rows(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of dtypes and numbers of axes, which asks arrays without rows."""

    def composed(*args: Any) -> Any:
        return fn(*[each._node.meta.empty if has_rows(each) else computed(each) for each in args])

    return composed


def _shape(a: Any) -> Any:
    return a.shape


def _size(a: Any, axis: Any = None) -> Any:
    if axis is None:
        return a.size
    return a.shape[normalize_axis_index(axis, a.ndim)] if type(axis) is int else NotImplemented


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    if not _is_over_rows(axis) or ord is not None:
        return NotImplemented
    x = x if x.dtype.kind in "fc" else x.astype(np.float64)
    return np.sqrt(np.sum(np.abs(x) ** 2, axis=axis, keepdims=keepdims))


def _ptp(a: Any, axis: Any = None) -> Any:
    return np.max(a, axis=axis) - np.min(a, axis=axis) if _is_over_rows(axis) else NotImplemented


def _average(a: Any, axis: Any = None, weights: Any = None) -> Any:
    if a.dtype.kind in "mM":
        return NotImplemented
    if weights is None:
        return np.mean(a, axis=axis)
    if not _is_over_rows(axis) or not has_rows(weights):
        return NotImplemented
    wide = weights if axis is None or weights.ndim > 1 else weights[(..., *[None] * (a.ndim - 1))]
    if wide.ndim != a.ndim or (wide is weights and wide._meta.shape != a._meta.shape):
        return NotImplemented
    dtype = np.result_type(a.dtype, weights.dtype, "f8" if a.dtype.kind in "biu" else a.dtype)
    weighted = np.sum(np.multiply(a, wide, dtype=dtype), axis=axis)
    total = np.sum(weights, axis=axis, dtype=dtype)
    if np.any(np.asarray(total) == 0):
        raise ZeroDivisionError("Weights sum to zero, can't be normalized")
    return weighted / total


def _nanmean(a: Any, axis: Any = None) -> Any:
    if not _is_over_rows(axis) or a.dtype.kind != "f":
        return NotImplemented
    # Half floats hold no count of many rows.
    mean = np.nansum(a, axis=axis) / np.sum(~np.isnan(a), axis=axis)
    return mean.astype(a.dtype.newbyteorder("="))


def _nanmax(a: Any, axis: Any = None) -> Any:
    return np.fmax.reduce(a, axis=axis) if _is_over_rows(axis) else NotImplemented


def _nanmin(a: Any, axis: Any = None) -> Any:
    return np.fmin.reduce(a, axis=axis) if _is_over_rows(axis) else NotImplemented


def _cov(m: Any, y: Any = None, rowvar: bool = True) -> Any:
    if (
        y is not None
        or rowvar
        or m.ndim != 2
        or m.dtype.kind not in "iuf"
        or m.shape[1] < 2
        or len(m) < 2
    ):
        return NotImplemented
    centred = m.astype(np.result_type(m.dtype, np.float64)) - m.mean(axis=0, dtype=np.float64)
    return np.einsum("ij,ik->jk", centred, centred) / (len(m) - 1)


def _histogram(a: Any, bins: Any = 10, range: Any = None) -> Any:
    bins = bins if has_rows(bins) else computed(bins)
    if a.dtype.kind not in "iuf" or isinstance(bins, str | Lazy):
        return NotImplemented
    if np.ndim(bins) == 0 and range is None and len(a):
        range = np.asarray(a.min())[()], np.asarray(a.max())[()]  # their dtype decides on the edges
    edges = np.histogram_bin_edges(np.empty(0, a.dtype), bins, range)
    return capture_by_rows(counts_in_bins, (a, bins, range), {}), edges


def _bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    if x.dtype.kind not in "iu" or not (weights is None or isinstance(weights, Lazy)):
        return NotImplemented
    least = np.bincount(np.empty(0, int), minlength=minlength)  # raises for wrong ones
    length = max(int(x.max()) + 1 if len(x) else 0, len(least))
    return capture_by_rows(counts_of_integers, (x, weights, length), {})


def _into(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return an elementwise function with ``out`` of the dtype of the result, which is not cast."""
    signature = inspect.signature(fn)

    def composed(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        if (out := given.arguments.pop("out", None)) is None:
            return NotImplemented
        made = fn(*given.args, **given.kwargs)
        fits = made.dtype == getattr(out, "dtype", None) and made.dtype.kind in "iufc"
        return np.positive(made, out=out) if fits else NotImplemented

    return composed


COMPOSED: Final[Mapping[Any, Callable[..., Any]]] = {
    **{
        fn: _of_no_rows(fn)
        for fn in (np.ndim, np.result_type, np.common_type, np.isrealobj, np.iscomplexobj)
    },
    np.shape: _shape,
    np.size: _size,
    np.linalg.norm: _norm,
    np.ptp: _ptp,
    np.average: _average,
    np.nanmean: _nanmean,
    np.nanmax: _nanmax,
    np.nanmin: _nanmin,
    np.cov: _cov,
    np.histogram: _histogram,
    np.bincount: _bincount,
    np.clip: _into(np.clip),
    np.round: _into(np.round),
    np.around: _into(np.around),
}
"""By what NumPy passes to ``__array_function__``."""
