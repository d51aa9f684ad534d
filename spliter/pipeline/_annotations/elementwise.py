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
        """Return the broadcast shape, and the dtype that the function gives for one element."""
        cut = self._cut_inputs(call)
        if any(node.meta is None for node in cut):
            return (None,)
        shape = broadcast_shape(tuple(map(_shape_of, cut)))
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
    is_repeated = isinstance(data, np.ndarray) and 0 in data.strides
    return exponent != () and (is_repeated or exponent != broadcast_shape((base, exponent)))


def is_in_order(data: Any) -> bool:
    """Return whether an array, if it exists, is in C order, maybe with gaps.

    Of others, results would have another order, and in some functions other last bits.
    """
    if not isinstance(data, np.ndarray) or not data.ndim:
        return True
    strides = [stride for stride, n in zip(data.strides, data.shape, strict=True) if n > 1]
    if any(stride < 0 for stride in strides) or strides != sorted(strides, reverse=True):
        return False
    has_gaps = data.ndim > 1 and not data.flags.c_contiguous
    return not (has_gaps and (data.dtype.kind == "c" or data.dtype == np.float16))


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


def example_of(value: Any) -> Any:
    """Return an array of one element like a value; the value itself if it is no pending array."""
    if not isinstance(value, Node) or not isinstance(value.meta, ArrayMeta):
        return value.data if isinstance(value, Node) else value
    return np.ones((1,) * len(value.meta.shape), value.meta.dtype)


def meta_by_example(call: Call, shape: Shape) -> ArrayMeta:
    """Return a meta with the dtype that a call gives for arrays of one element."""
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
UFUNC: Final = Ufunc()
ASTYPE: Final = Elementwise((0,))
