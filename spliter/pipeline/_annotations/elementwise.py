"""Functions of arrays that work element by element, NumPy's ufuncs above all."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np

from spliter._errors import AnnotationError
from spliter.pipeline._calls.calls import Call, Node, Typing, UnforeseenResultError
from spliter.pipeline._calls.metas import DTYPES, ArrayMeta, Meta, Shape
from spliter.pipeline._calls.split_types import SplitType, Unknown, axis, broadcast

MIN_EXTENT: Final = 64
"""Arrays of several axes are cut along the first axis in memory that has as many items; with fewer,
a batch of one item may not fit the cache."""


CONTIGUOUS_ONLY: Final = frozenset({np.isnan, np.isfinite, np.isinf, np.signbit})
"""Ufuncs that, with NumPy 2.4, leave items of ``out`` unwritten over which they pass in strides."""

INEXACT: Final = frozenset(
    {getattr(np, name) for name in (
        *("arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "cbrt", "cos"),
        *("cosh", "exp", "exp2", "expm1", "float_power", "hypot", "log", "log10", "log1p", "log2"),
        *("logaddexp", "logaddexp2", "power", "sin", "sinh", "tan", "tanh"),
    )} | {operator.pow}
)  # fmt: skip
"""Functions of reals that NumPy computes in one of two ways, by strides and buffers, whose last
bits differ; those of complex numbers all are."""

POWERS: Final = (np.power, operator.pow)

CACHED: Final = 1024
"""Shapes and dtypes of calls whose results are remembered: those of a few long programs."""


class Elementwise:
    """Functions whose result has, at each position, what follows from the inputs there.

    Parameters
    ----------
    data : tuple of str or int
        Names (of keywords) and positions of the arguments that are cut; all if it is empty.
    options : str
        Names, between spaces, of the arguments that a call may have; of functions of NumPy only.
    positional : int
        Number of the first arguments, which a call must have.
    """

    scratch = True

    def __init__(
        self, data: tuple[str | int, ...] = (), options: str = "", *, positional: int = 1
    ) -> None:
        self.data = data
        self.options = frozenset(options.split())
        self.positional = positional

    def typings(self, call: Call, known: tuple[SplitType | None, ...]) -> Iterable[Typing]:
        """Return one typing for each axis of the result."""
        cut = self._cut_inputs(call)
        if any(node.meta is None for node in cut):
            return _of_opaque(call, cut, known)
        tokens = {kind for kind in known if isinstance(kind, Unknown)}
        if tokens:
            return _of_unknown(call, cut, known, tokens)
        shapes = tuple([_shape_of(node) if node in cut else None for node in call.inputs])
        arrays = [node for node in cut if isinstance(node.data, np.ndarray)]
        matrices = [node for node in arrays if node.data.ndim > 1]
        if any(_varies(call.fn, node.data) for node in arrays):
            return ()
        if call.fn in POWERS and _has_few_exponents(call):
            return ()
        axes = _axes_in_memory(matrices, cut) if matrices else None
        return _typings_along_axes(shapes, len(call.outputs), axes)

    def metas(self, call: Call) -> tuple[Meta, ...]:
        """Return the broadcast shape, and the dtype that the function gives for one element."""
        cut = self._cut_inputs(call)
        metas = [node.meta for node in cut]
        if None in metas:
            return (None,)
        try:
            shape = broadcast_shape(tuple(map(_shape_of, cut)))
        except ValueError:
            args, kwargs = call.filled(stand_in)
            call.fn(*args, **kwargs)  # raises the error of the plain program
            raise
        try:
            return (meta_by_example(call, shape),)
        except (TypeError, ValueError):  # the values of the example are arbitrary
            raise UnforeseenResultError from None

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
    if exponent == ():
        return False
    return exponent != broadcast_shape((base, exponent)) or (data is not None and 0 in data.strides)


def _varies(fn: Callable[..., Any], array: Any) -> bool:
    """Return whether the last bits of a function of an array depend on how it is cut."""
    kind = array.dtype.kind
    if not array.ndim or (fn not in INEXACT and kind != "c"):
        return False
    is_table = array.ndim > 1 and (kind == "c" or array.dtype == np.float16)
    return min(array.strides) < 0 or (is_table and not array.flags.forc)


class Like(Elementwise):
    """Functions whose result is an array of the shape of the first argument, also without axes."""

    def typings(self, call: Call, known: tuple[SplitType | None, ...]) -> Iterable[Typing]:
        """Return one typing for each axis, unless another argument has more."""
        return () if self.metas(call) == (None,) else super().typings(call, known)

    def metas(self, call: Call) -> tuple[Meta, ...]:
        """Return the meta, unless there are no axes, as lazy values without axes are numbers."""
        (meta,) = super().metas(call)
        shape = _shape_of(call.args[0])
        return (meta if isinstance(meta, ArrayMeta) and meta.shape == shape != () else None,)


class Ufunc(Elementwise):
    """Ufuncs without a signature, called as functions."""

    def metas(self, call: Call) -> tuple[Meta, ...]:
        """Return the broadcast shape and the dtypes that the ufunc resolves."""
        if any(node.meta is None for node in call.inputs):
            return (None,) * cast(np.ufunc, call.fn).nout
        operands = [each.meta if isinstance(each, Node) else dtype_of(each) for each in call.args]
        options = call.kwargs.get("casting"), call.kwargs.get("dtype")
        if any(type(each) is int and not 0 <= each < 128 for each in call.args):
            _try_example(call)  # raises, if a dtype cannot hold it
        try:
            return _metas_of_ufunc(call.fn, tuple(operands), *options)
        except ValueError:
            if all(cast(ArrayMeta, node.meta).is_known for node in call.inputs):
                call.fn(*map(stand_in, call.args))  # raises the error of the plain program
            raise
        except TypeError:
            results = _try_example(call)
            # Dtypes with parameters, such as dates.
            shape = broadcast_shape(tuple(map(_shape_of, call.inputs)))
            results = results if isinstance(results, tuple) else (results,)
            return tuple(ArrayMeta(shape, each.dtype, exact=False) for each in results)


def _try_example(call: Call) -> Any:
    """Run a ufunc on arrays of one element; raises what the plain program raises."""
    with np.errstate(all="ignore"):
        return call.fn(*map(example_of, call.args), **call.kwargs)


class Astype(Elementwise):
    """``ndarray.astype``."""

    def metas(self, call: Call) -> tuple[Meta, ...]:
        """Return the same shape, and the dtype that was asked for."""
        meta = cast(ArrayMeta, call.inputs[0].meta)
        dtype = np.empty(0, meta.dtype).astype(call.args[1], **call.kwargs).dtype  # or an error
        return (meta._replace(dtype=dtype),)


@functools.lru_cache(CACHED)
def broadcast_shape(shapes: tuple[Shape, ...]) -> Shape:
    """Return the shape of the result of an elementwise function.

    Parameters
    ----------
    shapes : tuple of tuple
        May contain ``None`` for unknown lengths.

    Raises
    ------
    ValueError
        If the shapes cannot be broadcast.

    Examples
    --------
    >>> broadcast_shape(((4, 1), (3,)))
    (4, 3)
    >>> broadcast_shape(((None, 3), (3,)))
    (None, 3)
    """
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


def example_of(value: Any) -> Any:
    """Return an array of one element like a value; the value itself if it is no pending array."""
    if not isinstance(value, Node) or not isinstance(value.meta, ArrayMeta):
        return value.data if isinstance(value, Node) else value
    return np.ones((1,) * len(value.meta.shape), value.meta.dtype)


def meta_by_example(call: Call, shape: Shape) -> ArrayMeta:
    """Return a meta with the dtype that a call gives for arrays of one element.

    Parameters
    ----------
    call : Call
    shape : tuple
        Shape of the result.
    """
    args, kwargs = call.filled(example_of)
    kwargs.pop("ddof", None)  # one element has no variance, of which there is a warning
    with np.errstate(all="ignore"):
        dtype = np.asarray(call.fn(*args, **kwargs)).dtype
    exact = all(isinstance(node.meta, ArrayMeta) and node.meta.exact for node in call.inputs)
    return ArrayMeta(shape, dtype, exact)


@functools.lru_cache(CACHED)
def _metas_of_ufunc(
    ufunc: np.ufunc, operands: tuple[Any, ...], casting: Any, dtype: Any
) -> tuple[ArrayMeta, ...]:
    """Return the metas of the results of a ufunc, given those or the dtypes of its operands."""
    options: dict[str, Any] = {} if casting is None else {"casting": casting}
    if dtype is not None:
        options["signature"] = (None,) * ufunc.nin + (np.dtype(dtype),) * ufunc.nout
    given = [getattr(each, "dtype", each) for each in operands]
    dtypes = ufunc.resolve_dtypes((*given, *(None,) * ufunc.nout), **options)
    if any(each.kind not in DTYPES for each in dtypes):
        raise UnforeseenResultError  # objects, such as None, may have no such operator
    arrays = [each for each in operands if isinstance(each, ArrayMeta)]
    shape = broadcast_shape(tuple([each.shape for each in arrays]))
    exact = all(each.exact for each in arrays)
    return tuple([ArrayMeta(shape, each, exact) for each in dtypes[ufunc.nin :]])


@functools.lru_cache(CACHED)
def _typings_along_axes(
    shapes: tuple[Shape | None, ...], outputs: int, order: tuple[int, ...] | None
) -> tuple[Typing, ...]:
    """Return a typing for each axis of the result, the best one first.

    Parameters
    ----------
    shapes : tuple of tuple or None
        Shapes of the inputs; ``None`` for those that are not cut.
    outputs : int
        Number of results.
    order : tuple of int or None
        The axes of the result in memory, the one with the largest stride first; ``None`` for C.
    """
    try:
        shape = broadcast_shape(tuple(each for each in shapes if each is not None))
    except ValueError:
        return ()  # of lengths that were not known at the call, which raises it
    if None in shape or 0 in shape:
        return ()
    extents = cast(tuple[int, ...], shape)
    axes = list(order or range(len(extents)))
    axes.sort(key=lambda at: extents[at] < MIN_EXTENT and len(extents) > 1)
    return tuple(
        Typing(
            tuple(_type_along(each, at - len(extents), extents[at]) for each in shapes),
            (axis(at),) * outputs,
            extents[at],
        )
        for at in axes
    )


def _axes_in_memory(matrices: Iterable[Node], nodes: Iterable[Node]) -> tuple[int, ...] | None:
    """Return the order of all arrays with as many axes as the result; ``None`` if they differ."""
    ndim = max(len(_shape_of(node)) for node in nodes)
    orders = {axes_of(node.data.strides) for node in matrices if node.data.ndim == ndim}
    return orders.pop() if len(orders) == 1 else None


def axes_of(strides: Sequence[int]) -> tuple[int, ...]:
    """Return axes from the one with the largest stride to that with the smallest."""
    return tuple(sorted(range(len(strides)), key=lambda axis: -abs(strides[axis])))


def _type_along(shape: Shape | None, at: int, extent: int) -> SplitType:
    """Return how an input is cut if the result is cut along an axis, counted from the last one."""
    if shape is None or len(shape) < -at or (shape[at] == 1 and extent != 1):
        return broadcast
    return axis(len(shape) + at)


def _of_unknown(
    call: Call, cut: Sequence[Node], known: Sequence[SplitType | None], tokens: set[Unknown]
) -> Iterator[Typing]:
    """Yield the typing of inputs of which some have pieces of unknown lengths."""
    if len(tokens) > 1 or not cut:
        return
    (token,) = tokens
    ndim = max(len(_shape_of(node)) for node in cut)
    inputs: list[SplitType] = []
    for node, kind in zip(call.inputs, known, strict=True):
        shape = _shape_of(node)
        if kind == token and len(shape) == ndim:
            inputs.append(token)
        elif kind is None and (len(shape) < ndim or shape[0] == 1):
            inputs.append(broadcast)
        else:
            return
    yield Typing(tuple(inputs), (token,) * len(call.outputs), None)


@dataclass(frozen=True)
class OfEqualAxes:
    """An elementwise function of pieces of which nothing was known, which must not broadcast rows.

    Parameters
    ----------
    fn : callable
    cut : tuple of int or str
        Positions and names of the arguments that are pieces.
    """

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


def _of_opaque(
    call: Call, cut: Sequence[Node], known: Sequence[SplitType | None]
) -> Iterator[Typing]:
    """Yield the typing of inputs of which some are results that an annotation does not declare."""
    kinds = {kind for kind in known if kind is not None}
    rows = kinds.pop() if len(kinds) == 1 else None
    if not isinstance(rows, Unknown) and rows != axis(0):
        return
    inputs: list[SplitType] = []
    pieces: list[int | str] = []
    lengths: set[int | None] = set()
    keys = [
        key for key, each in (*enumerate(call.args), *call.kwargs.items()) if type(each) is Node
    ]
    for key, node, kind in zip(keys, call.inputs, known, strict=True):
        is_rows = kind is not None
        if kind is None and node in cut and not (node.meta is not None and node.meta.shape == ()):
            if node.meta is None or isinstance(rows, Unknown) or node.data is None:
                return
            lengths.add(node.meta.length)
            is_rows = True
        inputs.append(cast(SplitType, rows) if is_rows else broadcast)
        pieces += [key] if is_rows else []
    if len(lengths) <= 1:
        fn = OfEqualAxes(call.fn, tuple(pieces))
        length = next(iter(lengths), None)
        yield Typing(tuple(inputs), (rows,) * len(call.outputs), length, fn, is_checked=True)


def _shape_of(value: Any) -> Shape:
    return value.meta.shape if isinstance(value, Node) else ()  # type: ignore[union-attr]


def dtype_of(value: Any) -> Any:
    """Return a dtype, or the type of a Python number, which adapts to the other operands."""
    if isinstance(value, Node):
        return cast(ArrayMeta, value.meta).dtype
    if type(value) in (int, float, complex):
        return type(value)
    return np.asarray(value).dtype


def stand_in(value: Any) -> Any:
    """Return an array like a pending one that takes no memory; other values unchanged."""
    if not isinstance(value, Node) or not isinstance(value.meta, ArrayMeta):
        return value
    shape = tuple(1 if extent is None else extent for extent in value.meta.shape)
    return np.broadcast_to(np.ones((), value.meta.dtype), shape)


ELEMENTWISE: Final = Elementwise()
UFUNC: Final = Ufunc()
ASTYPE: Final = Astype()
