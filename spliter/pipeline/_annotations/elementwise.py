"""Functions of arrays that work element by element, NumPy's ufuncs above all."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

import numpy as np

from spliter._errors import AnnotationError
from spliter.pipeline._calls.calls import Call, Node, Typing, UnforeseenResultError
from spliter.pipeline._calls.metas import DTYPES, ArrayMeta, Meta, Shape
from spliter.pipeline._calls.split_types import ROWS, SplitType, Unknown, broadcast

CONTIGUOUS_ONLY: Final = frozenset({np.isnan, np.isfinite, np.isinf, np.signbit})
"""Ufuncs that, with NumPy 2.4, leave items of ``out`` unwritten over which they pass in strides."""

CACHED: Final = 1024
"""Shapes and dtypes of calls whose results are remembered: those of a few long programs."""


class Elementwise:
    """Functions whose result has, at each position, what follows from the inputs there.

    `data` names the arguments that are cut (positions and keywords; all if it is empty), `options`
    the others that a call may have, and the first `positional` ones are those that it must have.
    """

    scratch = True

    def __init__(
        self, data: tuple[str | int, ...] = (), options: str = "", *, positional: int = 1
    ) -> None:
        self.data = data
        self.options = frozenset(options.split())
        self.positional = positional

    def typings(self, call: Call, known: tuple[SplitType | None, ...]) -> Iterable[Typing]:
        """Return the typing by rows of the result, if there is one."""
        cut = self._cut_inputs(call)
        if any(node.meta is None for node in cut) or any(isinstance(k, Unknown) for k in known):
            return _of_rows(call, cut, known)
        is_whole = call.fn in (np.power, operator.pow) and _has_few_exponents(call)
        if is_whole or not all(is_in_order(node.data) for node in cut):
            return ()
        shapes = tuple([_shape_of(node) if node in cut else None for node in call.inputs])
        return _by_rows(shapes, len(call.outputs))

    def metas(self, call: Call) -> tuple[Meta, ...]:
        """Return the broadcast shape, and the dtypes that the function gives for one element."""
        cut = self._cut_inputs(call)
        if any(node.meta is None for node in cut):
            return (None,) * getattr(call.fn, "nout", 1)
        shape = broadcast_shape(tuple(map(_shape_of, cut)))
        exact = all(node.meta is not None and node.meta.exact for node in call.inputs)
        return tuple([ArrayMeta(shape, dtype, exact) for dtype in dtypes_of(call)])

    def _cut_inputs(self, call: Call) -> Sequence[Node]:
        if not self.data:
            return call.inputs
        cut = [call.args[at] for at in self.data if isinstance(at, int) and at < len(call.args)]
        cut += [value for name, value in call.kwargs.items() if name in self.data]
        return [value for value in cut if isinstance(value, Node)]


def _has_few_exponents(call: Call) -> bool:
    """Return whether an exponent stands for several elements: NumPy squares by some that are 2."""
    base, exponent = (_shape_of(each) if isinstance(each, Node) else () for each in call.args)
    data = call.args[1].data if exponent else None
    is_repeated = isinstance(data, np.ndarray) and 0 in data.strides
    return exponent != () and (is_repeated or exponent != broadcast_shape((base, exponent)))


def is_in_order(data: Any) -> bool:
    """Return whether an array is in C order: of others, some functions have other last bits."""
    if not isinstance(data, np.ndarray) or not data.ndim:
        return True
    strides = [stride for stride, n in zip(data.strides, data.shape, strict=True) if n > 1]
    if any(stride < 0 for stride in strides) or strides != sorted(strides, reverse=True):
        return False
    has_gaps = data.ndim > 1 and not data.flags.c_contiguous
    return not (has_gaps and (data.dtype.kind == "c" or data.dtype == np.float16))


@functools.lru_cache(CACHED)
def broadcast_shape(shapes: tuple[Shape, ...]) -> Shape:
    """Return the shape of the result of an elementwise function."""
    distinct = set(shapes)
    if len(distinct) == 1:
        return shapes[0]
    result: list[int | None] = [1] * max(map(len, distinct), default=0)
    for shape in distinct:
        for at, extent in enumerate(shape, len(result) - len(shape)):
            if extent == 1 or result[at] == extent:
                continue
            if result[at] == 1 or extent is None:
                result[at] = extent
            elif result[at] is not None:
                found = " ".join(str(each).replace(", ", ",") for each in shapes)
                found = found.replace("None", "n")
                raise ValueError(f"operands could not be broadcast together with shapes {found} ")
    return tuple(result)


def dtypes_of(call: Call) -> tuple[np.dtype[Any], ...]:
    """Return the dtypes of results, which are those for arrays of one element."""
    args = tuple(map(_example, call.args))
    kwargs = [
        (k, _example(each) if type(each) is Node else each)
        for k, each in call.kwargs.items()
        if k != "ddof"  # of one element NumPy would warn
    ]
    values = (*args, *[each for _, each in kwargs])
    find = _dtypes if all(isinstance(each, Hashable) for each in values) else _dtypes.__wrapped__
    # Numbers of other types are equal: np.float32(1) == np.float64(1) == True.
    types = tuple([getattr(each, "dtype", type(each)) for each in values])
    return find(call.fn, args, tuple(kwargs), types)


class _Like(NamedTuple):
    """Axes and dtype of an array, or type of a number (not of 2: flags squared are int8)."""

    ndim: int | None
    dtype: Any

    def example(self, extent: int) -> Any:
        """Return an array of some extents, or the number one."""
        return (
            self.dtype(1)
            if self.ndim is None
            else np.ones((extent,) * max(self.ndim, 1 - extent), self.dtype)
        )


def _example(value: Any) -> Any:
    if isinstance(value, Node):
        return value.data if value.meta is None else _Like(len(value.meta.shape), value.meta.dtype)
    if isinstance(value, np.generic) and value.dtype.kind in DTYPES:
        return _Like(0, value.dtype)
    is_any = type(value) in (float, complex) or (type(value) is int and 2 != value in range(128))
    return _Like(None, type(value)) if is_any else value


@functools.lru_cache(CACHED)
def _dtypes(
    fn: Any, args: tuple[Any, ...], kwargs: tuple[Any, ...], types: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Return the dtypes of results, given what stands for the arguments, and their types."""

    def made(value: Any) -> Any:
        extent = 0 if isinstance(fn, np.ufunc) else 1  # some of SciPy's do not converge for ones
        return value.example(extent) if type(value) is _Like else value

    try:
        with np.errstate(all="ignore"):
            results = fn(*map(made, args), **{name: made(each) for name, each in kwargs})
    except (TypeError, ValueError):
        if isinstance(fn, np.ufunc):
            raise  # what the plain program raises
        raise UnforeseenResultError from None  # the values of the example are arbitrary
    dtypes = [np.asarray(each).dtype for each in (results if type(results) is tuple else [results])]
    if any(dtype.kind not in DTYPES for dtype in dtypes):
        raise UnforeseenResultError  # objects, such as None, may have no such operator
    return tuple(dtypes)


@functools.lru_cache(CACHED)
def _by_rows(shapes: tuple[Shape | None, ...], outputs: int) -> tuple[Typing, ...]:
    """Return the typing of inputs of some shapes, of which those that are ``None`` are not cut."""
    try:
        shape = broadcast_shape(tuple(each for each in shapes if each is not None))
    except ValueError:
        return ()  # of lengths that were not known at the call, which raises it
    if not shape or None in shape or 0 in shape:
        return ()
    same = [
        each is not None and (len(each), *each[:1]) == (len(shape), shape[0]) for each in shapes
    ]
    inputs: tuple[SplitType, ...] = tuple([ROWS if is_cut else broadcast for is_cut in same])
    return (Typing(inputs, (ROWS,) * outputs, shape[0]),)


@dataclass(frozen=True)
class OfEqualAxes:
    """An elementwise function of pieces, some undeclared: it must not broadcast rows."""

    fn: Callable[..., Any]
    cut: tuple[int | str, ...]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        numbers = {np.ndim(args[at] if isinstance(at, int) else kwargs[at]) for at in self.cut}
        if len(numbers) > 1:
            raise AnnotationError(
                f"{getattr(self.fn, '__name__', self.fn)} got arrays of {min(numbers)} and of "
                f"{max(numbers)} axes, of one of which the annotation declares nothing; declare "
                "it: Rows(like=...) or Rows(dtype=..., shape=...)"
            )
        return self.fn(*args, **kwargs)


def _of_rows(
    call: Call, cut: Sequence[Node], known: Sequence[SplitType | None]
) -> Iterator[Typing]:
    """Yield the typing of inputs some of which the stage makes with rows that nobody has counted.

    Or they are results that an annotation does not declare: these meet rows or numbers only.
    """
    kinds = {kind for kind in known if kind is not None}
    rows = next(iter(kinds), broadcast)
    if len(kinds) > 1 or not (isinstance(rows, Unknown) or rows == ROWS):
        return
    is_opaque = any(node.meta is None for node in cut)
    ndim = max(len(node.meta.shape) for node in cut if node.meta) if not is_opaque else 0
    lengths: set[int | None] = set()
    inputs: list[SplitType] = []
    for node, kind in zip(call.inputs, known, strict=True):
        shape = () if node.meta is None else node.meta.shape
        is_rows = kind is not None
        if is_rows and len(shape) < ndim:
            return
        if not is_rows and node in cut and (node.meta is None or shape):
            is_rows = is_opaque and rows == ROWS and node.meta is not None and node.data is not None
            lengths |= {shape[0]} if is_rows else set()
            if not is_rows and (is_opaque or (len(shape) == ndim and shape[0] != 1)):
                return
        inputs.append(rows if is_rows else broadcast)
    if len(lengths) <= 1:
        keys = tuple([key for key, each in zip(call.keys, inputs, strict=True) if each == rows])
        fn = OfEqualAxes(call.fn, keys) if is_opaque else None
        outputs = (rows,) * len(call.outputs)
        yield Typing(tuple(inputs), outputs, next(iter(lengths), None), fn, is_checked=is_opaque)


def _shape_of(value: Any) -> Shape:
    return value.meta.shape if isinstance(value, Node) else ()  # type: ignore[union-attr]


def dtype_of(value: Any) -> Any:
    """Return a dtype, or the type of a Python number, which adapts to the other operands."""
    if isinstance(value, Node):
        return cast(ArrayMeta, value.meta).dtype
    if type(value) in (int, float, complex):
        return type(value)
    return np.asarray(value).dtype


ELEMENTWISE: Final = Elementwise()
ASTYPE: Final = Elementwise((0,))
