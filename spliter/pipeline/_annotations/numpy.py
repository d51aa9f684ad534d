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
from spliter.pipeline._annotations.elementwise import Elementwise, Like, axes_of, meta_by_example
from spliter.pipeline._calls.calls import Call, Node, Typing, UnforeseenResultError
from spliter.pipeline._calls.metas import ArrayMeta, Meta
from spliter.pipeline._calls.reductions import Reduction
from spliter.pipeline._calls.split_types import Axis, SplitType, Unknown


class Along:
    """Functions that work along some axes, so that the argument may be cut along the others.

    Parameters
    ----------
    default : int or None
        Axis without an argument; ``None`` for all of them, which only reductions may be.
    options : str
        Names of other arguments that a call may have besides `axis`, between spaces.
    drops : bool
        Whether the result lacks the axes.
    reduction : Reduction, optional
        Combines results along the axis that is cut; without it, that is none of the function's own.
        If it takes the position of the first item, several axes are cut along the first one alone,
        and not at all for the rows of a filter.
    """

    scratch = True
    data: tuple[str | int, ...] = (0,)
    positional = 1

    def __init__(
        self,
        default: int | None,
        options: str = "",
        *,
        drops: bool = False,
        reduction: Reduction | None = None,
    ) -> None:
        self.default = default
        self.options = frozenset({"axis", *options.split()})
        self.drops = drops
        self.reduction = reduction

    def axes(self, call: Call) -> tuple[int, ...] | None:
        """Return the axes, from 0 on; ``None`` if the shape of the result does not follow.

        Raises
        ------
        numpy.exceptions.AxisError
            If the array has no such axis.
        UnforeseenResultError
            If the arguments are not those of one result for each place.
        """
        if isinstance(call.kwargs.get("q"), _SEVERAL):  # several percentiles
            raise UnforeseenResultError
        ndim = len(_shape(call))
        axis = call.kwargs.get("axis", self.default)
        if axis is None:
            return tuple(range(ndim)) if self.reduction or ndim == 1 else None
        if not ndim:
            return None  # some functions take the axes 0 and -1 of a number, others do not
        try:
            numbers = axis if isinstance(axis, tuple) else (operator.index(axis),)
        except TypeError:
            raise UnforeseenResultError from None
        return normalize_axis_tuple(numbers, ndim, allow_duplicate=True)  # sums refuse those

    def typings(self, call: Call, known: tuple[SplitType | None, ...]) -> Iterable[Typing]:
        """Return one typing for each axis along which the argument may be cut."""
        axes = self.axes(call)
        if axes is None or len(call.inputs) != 1:
            return
        for kind in self._cuts(call, known[0], axes):
            typing = self._cut_along(kind, call, axes)
            if typing is not None:
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
        if takes_start and len(axes) > 1:
            return (Axis(0),)
        data = cast(Node, call.args[0]).data
        in_memory = isinstance(data, np.ndarray)
        return map(Axis, axes_of(data.strides) if in_memory else range(len(shape)))

    def _cut_along(self, kind: Axis | Unknown, call: Call, axes: tuple[int, ...]) -> Typing | None:
        """Return the typing for an argument that is cut in a way; ``None`` if there is none."""
        at = kind.axis if isinstance(kind, Axis) else 0
        result: SplitType | None = kind
        if at in axes:
            result = self.reduction
        elif isinstance(kind, Axis) and self.drops and not call.kwargs.get("keepdims", False):
            result = Axis(at - sum(each < at for each in axes))
        return None if result is None else Typing((kind,), (result,), _shape(call)[at])

    def metas(self, call: Call) -> tuple[Meta, ...]:
        """Return the shape, without the axes if they are dropped."""
        axes = self.axes(call)
        if axes is None:
            return (None,)
        kept: tuple[int, ...] = (1,) if call.kwargs.get("keepdims", False) else ()
        shape: list[int | None] = []
        for at, extent in enumerate(_shape(call)):
            shape += kept if self.drops and at in axes else (extent,)
        return (meta_by_example(call, tuple(shape)),)


class Moments(Along):
    """Means and variances: whole if the call asks for a dtype that is not for fractions."""

    def typings(self, call: Call, known: tuple[SplitType | None, ...]) -> Iterable[Typing]:
        """Return one typing for each axis along which the argument may be cut."""
        dtype = call.kwargs.get("dtype")
        fits = dtype is None or (np.dtype(dtype).kind in "fc" and _dtype(call).kind != "m")
        return super().typings(call, known) if fits else ()


_SEVERAL: Final = (Node, list, tuple, np.ndarray)


def _shape(call: Call) -> tuple[int | None, ...]:
    return cast(ArrayMeta, cast(Node, call.args[0]).meta).shape


def _dtype(call: Call) -> np.dtype[Any]:
    return cast(ArrayMeta, cast(Node, call.args[0]).meta).dtype


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
    return along(default, "dtype keepdims ddof", drops=True, reduction=kind)


@dataclass(frozen=True)
class Shifted(SplitType):
    """Items of an array that move along the axis that is cut, as ``numpy.roll`` moves them.

    Parameters
    ----------
    axis : int
    shift : int
        Positions that each item moves.
    """

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

    def __init__(self) -> None:
        super().__init__(None, "shift")

    def _cut_along(self, kind: Axis | Unknown, call: Call, axes: tuple[int, ...]) -> Typing | None:
        """Return the typing for an argument that is cut along an axis."""
        if not self._is_along_one(call, axes) or (isinstance(kind, Unknown) and 0 in axes):
            return None
        if isinstance(kind, Axis) and kind.axis in axes:
            moved, data = Shifted(kind.axis, call.kwargs["shift"]), call.inputs[0].data
            fn = _as_it_is if data is None or data.flags.forc else _in_order
            return Typing((moved,), (kind,), _shape(call)[kind.axis], fn)
        typing = super()._cut_along(kind, call, axes)
        return typing and typing._replace(fn=_rolled)

    def _is_along_one(self, call: Call, axes: tuple[int, ...]) -> bool:
        return type(call.kwargs.get("shift")) is int and len(axes) == 1

    def metas(self, call: Call) -> tuple[Meta, ...]:
        """Return the meta of the argument."""
        axes = self.axes(call)
        if axes is not None and self._is_along_one(call, axes):
            return (call.inputs[0].meta,)
        return super().metas(call)


def _as_it_is(a: Any, *args: Any, **kwargs: Any) -> Any:
    return a


def _in_order(a: Any, *args: Any, **kwargs: Any) -> Any:
    """Return a copy, as the result has no gaps: some functions have other bits for strides."""
    return a.copy("K")


def _rolled(a: Any, shift: int, axis: int) -> Any:
    """Return what ``numpy.roll`` does, whose own Python takes longer than copying a piece."""
    extent = a.shape[axis]
    first = -shift % extent
    whole = Axis(axis)
    parts = whole.split(a, first, extent), whole.split(a, 0, first)
    return np.concatenate(parts, axis, dtype=a.dtype)


def _count_along(piece: Any, axes: Any) -> int:
    if axes is None:
        return int(piece.size)
    numbers = axes if isinstance(axes, tuple) else (axes,)
    return int(np.prod([piece.shape[axis] for axis in numbers]))


def _of_no_rows(fn: Callable[..., Any], like: Any) -> Any:
    """Return the NaNs of a function for no rows, with its warnings."""
    dtype = like.dtype if like.dtype.kind == "m" else np.result_type(like, np.float16)
    return fn(np.empty((0, *like.shape), dtype), axis=0)


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
    if not count:
        return _of_no_rows(np.mean, total).astype(dtype)
    return (total / count).astype(dtype)


def var_partial(
    a: Any, axis: Any = None, dtype: Any = None, *, ddof: float = 0, **kwargs: Any
) -> Any:
    """Return count, mean and sum of squared distances from it along an axis, and `ddof`."""
    kept = {"axis": axis, "dtype": dtype, "keepdims": True}
    if not _count_along(a, axis):
        return 0, np.sum(a, **kept), np.sum(a, axis=axis, dtype=dtype, **kwargs), ddof
    mean = np.mean(a, **kept)
    squares = np.var(a, axis=axis, dtype=dtype, **kwargs) * _count_along(a, axis)
    if not kwargs.get("keepdims", False):
        mean = mean.reshape(np.shape(squares))
    return _count_along(a, axis), mean, squares, ddof


def var_merge(one: Any, other: Any) -> Any:
    """Merge as Chan, Golub and LeVeque, "Algorithms for computing the sample variance" (1983)."""
    if not one[0] or not other[0]:
        return one if one[0] else other
    count = one[0] + other[0]
    step = other[1] - one[1]
    mean = one[1] + step * (other[0] / count)
    squares = one[2] + other[2] + (step * np.conj(step)).real * (one[0] * other[0] / count)
    return count, mean, squares, one[3]


def _var_finish(last: Any) -> Any:
    count, _, squares, ddof = last
    if not count:
        return _of_no_rows(np.var, squares)
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


def extreme_partial(fn: Callable[..., Any], a: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the extreme in a list; of no items, such as a filter may leave, the arguments."""
    return (None, [fn(a, *args, **kwargs)]) if a.size else ((a, args, kwargs), [])


def extreme_merge(one: Any, other: Any) -> Any:
    """Put the extremes of two pieces in one list."""
    return one[0] or other[0], one[1] + other[1]


def extreme_finish(fn: Callable[..., Any], ufunc: np.ufunc, last: Any) -> Any:
    """Return the extreme of all pieces; of no items what the function returns or raises."""
    call, found = last
    if found:
        return functools.reduce(ufunc, found)
    a, args, kwargs = call
    return fn(a, *args, **kwargs)


def _extreme(fn: Callable[..., Any], ufunc: np.ufunc, default: int | None = None) -> Along:
    return _reduce(
        extreme_merge,
        functools.partial(extreme_partial, fn),
        functools.partial(extreme_finish, fn, ufunc),
        default=default,
    )


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

_DROPS_AXIS: Final[tuple[Any, ...]] = (
    *(np.median, np.ptp, np.nanmedian, np.nanmin, np.nanmax, np.nanargmin, np.nanargmax),
)
"""Functions with one result for each line along an axis."""

_DROPS_AND_ROUNDS: Final[tuple[Any, ...]] = (np.nanmean, np.nanvar, np.nanstd)
"""Such ones whose result has a dtype of its own."""

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
    np.var: _reduce(var_merge, var_partial, _var_finish, along=Moments),
    np.std: _reduce(var_merge, var_partial, _std_finish, along=Moments),
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
    np.isin: Like((0,), "assume_unique invert kind", positional=2),
    np.full_like: Like((0, 1), "dtype", positional=2),
    **dict.fromkeys((np.zeros_like, np.ones_like, np.copy), Like((0,), "dtype")),
    np.where: Elementwise((0, 1, 2), positional=3),
    np.clip: Elementwise((0, "a_min", "a_max", "min", "max"), "a_min a_max min max"),
    np.isclose: Elementwise((0, 1, "rtol", "atol"), "rtol atol equal_nan", positional=2),
    np.searchsorted: Elementwise((1,), "side sorter", positional=2),
    # Along one axis.
    **dict.fromkeys((np.sort, np.argsort), Along(-1, "kind stable")),
    **dict.fromkeys((np.cumsum, np.cumprod, np.nancumsum, np.nancumprod), Along(None, "dtype")),
    **dict.fromkeys(_DROPS_AXIS, Along(None, "keepdims", drops=True)),
    **dict.fromkeys(_DROPS_AND_ROUNDS, Along(None, "dtype ddof keepdims", drops=True)),
    **dict.fromkeys((np.percentile, np.quantile), Along(None, "q method keepdims", drops=True)),
    np.linalg.norm: Along(None, "ord keepdims", drops=True),
    np.roll: Roll(),
    **dict.fromkeys((np.fft.fft, np.fft.ifft), Along(-1, "norm")),
    np.unwrap: Along(-1, "discont period"),
}
"""By what NumPy passes to ``__array_function__``, and by methods ``reduce`` of ufuncs."""
