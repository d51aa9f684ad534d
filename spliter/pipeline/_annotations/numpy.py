"""Annotations of NumPy's functions. Ufuncs, SciPy's too, need none: they describe themselves."""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from spliter.pipeline._annotations.elementwise import (
    Elementwise,
    dtypes_of,
    is_in_order,
)
from spliter.pipeline._calls.calls import Call, Node, Typing, UnforeseenResultError
from spliter.pipeline._calls.metas import ArrayMeta, Meta
from spliter.pipeline._calls.reductions import Nothing, Reduction
from spliter.pipeline._calls.split_types import ROWS, SplitType, Unknown


class Along:
    """Reductions along some axes: of arrays cut by rows, also if these are no axis of theirs."""

    scratch = True
    data: tuple[str | int, ...] = (0,)
    positional = 1

    def __init__(self, *steps: Any, options: str = "dtype keepdims", takes_start: bool = False):
        self.options = frozenset({"axis", *options.split()})
        merge, partial, finish = (*steps, None, None)[:3]
        flags = {"takes_start": takes_start, "commutative": True}
        self.reduction = Reduction(partial, merge, finish, **flags)

    def axes(self, call: Call) -> tuple[int, ...]:
        """Return the axes, from 0 on; raises if the array has no such axis."""
        ndim = len(_shape(call))
        axis = call.kwargs.get("axis")
        if axis is None:
            return tuple(range(ndim))
        try:
            numbers = axis if isinstance(axis, tuple) else (operator.index(axis),)
        except TypeError:
            raise UnforeseenResultError from None
        return normalize_axis_tuple(numbers, ndim, allow_duplicate=True)  # sums refuse those

    def typings(self, call: Call, known: tuple[SplitType | None, ...]) -> Iterable[Typing]:
        """Return the typing by rows."""
        length, kind = _shape(call)[0] if _shape(call) else 0, known[0] or ROWS
        is_unknown = isinstance(kind, Unknown)
        if len(call.inputs) > 1 or not (is_unknown or (kind == ROWS and length)):
            return
        is_own = 0 in self.axes(call)
        has_positions = not isinstance(kind, Unknown) or kind.has_positions
        if is_own and self.reduction.takes_start and not has_positions:
            return
        if is_in_order(call.inputs[0].data):
            yield Typing((kind,), (self.reduction if is_own else kind,), length)

    def metas(self, call: Call) -> tuple[Meta, ...]:
        """Return the shape without the axes."""
        axes = self.axes(call)
        kept: tuple[int, ...] = (1,) if call.kwargs.get("keepdims", False) else ()
        shape: list[int | None] = []
        for at, extent in enumerate(_shape(call)):
            shape += kept if at in axes else (extent,)
        exact = cast(ArrayMeta, call.inputs[0].meta).exact
        return tuple([ArrayMeta(tuple(shape), dtype, exact) for dtype in dtypes_of(call)])


def _shape(call: Call) -> tuple[int | None, ...]:
    return cast(ArrayMeta, cast(Node, call.args[0]).meta).shape


@dataclass(frozen=True)
class Shifted(SplitType):
    """Rows of an array that move, as ``numpy.roll`` moves them."""

    shift: int

    def split(self, value: Any, start: int, stop: int) -> Any:
        """Return a view of the rows that move to a piece; a copy where they wrap around."""
        first = (start - self.shift) % len(value)
        wrapped = max(first + stop - start - len(value), 0)
        piece = value[first : first + stop - start - wrapped]
        if not wrapped:
            return piece
        return np.concatenate([piece, value[:wrapped]], dtype=value.dtype)  # else of native order


class Roll(Along):
    """``numpy.roll`` along one axis: along that of the rows, if its argument exists.

    Pieces of the result are then views of the argument. It is no result of the same stage, and its
    memory none that is reused.
    """

    def typings(self, call: Call, known: tuple[SplitType | None, ...]) -> Iterable[Typing]:
        """Return the typing by rows."""
        for typing in super().typings(call, known):
            (kind,) = typing.inputs
            if 0 not in self.axes(call):
                yield Typing((kind,), (kind,), typing.length, _rolled)
            elif kind == ROWS:
                data = call.inputs[0].data
                has_gaps = isinstance(data, np.ndarray) and not data.flags.c_contiguous
                moved = Shifted(call.kwargs["shift"])
                yield Typing((moved,), (kind,), typing.length, _copied if has_gaps else _as_it_is)

    def metas(self, call: Call) -> tuple[Meta, ...]:
        """Return the meta of the argument."""
        if type(call.kwargs.get("shift")) is not int or len(self.axes(call)) != 1:
            raise UnforeseenResultError
        return (call.inputs[0].meta,)


def _as_it_is(a: Any, *args: Any, **kwargs: Any) -> Any:
    return a


def _copied(a: Any, *args: Any, **kwargs: Any) -> Any:
    """Return a copy, as the result has no gaps: some functions have other bits for strides."""
    return a.copy()


def _rolled(a: Any, shift: int, axis: int) -> Any:
    """Return what ``numpy.roll`` does, whose own Python takes longer than copying a piece."""
    parts = np.split(a, [-shift % a.shape[axis]], axis)
    return np.concatenate(parts[::-1], axis, dtype=a.dtype)


def _count_along(piece: Any, axes: Any) -> int:
    if axes is None:
        return int(piece.size)
    numbers = axes if isinstance(axes, tuple) else (axes,)
    return int(np.prod([piece.shape[axis] for axis in numbers]))


def _mean_partial(a: Any, axis: Any = None, **kwargs: Any) -> Any:
    dtype = np.mean(np.ones(1, a.dtype)).dtype
    # Times have units, which sums keep; half floats would overflow.
    wide = {"m": None, "e": np.dtype("f4")}.get(dtype.char, dtype)
    return np.sum(a, axis=axis, dtype=wide, **kwargs), _count_along(a, axis), dtype


def _mean_merge(one: Any, other: Any) -> Any:
    return one[0] + other[0], one[1] + other[1], one[2]


def _mean_finish(last: Any) -> Any:
    total, count, dtype = last
    return (total / count).astype(dtype)


def _var_partial(a: Any, axis: Any = None, *, ddof: float = 0, **kwargs: Any) -> Any:
    """Return count, mean and sum of squared distances from it along an axis, and `ddof`."""
    count = _count_along(a, axis)
    if not count:  # of no rows, which has no mean
        zeros = np.sum(a, axis=axis, dtype=np.var(np.ones(1, a.dtype)).dtype, **kwargs)
        return Nothing(functools.partial(tuple, (0, zeros, zeros, ddof)))
    mean = np.mean(a, axis=axis, keepdims=True)
    squares = np.var(a, axis=axis, **kwargs) * count
    return count, mean.reshape(np.shape(squares)), squares, ddof


def _var_merge(one: Any, other: Any) -> Any:
    """Merge as Chan, Golub and LeVeque, "Algorithms for computing the sample variance" (1983)."""
    count = one[0] + other[0]
    step = other[1] - one[1]
    mean = one[1] + step * (other[0] / count)
    squares = one[2] + other[2] + (step * np.conj(step)).real * (one[0] * other[0] / count)
    return count, mean, squares, one[3]


def _var_finish(last: Any) -> Any:
    count, _, squares, ddof = last
    if count <= ddof:  # as NumPy does
        warnings.warn("Degrees of freedom <= 0 for slice", RuntimeWarning, stacklevel=2)
    return (squares / max(count - ddof, 0)).astype(squares.dtype)[()]


def _std_finish(last: Any) -> Any:
    return np.sqrt(_var_finish(last))


def _arg_partial(
    best: Callable[..., Any], a: Any, axis: Any = None, *, start: int = 0, keepdims: bool = False
) -> Any:
    at = best(a, axis=axis, keepdims=True)
    if axis is None:
        values = a.reshape(-1)[at]
        shift = start * (a.size // len(a))
    else:
        values, shift = np.take_along_axis(a, at, axis), start
    return values, at + shift, axis, keepdims


def _arg_merge(better: Callable[..., Any], one: Any, other: Any) -> Any:
    """Merge in any order: of equal values, the first one counts; a NaN is better than any other."""
    (value, at, *rest), (value2, at2, *_) = one, other
    is_nan, is_nan2 = value != value, value2 != value2  # noqa: PLR0124 -- true for NaN and NaT
    earlier = ((value2 == value) | (is_nan2 & is_nan)) & (at2 < at)
    later = earlier | (is_nan2 & ~is_nan) | (better(value2, value) & ~is_nan)
    return np.where(later, value2, value), np.where(later, at2, at), *rest


def _arg_finish(last: Any) -> Any:
    _, at, axis, keepdims = last
    return at if keepdims else at.squeeze(axis)[()]


def _arg(best: Callable[..., Any], better: Callable[..., Any]) -> Along:
    merge, partial = functools.partial(_arg_merge, better), functools.partial(_arg_partial, best)
    return Along(merge, partial, _arg_finish, options="keepdims", takes_start=True)


def _extreme_partial(fn: Callable[..., Any], a: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the extreme; of no items, such as a filter may leave, what raises if all are such."""
    call = functools.partial(fn, a, *args, **kwargs)
    return call() if a.size else Nothing(call)


_OF_FIRST: Final[tuple[Any, ...]] = (
    *(np.sinc, np.i0, np.fix, np.isneginf, np.isposinf, np.isreal, np.iscomplex),
)

FUNCTIONS: Final[Mapping[Any, Along | Elementwise]] = {
    # Reductions.
    np.sum: Along(np.add),
    np.prod: Along(np.multiply),
    np.min: Along(np.minimum, functools.partial(_extreme_partial, np.min)),
    np.max: Along(np.maximum, functools.partial(_extreme_partial, np.max)),
    np.any: Along(np.logical_or),
    np.all: Along(np.logical_and),
    np.count_nonzero: Along(np.add),
    np.nansum: Along(np.add),
    np.nanprod: Along(np.multiply),
    np.mean: Along(_mean_merge, _mean_partial, _mean_finish, options="keepdims"),
    np.var: Along(_var_merge, _var_partial, _var_finish, options="keepdims ddof"),
    np.std: Along(_var_merge, _var_partial, _std_finish, options="keepdims ddof"),
    np.argmin: _arg(np.argmin, np.less),
    np.argmax: _arg(np.argmax, np.greater),
    # Element by element.
    **dict.fromkeys(_OF_FIRST, Elementwise((0,))),
    **dict.fromkeys((np.round, np.around), Elementwise((0,), "decimals")),
    np.angle: Elementwise((0,), "deg"),
    np.nan_to_num: Elementwise((0, "nan", "posinf", "neginf"), "nan posinf neginf"),
    np.interp: Elementwise((0,), "left right period", positional=3),
    np.digitize: Elementwise((0,), "right", positional=2),
    np.isin: Elementwise((0,), "assume_unique invert kind", positional=2),
    np.full_like: Elementwise((0, 1), "dtype", positional=2),
    **dict.fromkeys((np.zeros_like, np.ones_like, np.copy), Elementwise((0,), "dtype")),
    np.where: Elementwise((0, 1, 2), positional=3),
    np.clip: Elementwise((0, "a_min", "a_max", "min", "max"), "a_min a_max min max"),
    np.isclose: Elementwise((0, 1, "rtol", "atol"), "rtol atol equal_nan", positional=2),
    np.searchsorted: Elementwise((1,), "side sorter", positional=2),
    np.roll: Roll(max, options="shift"),
}
"""By what NumPy passes to ``__array_function__``."""
