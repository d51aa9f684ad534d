"""Lazy values of two kinds: arrays, and results of which nothing is known before they exist."""

from __future__ import annotations

import copy
import functools
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import numpy as np

from spliter.pipeline._annotations.arguments import as_array
from spliter.pipeline._annotations.elementwise import ASTYPE, ELEMENTWISE
from spliter.pipeline._annotations.numpy import FUNCTIONS
from spliter.pipeline._annotations.rows import FILTERED, PICKED
from spliter.pipeline._calls.metas import DTYPES, ArrayMeta
from spliter.pipeline._capture.array_calls import (
    capture_function,
    capture_ufunc,
    is_opaque,
    is_operand,
    known,
)
from spliter.pipeline._capture.capture import (
    CLASSES,
    COLUMNS,
    CONSTANTS,
    NEW_VALUE,
    capture,
    plain,
    refused,
    rewrapped,
    wrap,
)
from spliter.pipeline._capture.lazy import Lazy, compute, computed

_PAIRS: Final = (
    "add:add sub:subtract mul:multiply truediv:true_divide floordiv:floor_divide mod:remainder "
    "pow:power matmul:matmul and:bitwise_and or:bitwise_or xor:bitwise_xor lshift:left_shift "
    "rshift:right_shift eq:equal ne:not_equal lt:less le:less_equal gt:greater ge:greater_equal "
    "neg:negative pos:positive abs:absolute invert:invert divmod:divmod"
)
_UFUNCS: Final = dict(pair.split(":") for pair in _PAIRS.split())
"""Operators of Python and the ufuncs that they call."""

_IN_PLACE: Final = ("sort", "fill", "partition", "put", "resize", "setfield", "setflags")
"""Methods of arrays that change them."""


class LazyValue(Lazy):
    """A result of which nothing is known: it can be passed on, operators are captured."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        """Evaluate, and return an attribute of the value."""
        if name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._evaluated(name), name)

    def __getitem__(self, key: Any) -> Any:
        """Evaluate, and return an item."""
        return operator.getitem(self._evaluated("getitem"), key)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Refuse a change."""
        raise refused("sets elements in place", f"{NEW_VALUE} or x = frame.assign(column=new)")

    def _evaluated(self, by: str = "") -> Any:
        graph = self._graph.root()
        if graph.is_over_split and graph.learn(self._node):
            return wrap(self._node, graph, self._fixed)
        compute(self, by)
        found = known(self)
        if not isinstance(found, (Lazy, *CONSTANTS)):
            graph.evaluate()  # calls that wait must not see how the program changes it, as a frame
        return found

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Capture a call of a function of NumPy, or evaluate its arguments."""
        return capture_function(func, args, kwargs)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Capture a call of a ufunc."""
        return capture_ufunc(ufunc, method, inputs, kwargs)

    def _operate(self, function: Callable[..., Any], *operands: Any) -> Any:
        """Capture an operator, or apply it to what the operands have turned out to be."""
        operands = tuple(map(known, operands))
        if not any(map(is_opaque, operands)):
            return function(*operands)
        if all(map(is_operand, operands)):
            return capture(function, tuple(map(as_array, operands)), {}, ELEMENTWISE)
        return plain(function, operands, {})

    def _change(self, function: Callable[..., Any], other: Any) -> Any:
        """Refuse an operator in place, unless it makes a new number."""
        if not isinstance(found := self._evaluated(), CONSTANTS):
            raise refused(
                f"changes a value in place by {_name_of(function)}=, of which no annotation "
                "declares the dtype",
                f"{NEW_VALUE}, or declare it: returns=Rows(like=...)",
            )
        return function(found, other)


def _name_of(function: Callable[..., Any]) -> str:
    """Return the name of an operator without the underscores, such as ``"and"``."""
    return function.__name__.strip("_")


class LazyArray(LazyValue):
    """A NumPy array that is evaluated when it is needed; its dtype and axes are known before."""

    __slots__ = ()

    @property
    def _meta(self) -> ArrayMeta:
        return cast(ArrayMeta, self._node.meta)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents; evaluates if the length is unknown."""
        shape = self._meta.shape
        if None in shape and (length := self._graph.root().length(self._node)) is not None:
            shape = (length, *shape[1:])
        if None in shape:
            compute(self, "shape")
            shape = self._meta.shape
        return cast(tuple[int, ...], shape)

    dtype = property(lambda self: self._meta.dtype, doc="Dtype of the elements.")
    ndim = property(lambda self: len(self._meta.shape), doc="Number of axes.")
    size = property(lambda self: math.prod(self.shape), doc="Number of elements.")
    itemsize = property(lambda self: self.dtype.itemsize, doc="Bytes of an element.")
    nbytes = property(lambda self: self.size * self.itemsize, doc="Bytes of the elements.")

    def __len__(self) -> int:
        """Return the extent along the first axis."""
        return self.shape[0] if self.ndim else len(compute(self))  # numbers have none

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator of rows."""
        compute(self)  # else errors rise in a generator, which takes a StopIteration for its own
        return (self[at] for at in range(len(self)))

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

    def __getitem__(self, key: Any) -> Any:
        """Return rows of a mask, or the value of an index."""
        key, meta = known(key), self._meta
        if self._is_mask_of_rows(key):
            return capture(operator.getitem, (self, key), {}, FILTERED)
        if meta.shape and not meta.is_known and not self._node.is_here:
            keys = copy.deepcopy(computed(key if isinstance(key, tuple) else (key,)))
            if has_all_rows(keys, self.ndim):
                found = capture(operator.getitem, (self, keys), {}, PICKED)
                if is_basic(key):
                    self._fixed, found._fixed = self._fixed or COLUMNS, COLUMNS
                return found
        return plain(operator.getitem, (self, key), {})

    def _is_mask_of_rows(self, key: Any) -> bool:
        if not (isinstance(key, LazyArray | np.ndarray) and key.dtype == bool and key.ndim == 1):
            return False
        return self._meta.shape[:1] == getattr(key, "_meta", key).shape

    def _operate(self, function: Callable[..., Any], *operands: Any) -> Any:
        """Capture an operator, but leave operands their own: sparse arrays have products."""
        name = _name_of(function)
        if not all(type(each) in _USUAL or is_operand(each) for each in operands):
            return plain(function, operands, {})
        if name == "pow" and type(operands[1]) in (int, float):
            return capture(function, operands, {}, ELEMENTWISE)  # differs for some exponents
        try:
            return capture_ufunc(getattr(np, _UFUNCS[name]), "__call__", operands, {})
        except TypeError:
            if name not in ("eq", "ne"):
                raise
        return plain(function, operands, {})  # of other dtypes, of which no element is equal

    def _change(self, function: Callable[..., Any], other: Any) -> Any:
        """Stand for the result of an operator, with the dtype of now."""
        if not self.ndim:
            return function(self, other)
        if self._fixed:
            raise refused(
                f"changes {self._fixed} in place by the operator {_name_of(function)}=",
                f"{NEW_VALUE}, or call a function that splittable annotates with mut()",
            )
        if not self._graph.root().is_over_split:
            _ = self.shape  # known then: one row must not become several
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


CLASSES[True], CLASSES[False] = LazyArray, LazyValue

_USUAL: Final = {int, float, np.ndarray, LazyArray, LazyValue}
"""Most frequent classes of operands: arrays of objects are refused later."""

for _name in _UFUNCS:
    _by = getattr(operator, f"__{_name}__", divmod)
    setattr(LazyValue, f"__{_name}__", lambda self, *rest, by=_by: self._operate(by, self, *rest))
    setattr(LazyValue, f"__r{_name}__", lambda self, other, by=_by: self._operate(by, other, self))
    setattr(LazyValue, f"__i{_name}__", lambda self, other, by=_by: self._change(by, other))


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
        change = getattr(operator, f"__i{_name_of(function)}__")
        other = as_array(other)
        with np.errstate(all="ignore"):  # raises, if the result has a dtype of another kind
            change(
                np.ones(1, old.dtype),
                np.ones(1, other.dtype) if hasattr(other, "dtype") else other,
            )


def has_all_rows(keys: tuple[Any, ...], ndim: int) -> bool:
    """Return whether an index chooses all rows, and of each row the same elements."""
    first, *others = keys
    lists = [each for each in others if isinstance(each, list | np.ndarray)]
    rest = tuple([each for each in others if not isinstance(each, list | np.ndarray)])
    if first is Ellipsis and sum(each is not None for each in others) >= ndim:
        return False
    is_all = first is Ellipsis or (isinstance(first, slice) and first == slice(None))
    return is_all and Ellipsis not in rest and is_basic(rest) and len(lists) < 2


def is_basic(key: Any) -> bool:
    """Return whether an index makes a view."""
    keys = key if isinstance(key, tuple) else (key,)
    basic = (type(None), type(...), slice, int, np.integer)
    return all(isinstance(each, basic) and not isinstance(each, bool) for each in keys)


def _call_method(method: Callable[..., Any], value: LazyArray, *args: Any, **kwargs: Any) -> Any:
    """Call a method of arrays: by the function of the same name, if that is annotated."""
    name = method.__name__
    if name in _IN_PLACE:
        raise refused(f"calls the method {name}, which changes an array in place")
    function: Any = getattr(np, name, None)
    is_conjugate = isinstance(function, np.ufunc) and value.dtype.kind == "c"  # else it is no copy
    if function is np.clip:  # which must get both bounds, as the method need not
        bounds = {"min": None, "max": None} | dict(zip(("min", "max"), args, strict=False)) | kwargs
        return np.clip(value, bounds.pop("min"), bounds.pop("max"), **bounds)
    if function in FUNCTIONS or is_conjugate:
        return function(value, *args, **kwargs)
    return plain(method, (value, *args), kwargs)
