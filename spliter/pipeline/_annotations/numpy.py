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

from spliter.pipeline._annotations.arguments import FunctionAnnotation
from spliter.pipeline._annotations.elementwise import Elementwise, is_in_order, meta_by_example
from spliter.pipeline._calls.calls import Call, Node, Typing, UnforeseenResultError
from spliter.pipeline._calls.metas import ArrayMeta, Meta
from spliter.pipeline._calls.reductions import Nothing, Reduction
from spliter.pipeline._calls.split_types import Axis, SplitType, Unknown


class Along:
    """Functions along some axes, with which the array may be cut along the others.

    Along one of their own, partial results are combined by a reduction; without it they are not.
    A reduction that takes the position of the first item is for one axis, or for rows.
    """

    scratch = True
    data: tuple[str | int, ...] = (0,)
    positional = 1

    def __init__(
        self, options: str, reduction: Reduction | None = None, default: int | None = None
    ) -> None:
        self.options = frozenset({"axis", *options.split()})
        self.reduction = reduction
        self.default = default

    def axes(self, call: Call) -> tuple[int, ...]:
        """Return the axes, from 0 on; raises if the array has no such axis."""
        ndim = len(_shape(call))
        axis = call.kwargs.get("axis", self.default)
        if axis is None:
            return tuple(range(ndim))
        try:
            numbers = axis if isinstance(axis, tuple) else (operator.index(axis),)
        except TypeError:
            raise UnforeseenResultError from None
        return normalize_axis_tuple(numbers, ndim, allow_duplicate=True)  # sums refuse those

    def typings(self, call: Call, known: tuple[SplitType | None, ...]) -> Iterable[Typing]:
        """Return one typing for each axis along which the argument may be cut."""
        if len(call.inputs) == 1 and is_in_order(call.inputs[0].data):
            axes = self.axes(call)
            for kind in self._cuts(call, known[0], axes):
                if (typing := self._cut_along(kind, call, axes)) is not None:
                    yield typing

    def _cuts(
        self, call: Call, known: SplitType | None, axes: tuple[int, ...]
    ) -> Iterable[Axis | Unknown]:
        """Return how the argument may be cut, the best way first."""
        shape = _shape(call)
        takes_start = self.reduction is not None and self.reduction.takes_start
        if isinstance(known, Unknown):
            return () if takes_start and 0 in axes and not known.has_positions else (known,)
        if None in shape or 0 in shape:
            return ()
        return (Axis(0),) if takes_start and len(axes) > 1 else map(Axis, range(len(shape)))

    def _cut_along(self, kind: Axis | Unknown, call: Call, axes: tuple[int, ...]) -> Typing | None:
        """Return the typing for an argument that is cut in a way; ``None`` if there is none."""
        at = kind.axis if isinstance(kind, Axis) else 0
        result: SplitType | None = kind
        if at in axes:
            result = self.reduction
        elif isinstance(kind, Axis) and not call.kwargs.get("keepdims", False):
            result = Axis(at - sum(each < at for each in axes))
        return None if result is None else Typing((kind,), (result,), _shape(call)[at])

    def metas(self, call: Call) -> tuple[Meta, ...]:
        """Return the shape without the axes."""
        axes = self.axes(call)
        kept: tuple[int, ...] = (1,) if call.kwargs.get("keepdims", False) else ()
        shape: list[int | None] = []
        for at, extent in enumerate(_shape(call)):
            shape += kept if at in axes else (extent,)
        return (meta_by_example(call, tuple(shape)),)


class Moments(Along):
    """Means and variances: whole if the call asks for a dtype that is not for fractions."""

    def typings(self, call: Call, known: tuple[SplitType | None, ...]) -> Iterable[Typing]:
        """Return one typing for each axis along which the argument may be cut."""
        dtype, meta = call.kwargs.get("dtype"), cast(ArrayMeta, call.inputs[0].meta)
        fits = dtype is None or (np.dtype(dtype).kind in "fc" and meta.dtype.kind != "m")
        return super().typings(call, known) if fits else ()


def _shape(call: Call) -> tuple[int | None, ...]:
    return cast(ArrayMeta, cast(Node, call.args[0]).meta).shape


def _reduce(
    merge: Callable[[Any, Any], Any],
    partial: Callable[..., Any] | None = None,
    finish: Callable[[Any], Any] | None = None,
    *,
    default: int | None = None,
    takes_start: bool = False,
    along: type[Along] = Along,
) -> Along:
    kind = Reduction(partial, merge, finish, takes_start=takes_start, commutative=True)
    return along("dtype keepdims ddof", kind, default)


@dataclass(frozen=True)
class Shifted(SplitType):
    """Items of an array that move along the axis that is cut, as ``numpy.roll`` moves them."""

    axis: int
    shift: int

    def length(self, value: Any) -> int:
        """Return the extent along the axis."""
        return int(value.shape[self.axis])

    def split(self, value: Any, start: int, stop: int) -> Any:
        """Return a view of the items that move to a piece; a copy where they wrap around."""
        first = (start - self.shift) % self.length(value)
        wrapped = max(first + stop - start - self.length(value), 0)
        whole = Axis(self.axis)
        piece = whole.split(value, first, first + stop - start - wrapped)
        if not wrapped:
            return piece
        parts = piece, whole.split(value, 0, wrapped)
        return np.concatenate(parts, self.axis, dtype=value.dtype)  # else of native byte order


class Roll(Along):
    """``numpy.roll`` along one axis: cut along others or, if its argument exists, along that one.

    Pieces of the result are then views of the argument. It is no result of the same stage, and its
    memory none that is reused.
    """

    def _cut_along(self, kind: Axis | Unknown, call: Call, axes: tuple[int, ...]) -> Typing | None:
        """Return the typing for an argument that is cut along an axis."""
        at = kind.axis if isinstance(kind, Axis) else 0
        if not self._is_along_one(call) or (isinstance(kind, Unknown) and 0 in axes):
            return None
        if at not in axes:
            return Typing((kind,), (kind,), _shape(call)[at], _rolled)
        data = call.inputs[0].data
        fn = _copied if isinstance(data, np.ndarray) and not data.flags.c_contiguous else _as_it_is
        return Typing((Shifted(at, call.kwargs["shift"]),), (kind,), _shape(call)[at], fn)

    def _is_along_one(self, call: Call) -> bool:
        return type(call.kwargs.get("shift")) is int and len(self.axes(call)) == 1

    def metas(self, call: Call) -> tuple[Meta, ...]:
        """Return the meta of the argument."""
        if not self._is_along_one(call):
            raise UnforeseenResultError
        return (call.inputs[0].meta,)


def _as_it_is(a: Any, *args: Any, **kwargs: Any) -> Any:
    return a


def _copied(a: Any, *args: Any, **kwargs: Any) -> Any:
    """Return a copy, as the result has no gaps: some functions have other bits for strides."""
    return a.copy()


def _rolled(a: Any, shift: int, axis: int | None = None) -> Any:
    """Return what ``numpy.roll`` does, whose own Python takes longer than copying a piece."""
    at = axis or 0
    first = -shift % a.shape[at]
    whole = Axis(at)
    parts = whole.split(a, first, a.shape[at]), whole.split(a, 0, first)
    return np.concatenate(parts, at, dtype=a.dtype)


def _count_along(piece: Any, axes: Any) -> int:
    if axes is None:
        return int(piece.size)
    numbers = axes if isinstance(axes, tuple) else (axes,)
    return int(np.prod([piece.shape[axis] for axis in numbers]))


def _mean_partial(a: Any, axis: Any = None, dtype: Any = None, **kwargs: Any) -> Any:
    result = np.dtype(dtype) if dtype is not None else np.mean(np.ones(1, a.dtype)).dtype
    wide = np.dtype("f4") if result == np.float16 and dtype is None else result
    # Times have units, which sums keep.
    total = np.sum(a, axis=axis, dtype=None if wide.kind == "m" else wide, **kwargs)
    return total, _count_along(a, axis), result


def _mean_merge(one: Any, other: Any) -> Any:
    return one[0] + other[0], one[1] + other[1], one[2]


def _mean_finish(last: Any) -> Any:
    total, count, dtype = last
    return (total / count).astype(dtype)


def _var_partial(
    a: Any, axis: Any = None, dtype: Any = None, *, ddof: float = 0, **kwargs: Any
) -> Any:
    """Return count, mean and sum of squared distances from it along an axis, and `ddof`."""
    count = _count_along(a, axis)
    if not count:  # of no rows, which has no mean
        zeros = np.sum(a, axis=axis, dtype=dtype or np.var(np.ones(1, a.dtype)).dtype, **kwargs)
        return Nothing(functools.partial(tuple, (0, zeros, zeros, ddof)))
    mean = np.mean(a, axis=axis, dtype=dtype, keepdims=True)
    squares = np.var(a, axis=axis, dtype=dtype, **kwargs) * count
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
    return _reduce(
        functools.partial(_arg_merge, better),
        functools.partial(_arg_partial, best),
        _arg_finish,
        takes_start=True,
    )


def _extreme_partial(fn: Callable[..., Any], a: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the extreme; of no items, such as a filter may leave, what raises if all are such."""
    call = functools.partial(fn, a, *args, **kwargs)
    return call() if a.size else Nothing(call)


def _extreme(fn: Callable[..., Any], ufunc: np.ufunc, default: int | None = None) -> Along:
    return _reduce(ufunc, functools.partial(_extreme_partial, fn), default=default)


_MERGEABLE: Final[tuple[Any, ...]] = (
    *(np.add, np.multiply, np.logical_or, np.logical_and),
    *(np.bitwise_or, np.bitwise_and, np.bitwise_xor),
)
"""Ufuncs that merge what they have reduced."""

_EXTREMES: Final[tuple[Any, ...]] = (np.minimum, np.maximum, np.fmin, np.fmax)

_OF_FIRST: Final[tuple[Any, ...]] = (
    *(np.sinc, np.i0, np.fix, np.isneginf, np.isposinf, np.isreal, np.iscomplex),
)
"""Functions of the elements of their argument."""

FUNCTIONS: Final[Mapping[Any, FunctionAnnotation]] = {
    # Reductions.
    np.sum: _reduce(np.add),
    np.prod: _reduce(np.multiply),
    np.min: _extreme(np.min, np.minimum),
    np.max: _extreme(np.max, np.maximum),
    np.any: _reduce(np.logical_or),
    np.all: _reduce(np.logical_and),
    np.count_nonzero: _reduce(np.add),
    np.nansum: _reduce(np.add),
    np.nanprod: _reduce(np.multiply),
    np.mean: _reduce(_mean_merge, _mean_partial, _mean_finish, along=Moments),
    np.var: _reduce(_var_merge, _var_partial, _var_finish, along=Moments),
    np.std: _reduce(_var_merge, _var_partial, _std_finish, along=Moments),
    np.argmin: _arg(np.argmin, np.less),
    np.argmax: _arg(np.argmax, np.greater),
    # Methods of ufuncs, along the first axis by default.
    **{each.reduce: _reduce(each, default=0) for each in _MERGEABLE},
    **{each.reduce: _extreme(each.reduce, each, 0) for each in _EXTREMES},
    # Element by element.
    **dict.fromkeys(_OF_FIRST, Elementwise((0,))),
    **dict.fromkeys((np.round, np.around), Elementwise((0,), "decimals")),
    np.angle: Elementwise((0,), "deg"),
    np.nan_to_num: Elementwise((0, "nan", "posinf", "neginf"), "nan posinf neginf"),
    np.interp: Elementwise((0,), "left right period", positional=3),
    np.digitize: Elementwise((0,), "right", positional=2),
    np.isin: Elementwise((0,), "assume_unique invert kind", positional=2),
    np.full_like: Elementwise((0,), "dtype", positional=2),
    **dict.fromkeys((np.zeros_like, np.ones_like, np.copy), Elementwise((0,), "dtype")),
    np.where: Elementwise((0, 1, 2), positional=3),
    np.clip: Elementwise((0, "a_min", "a_max", "min", "max"), "a_min a_max min max"),
    np.isclose: Elementwise((0, 1, "rtol", "atol"), "rtol atol equal_nan", positional=2),
    np.searchsorted: Elementwise((1,), "side sorter", positional=2),
    np.roll: Roll("shift"),
}
"""By what NumPy passes to ``__array_function__``, and by methods ``reduce`` of ufuncs."""
