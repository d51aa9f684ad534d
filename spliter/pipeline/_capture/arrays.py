"""Lazy values of two kinds: arrays, and results of which nothing is known before they exist."""

from __future__ import annotations

import contextlib
import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, cast

import numpy as np

from spliter.pipeline._annotations.elementwise import ASTYPE, ELEMENTWISE
from spliter.pipeline._annotations.numpy import FUNCTIONS
from spliter.pipeline._annotations.rows import FILTERED, PICKED, filtered, picked
from spliter.pipeline._calls.metas import DTYPES, ArrayMeta
from spliter.pipeline._capture.array_calls import (
    NEW_VALUE,
    capture_function,
    capture_operator,
    capture_ufunc,
    is_operand,
    known,
)
from spliter.pipeline._capture.capture import (
    CLASSES,
    CONSTANTS,
    capture,
    plain,
    refused,
    rewrapped,
    wrap,
)
from spliter.pipeline._capture.lazy import Lazy, compute, computed

BINARY: Final = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"),
    *("and", "or", "xor", "lshift", "rshift"),
)
"""Operators that have a reflected form and one in place."""

OTHERS: Final = ("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "abs", "invert")

_IN_PLACE: Final = ("sort", "fill", "partition", "put", "resize", "setfield", "setflags")
"""Methods of arrays that change them."""


class LazyValue(Lazy):
    """A result of which nothing is known: it can be passed on, operators are captured."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        """Evaluate, and return an attribute of the value."""
        if name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._evaluated(), name)

    def __getitem__(self, key: Any) -> Any:
        """Evaluate, and return an item."""
        return operator.getitem(self._evaluated(), key)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Refuse a change."""
        raise refused("sets elements of a value in place", NEW_VALUE)

    def _evaluated(self) -> Any:
        graph = self._graph.root()
        if graph.is_over_split and graph.learn(self._node):
            return wrap(self._node, graph, self._fixed)
        compute(self)
        return known(self)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Capture a call of a function of NumPy, or evaluate its arguments."""
        return capture_function(func, args, kwargs)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Capture a call of a ufunc."""
        return capture_ufunc(ufunc, method, inputs, kwargs)

    __hash__ = Lazy.__hash__


class LazyArray(Lazy):
    """A NumPy array that is evaluated when it is needed; its dtype and axes are known before."""

    __slots__ = ()

    @property
    def _meta(self) -> ArrayMeta:
        return cast(ArrayMeta, self._node.meta)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents; evaluates if the length is unknown."""
        if not self._meta.is_known:
            length = self._graph.root().length(self._node)
            if length is not None:
                return (length, *cast(tuple[int, ...], self._meta.shape[1:]))
            compute(self, "shape")
        return cast(tuple[int, ...], self._meta.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the elements."""
        return self._meta.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._meta.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * self.itemsize

    def __len__(self) -> int:
        """Return the extent along the first axis."""
        return self.shape[0] if self.ndim else len(compute(self))  # numbers have none

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator of rows."""
        return self._rows(range(len(self)))

    def __reversed__(self) -> Iterator[Any]:
        """Return an iterator of rows from the last one."""
        return self._rows(reversed(range(len(self))))

    def _rows(self, numbers: Iterable[int]) -> Iterator[Any]:
        compute(self)  # else errors rise in a generator, which takes a StopIteration for its own
        return (self[at] for at in numbers)

    def __getattr__(self, name: str) -> Any:
        """Return a method of arrays, captured if it is annotated, or evaluate an attribute."""
        if name.startswith("__"):
            raise AttributeError(f"'LazyArray' object has no attribute {name!r}")
        if not self.ndim:  # a number, of NumPy's class
            return getattr(compute(self, name), name)
        found = getattr(np.ndarray, name, None)
        if found is None:
            raise AttributeError(f"'numpy.ndarray' object has no attribute {name!r}")
        if callable(found):
            return functools.partial(_call_method, found, self)
        return plain(getattr, (self, name), {})

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Capture a call of a ufunc."""
        return capture_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Capture a call of another function of NumPy, or evaluate its arguments."""
        return capture_function(func, args, kwargs)

    def __getitem__(self, key: Any) -> Any:
        """Return rows of a mask, or the value of an index."""
        key, meta = known(key), self._meta
        if self._is_mask_of_rows(key):
            return capture(filtered, (self, key), {}, FILTERED)
        if meta.shape and not meta.is_known and not self._node.is_here:
            axes = written_out(key, self.ndim)
            if has_all_rows(axes):
                picks = capture(picked, (self, axes), {}, PICKED)
                return self._sliced(picks) if is_basic(key) else picks
        return plain(operator.getitem, (self, key), {})

    def _is_mask_of_rows(self, key: Any) -> bool:
        if not (isinstance(key, LazyArray | np.ndarray) and key.dtype == bool and key.ndim == 1):
            return False
        shape = key._meta.shape if isinstance(key, LazyArray) else key.shape
        return self._meta.shape[:1] == shape

    def _sliced(self, found: Any) -> Any:
        self._fixed = self._fixed or "a value of which a slice has been taken"
        found._fixed = "a slice of another value"
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        """Refuse a change of elements."""
        raise refused("sets elements of an array in place", NEW_VALUE)

    def _change(self, function: Callable[..., Any], other: Any) -> Any:
        """Stand for the result of an operator, with the dtype of now."""
        if not self.ndim:
            return function(self, other)
        name = f"{function.__name__.strip('_')}="
        if self._fixed:
            raise refused(
                f"changes {self._fixed} in place by the operator {name}",
                f"{NEW_VALUE}, or call a function that splittable annotates with mut()",
            )
        newer = function(self, other)
        if not isinstance(newer, LazyArray) or newer._graph.root() is not self._graph.root():
            newer = rewrapped(computed(newer), [self])
        _check_room(function, self, other, newer)
        if newer.dtype != self.dtype:
            newer = capture(np.ndarray.astype, (newer, self.dtype), {}, ASTYPE)
        self._replace(newer)
        return self

    def astype(self, dtype: Any, *args: Any, **kwargs: Any) -> Any:
        """Return a copy with another dtype; evaluates if it need not be one, or has objects."""
        kind = np.dtype(dtype)
        is_cut = self.ndim and kind.itemsize and kind.kind in DTYPES
        if args or kwargs.keys() - {"casting"} or not is_cut:
            return plain(np.ndarray.astype, (self, dtype, *args), kwargs)
        return capture(np.ndarray.astype, (self, dtype), kwargs, ASTYPE)

    def copy(self, order: Any = "C") -> Any:
        """Return a copy."""
        if order != "C" or not self.ndim:
            return plain(np.ndarray.copy, (self, order), {})
        return capture(np.copy, (self,), {"order": order}, ELEMENTWISE)

    def __divmod__(self, other: Any) -> Any:
        return np.divmod(self, other)

    def __rdivmod__(self, other: Any) -> Any:
        return np.divmod(other, self)

    __hash__ = Lazy.__hash__

    def __copy__(self) -> Any:
        """Return a copy."""
        return self.copy(order="K")


CLASSES[True], CLASSES[False] = LazyArray, LazyValue


def _check_room(function: Callable[..., Any], old: LazyArray, other: Any, new: LazyArray) -> None:
    """Raise what NumPy raises if the result of an operator in place does not fit."""
    pairs = zip(old._meta.shape, new._meta.shape, strict=False)
    fits = old.ndim == new.ndim and all(one == two or None in (one, two) for one, two in pairs)
    if not fits:
        raise ValueError(
            f"non-broadcastable output operand with shape {old._meta.shape} doesn't match the "
            f"broadcast shape {new._meta.shape}"
        )
    if new.dtype != old.dtype:
        change = getattr(operator, f"__i{function.__name__.strip('_')}__")
        example = other if not isinstance(other, LazyArray) else np.ones(1, other.dtype)
        with np.errstate(all="ignore"):  # raises, if the result has a dtype of another kind
            change(np.ones((1,) * max(old.ndim, np.ndim(example)), old.dtype), example)


def written_out(key: Any, ndim: int) -> tuple[Any, ...]:
    """Return an index with slices in place of an ellipsis, and copies of lists in it."""
    keys = computed(key if isinstance(key, tuple) else (key,))
    if sum(each is Ellipsis for each in keys) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    at = next((at for at, each in enumerate(keys) if each is Ellipsis), len(keys))
    rest = ndim - sum(each is not None and each is not Ellipsis for each in keys)
    keys = (*keys[:at], *[slice(None)] * rest, *keys[at + 1 :])
    return tuple([np.array(k, None if len(k) else int) if _is_list(k) else k for k in keys])


def _is_list(key: Any) -> bool:
    return isinstance(key, list) or (isinstance(key, np.ndarray) and key.ndim > 0)


def has_all_rows(axes: tuple[Any, ...]) -> bool:
    """Return whether an index chooses all rows, and of each row the same elements."""
    first, *others = axes
    lists = [each for each in others if isinstance(each, np.ndarray)]
    rest = tuple([each for each in others if not isinstance(each, np.ndarray)])
    return isinstance(first, slice) and first == slice(None) and is_basic(rest) and len(lists) < 2


def is_basic(key: Any) -> bool:
    """Return whether an index makes a view."""
    keys = key if isinstance(key, tuple) else (key,)
    return all(
        each is None
        or each is Ellipsis
        or isinstance(each, slice)
        or (isinstance(each, int | np.integer) and not isinstance(each, bool))
        for each in keys
    )


def _clip(value: Any, min: Any = None, max: Any = None, **kwargs: Any) -> Any:
    """Call ``numpy.clip``, which must get both bounds, as the method need not."""
    return np.clip(value, min, max, **kwargs)


def _call_method(method: Callable[..., Any], value: LazyArray, *args: Any, **kwargs: Any) -> Any:
    """Call a method of arrays: by the function of the same name, if that is annotated."""
    name = method.__name__
    if name in _IN_PLACE:
        raise refused(f"calls the method {name}, which changes an array in place", NEW_VALUE)
    function: Any = getattr(np, name, None)
    is_conjugate = isinstance(function, np.ufunc) and value.dtype.kind == "c"  # else it is no copy
    if function is np.clip:
        return _clip(value, *args, **kwargs)
    if function in FUNCTIONS or is_conjugate:
        return function(value, *args, **kwargs)
    return plain(method, (value, *args), kwargs)


_USUAL: Final = {int, float, np.ndarray, LazyArray, LazyValue}
"""Most frequent classes of operands: arrays of objects are refused later."""

_UFUNCS: Final[dict[str, Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.true_divide,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "pow": np.power,
    "matmul": np.matmul,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "neg": np.negative,
    "lshift": np.left_shift,
    "rshift": np.right_shift,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "pos": np.positive,
    "abs": np.absolute,
    "invert": np.invert,
}


def _array_operator(name: str, *, reflected: bool = False) -> Callable[..., Any]:
    """Return an operator that leaves operands their own: matrices and sparse arrays have products.
    """
    ufunc, function = _UFUNCS[name], getattr(operator, f"__{name}__")

    def operate(self: LazyArray, *others: Any) -> Any:
        operands = (*others, self) if reflected else (self, *others)
        for other in others:
            if type(other) not in _USUAL and not is_operand(other):
                if self._graph.root().is_over_split and not hasattr(other, "__array_ufunc__"):
                    return NotImplemented
                return plain(function, operands, {})
        if name == "pow" and not reflected and type(others[0]) in (int, float):
            return capture(function, operands, {}, ELEMENTWISE)  # differs for some exponents
        if name in ("eq", "ne"):
            with contextlib.suppress(TypeError):  # of other dtypes, of which no element is equal
                return capture_ufunc(ufunc, "__call__", operands, {})
            return plain(function, operands, {})
        return capture_ufunc(ufunc, "__call__", operands, {})

    return operate


def _in_place(name: str) -> Callable[..., Any]:
    function = getattr(operator, f"__{name}__")
    return lambda self, other: self._change(function, other)


def _opaque_in_place(name: str) -> Callable[..., Any]:
    """Return an operator in place of opaque values: of what is evaluated, and a new value."""
    function = getattr(operator, f"__{name}__")

    def change(self: LazyValue, other: Any) -> Any:
        found = self._evaluated()
        if not isinstance(found, CONSTANTS):
            raise refused(
                f"changes a value in place by {name}=, of which no annotation declares the dtype",
                f"{NEW_VALUE}, or declare it: returns=Rows(like=...)",
            )
        return function(found, other)

    return change


def _opaque(name: str, *, reflected: bool = False) -> Callable[..., Any]:
    """Return an operator of opaque values."""
    function = getattr(operator, f"__{name}__")
    if reflected:
        return lambda self, other: capture_operator(function, other, self)
    return lambda *operands: capture_operator(function, *operands)


for _name in (*BINARY, *OTHERS):
    setattr(LazyArray, f"__{_name}__", _array_operator(_name))
    setattr(LazyValue, f"__{_name}__", _opaque(_name))
for _name in BINARY:
    setattr(LazyArray, f"__r{_name}__", _array_operator(_name, reflected=True))
    setattr(LazyArray, f"__i{_name}__", _in_place(_name))
    setattr(LazyValue, f"__r{_name}__", _opaque(_name, reflected=True))
    setattr(LazyValue, f"__i{_name}__", _opaque_in_place(_name))
