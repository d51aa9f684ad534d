"""Annotations of NumPy's functions. Ufuncs, SciPy's too, need none: they describe themselves."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np

from spliter.pipeline._elementwise import Elementwise, meta_by_example
from spliter.pipeline._graph import Annotation, ArrayMeta, Call, Meta, Node, Typing
from spliter.pipeline._types import Axis, Reduction, SplitType, Unknown


def axes_of(call: Call, default: int | None) -> tuple[int, ...] | None:
    """Return the axes that a call works along, from 0 on; ``None`` if they are not plain numbers.

    Parameters
    ----------
    call : Call
        With an array as the first argument; the second one, or the keyword `axis`, is the axis.
    default : int or None
        Axis without an argument; ``None`` for all of them.
    """
    ndim = len(_shape(call))
    axis = call.kwargs.get("axis", call.args[1] if len(call.args) > 1 else default)
    if axis is None:
        return tuple(range(ndim))
    try:
        numbers = tuple(axis) if isinstance(axis, tuple) else (operator.index(axis),)
        return tuple(number + ndim if number < 0 else number for number in numbers)
    except TypeError:
        return None


def _shape(call: Call) -> tuple[int | None, ...]:
    return cast(ArrayMeta, cast(Node, call.args[0]).meta).shape


def _result_axis(axis: int, axes: tuple[int, ...], kept: bool) -> int:
    """Return the axis of the result along which it is cut if the argument is along `axis`."""
    return axis if kept else axis - sum(each < axis for each in axes)


class Reduce:
    """Reductions along axes: combined over the axis that is cut, or one result for each item.

    Parameters
    ----------
    partial, merge, finish
        As of :class:`spliter.pipeline.Reduction`.
    default : int or None
        Axis without an argument.
    takes_start : bool
        Whether `partial` gets the position of its first item. Over several axes such an array is
        cut along the first one alone, and not at all if its length is unknown.
    """

    scratch = True
    keywords: Final = frozenset({"axis", "dtype", "keepdims", "ddof"})

    def __init__(
        self,
        merge: Callable[[Any, Any], Any],
        partial: Callable[..., Any] | None = None,
        finish: Callable[[Any], Any] | None = None,
        *,
        default: int | None = None,
        takes_start: bool = False,
    ) -> None:
        self.kind = Reduction(partial, merge, finish, takes_start=takes_start)
        self.default = default

    def typings(self, call: Call, known: tuple[SplitType | None, ...]) -> Iterable[Typing]:
        """Return one typing for each axis of the argument."""
        axes = axes_of(call, self.default)
        if axes is None or len(call.inputs) != 1 or call.kwargs.keys() - self.keywords:
            return
        shape = _shape(call)
        kept = bool(call.kwargs.get("keepdims", False))
        kind: SplitType
        if isinstance(known[0], Unknown):
            kind = self.kind if 0 in axes else known[0]
            if not (0 in axes and self.kind.takes_start):
                yield Typing((known[0],), (kind,), None)
            return
        if None in shape or 0 in shape:
            return
        for axis in self._axes(call, len(shape), axes):
            kind = self.kind if axis in axes else Axis(_result_axis(axis, axes, kept))
            yield Typing((Axis(axis),), (kind,), shape[axis])

    def _axes(self, call: Call, ndim: int, axes: tuple[int, ...]) -> Iterable[int]:
        if self.kind.takes_start and len(axes) > 1:
            return (0,)
        data = cast(Node, call.args[0]).data
        fortran = isinstance(data, np.ndarray) and data.flags.f_contiguous and ndim > 1
        return reversed(range(ndim)) if fortran and not data.flags.c_contiguous else range(ndim)

    def metas(self, call: Call) -> tuple[Meta, ...]:
        """Return the shape without the reduced axes."""
        axes = axes_of(call, self.default)
        shape = _shape(call)
        if axes is None:
            return (None,)
        for axis in axes:
            if not 0 <= axis < len(shape):
                raise np.exceptions.AxisError(axis - (axis < 0) * len(shape), len(shape))
        if call.kwargs.get("keepdims", False):
            rest = [1 if at in axes else extent for at, extent in enumerate(shape)]
        else:
            rest = [extent for at, extent in enumerate(shape) if at not in axes]
        return (meta_by_example(call, tuple(rest)),)


class Along:
    """Functions that work along one axis, so that the argument may be cut along the others.

    Parameters
    ----------
    default : int
        Axis without an argument.
    position : int
        Position of the argument `axis`.
    drops : bool
        Whether the result lacks the axis.
    """

    scratch = True
    keywords: Final = frozenset({"axis", "dtype", "kind", "keepdims"})

    def __init__(self, default: int | None, *, position: int = 1, drops: bool = False) -> None:
        self.default = default
        self.position = position
        self.drops = drops

    def typings(self, call: Call, known: tuple[SplitType | None, ...]) -> Iterable[Typing]:
        """Return one typing for each other axis."""
        axis, shape = self._axis(call), _shape(call)
        if axis is None or len(call.inputs) != 1 or call.kwargs.keys() - self.keywords:
            return
        dropped = (axis,) if self.drops and not call.kwargs.get("keepdims", False) else ()
        if isinstance(known[0], Unknown) and axis != 0:
            yield Typing((known[0],), (known[0],), None)
        for at in range(len(shape)):
            if at != axis and None not in shape and 0 not in shape:
                kind = Axis(_result_axis(at, dropped, kept=not dropped))
                yield Typing((Axis(at),), (kind,), shape[at])

    def metas(self, call: Call) -> tuple[Meta, ...]:
        """Return the shape, without the axis if it is dropped."""
        axis, shape = self._axis(call), _shape(call)
        if axis is None or not isinstance(call.inputs[0].meta, ArrayMeta):
            return (None,)
        if self.drops:
            kept = (1,) if call.kwargs.get("keepdims", False) else ()
            shape = shape[:axis] + kept + shape[axis + 1 :]
        return (meta_by_example(call, shape),)

    def _axis(self, call: Call) -> int | None:
        given = call.args[self.position] if len(call.args) > self.position else self.default
        axis = call.kwargs.get("axis", given)
        ndim = len(_shape(call))
        if not isinstance(axis, int) or isinstance(axis, bool) or not -ndim <= axis < ndim:
            return None
        return axis % ndim


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
        return np.concatenate([piece, whole.split(value, 0, wrapped)], self.axis)


class Roll(Along):
    """``numpy.roll`` along one axis: cut along others or, if its argument exists, along that one.

    Pieces of the result are then views of the argument. It is no result of the same stage, and its
    memory none that is reused.
    """

    def typings(self, call: Call, known: tuple[SplitType | None, ...]) -> Iterable[Typing]:
        """Return one typing for each axis."""
        axis, shape = self._axis(call), _shape(call)
        shift = call.args[1] if len(call.args) > 1 else None
        if axis is not None and type(shift) is int and None not in shape and 0 not in shape:
            moved = Typing((Shifted(axis, shift),), (Axis(axis),), shape[axis], _as_it_is)
            typings = [each._replace(fn=_rolled) for each in super().typings(call, known)]
            yield from (*typings[:axis], moved, *typings[axis:])

    def metas(self, call: Call) -> tuple[Meta, ...]:
        """Return the meta of the argument."""
        return (call.inputs[0].meta,) if self._axis(call) is not None else super().metas(call)


def _as_it_is(a: Any, *args: Any, **kwargs: Any) -> Any:
    return a


def _rolled(a: Any, shift: int, axis: int) -> Any:
    """Return what ``numpy.roll`` does, whose own Python takes longer than copying a piece."""
    extent = a.shape[axis]
    first = -shift % extent
    whole = Axis(axis)
    return np.concatenate([whole.split(a, first, extent), whole.split(a, 0, first)], axis)


class Like(Elementwise):
    """Functions such as ``zeros_like``: their result is like the first argument."""

    def __init__(self) -> None:
        super().__init__((0, "a", "prototype"))


def _count_along(piece: Any, axes: Any) -> int:
    if axes is None:
        return int(piece.size)
    numbers = axes if isinstance(axes, tuple) else (axes,)
    return int(np.prod([piece.shape[axis] for axis in numbers]))


def _mean_partial(a: Any, axis: Any = None, dtype: Any = None, **kwargs: Any) -> Any:
    result = np.dtype(dtype) if dtype is not None else np.mean(np.ones(1, a.dtype)).dtype
    wide = np.dtype("f4") if result == np.float16 and dtype is None else result
    total = np.sum(a, axis=axis, dtype=wide, **kwargs)
    return total, _count_along(a, axis), result


def _mean_merge(one: Any, other: Any) -> Any:
    return one[0] + other[0], one[1] + other[1], one[2]


def _mean_finish(last: Any) -> Any:
    total, count, dtype = last
    return (total / count).astype(dtype)


def _var_partial(
    a: Any, axis: Any = None, dtype: Any = None, *, ddof: float = 0, **kwargs: Any
) -> Any:
    kept = {"axis": axis, "dtype": dtype, "keepdims": True}
    mean = np.mean(a, **kept)
    squares = np.var(a, axis=axis, dtype=dtype, **kwargs) * _count_along(a, axis)
    if not kwargs.get("keepdims", False):
        mean = mean.reshape(np.shape(squares))
    return _count_along(a, axis), mean, squares, ddof


def _var_merge(one: Any, other: Any) -> Any:
    """Merge as Chan, Golub and LeVeque, "Algorithms for computing the sample variance" (1983)."""
    count = one[0] + other[0]
    step = other[1] - one[1]
    mean = one[1] + step * (other[0] / count)
    squares = one[2] + other[2] + (step * np.conj(step)).real * (one[0] * other[0] / count)
    return count, mean, squares, one[3]


def _var_finish(last: Any) -> Any:
    count, _, squares, ddof = last
    return (squares / max(count - ddof, 0)).astype(squares.dtype)[()]


def _std_finish(last: Any) -> Any:
    return np.sqrt(_var_finish(last))


def _arg_partial(
    best: Callable[..., Any], a: Any, axis: Any = None, *, start: int, keepdims: bool = False
) -> Any:
    at = best(a, axis=axis, keepdims=True)
    if axis is None:
        values = a.reshape(-1)[at]
        shift = start * (a.size // len(a))
    else:
        values, shift = np.take_along_axis(a, at, axis), start
    return values, at + shift, axis, keepdims


def _arg_merge(better: Callable[..., Any], one: Any, other: Any) -> Any:
    is_nan = one[0].dtype.kind in "fcmM"
    later = better(other[0], one[0])
    if is_nan:
        later = (later | np.isnan(other[0])) & ~np.isnan(one[0])
    return np.where(later, other[0], one[0]), np.where(later, other[1], one[1]), *one[2:]


def _arg_finish(last: Any) -> Any:
    _, at, axis, keepdims = last
    return at if keepdims else at.squeeze(axis)[()]


def _arg(best: Callable[..., Any], better: Callable[..., Any]) -> Reduce:
    return Reduce(
        functools.partial(_arg_merge, better),
        functools.partial(_arg_partial, best),
        _arg_finish,
        takes_start=True,
    )


FUNCTIONS: Final[dict[Any, Annotation]] = {
    # Reductions.
    np.sum: Reduce(np.add),
    np.prod: Reduce(np.multiply),
    np.min: Reduce(np.minimum),
    np.max: Reduce(np.maximum),
    np.any: Reduce(np.logical_or),
    np.all: Reduce(np.logical_and),
    np.count_nonzero: Reduce(np.add),
    np.nansum: Reduce(np.add),
    np.nanprod: Reduce(np.multiply),
    np.mean: Reduce(_mean_merge, _mean_partial, _mean_finish),
    np.var: Reduce(_var_merge, _var_partial, _var_finish),
    np.std: Reduce(_var_merge, _var_partial, _std_finish),
    np.argmin: _arg(np.argmin, np.less),
    np.argmax: _arg(np.argmax, np.greater),
    # Methods of ufuncs, along the first axis by default.
    np.add.reduce: Reduce(np.add, default=0),
    np.multiply.reduce: Reduce(np.multiply, default=0),
    np.minimum.reduce: Reduce(np.minimum, default=0),
    np.maximum.reduce: Reduce(np.maximum, default=0),
    np.logical_or.reduce: Reduce(np.logical_or, default=0),
    np.logical_and.reduce: Reduce(np.logical_and, default=0),
    np.bitwise_or.reduce: Reduce(np.bitwise_or, default=0),
    np.bitwise_and.reduce: Reduce(np.bitwise_and, default=0),
    np.bitwise_xor.reduce: Reduce(np.bitwise_xor, default=0),
    # Element by element.
    np.where: Elementwise((0, 1, 2)),
    np.clip: Elementwise((0, 1, 2, "a_min", "a_max", "min", "max")),
    np.round: Elementwise((0,)),
    np.around: Elementwise((0,)),
    np.nan_to_num: Elementwise((0,)),
    np.isclose: Elementwise((0, 1)),
    np.real: Elementwise((0,)),
    np.imag: Elementwise((0,)),
    np.angle: Elementwise((0,)),
    np.sinc: Elementwise((0,)),
    np.i0: Elementwise((0,)),
    np.fix: Elementwise((0,)),
    np.isneginf: Elementwise((0,)),
    np.isposinf: Elementwise((0,)),
    np.isreal: Elementwise((0,)),
    np.iscomplex: Elementwise((0,)),
    np.copy: Elementwise((0,)),
    np.interp: Elementwise((0,)),
    np.digitize: Elementwise((0,)),
    np.searchsorted: Elementwise((1, "v")),
    np.isin: Elementwise((0,)),
    np.zeros_like: Like(),
    np.ones_like: Like(),
    np.full_like: Elementwise((0,)),
    # Along one axis.
    np.sort: Along(-1),
    np.argsort: Along(-1),
    np.cumsum: Along(None),
    np.cumprod: Along(None),
    np.nancumsum: Along(None),
    np.nancumprod: Along(None),
    np.median: Along(None, drops=True),
    np.nanmedian: Along(None, drops=True),
    np.nanmin: Along(None, drops=True),
    np.nanmax: Along(None, drops=True),
    np.nanmean: Along(None, drops=True),
    np.nanvar: Along(None, drops=True),
    np.nanstd: Along(None, drops=True),
    np.nanargmin: Along(None, drops=True),
    np.nanargmax: Along(None, drops=True),
    np.ptp: Along(None, drops=True),
    np.percentile: Along(None, position=2, drops=True),
    np.quantile: Along(None, position=2, drops=True),
    np.linalg.norm: Along(None, position=2, drops=True),
    np.flip: Along(None),
    np.roll: Roll(None, position=2),
    np.fft.fft: Along(-1, position=2),
    np.fft.ifft: Along(-1, position=2),
    np.unwrap: Along(-1, position=3),
}
"""Functions that call ``__array_function__``, and methods of ufuncs."""
