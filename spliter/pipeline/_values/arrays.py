"""Arrays of NumPy as lazy values: their operators, methods and functions are captured."""

from __future__ import annotations

import contextlib
import functools
import math
import operator
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, Final, cast

import numpy as np

from spliter.pipeline._annotations.elementwise import (
    ASSIGN,
    ASSIGNED,
    ASTYPE,
    ELEMENTWISE,
    assign,
    assigned,
)
from spliter.pipeline._annotations.numpy import FUNCTIONS
from spliter.pipeline._annotations.rows import CHOOSE, OPERATOR, RowsCall, Rule
from spliter.pipeline._calls.graph import Graph
from spliter.pipeline._calls.metas import DTYPES, ArrayMeta, FrameMeta, Shape, meta_of
from spliter.pipeline._values.any_rows import has_rows
from spliter.pipeline._values.array_calls import capture_function, capture_ufunc, is_operand
from spliter.pipeline._values.capture import (
    CONSTANTS,
    LAZY_CLASSES,
    capture,
    graph_of,
    in_place,
    known,
    plain,
    plain_into,
    rewrapped,
    wrap,
)
from spliter.pipeline._values.indexes import (
    check_nesting,
    has_all_rows,
    is_basic,
    is_number,
    with_values,
    written_out,
)
from spliter.pipeline._values.lazy import (
    BINARY,
    Lazy,
    asked_for_class,
    compute,
    computed,
    is_array,
)
from spliter.pipeline._values.row_calls import RULES, capture_rows_at, check_views, keep_views

TO_PANDAS: Final[dict[str, Callable[[Any], Any]]] = {
    "_typ": lambda _: "npy_extension",
    "to_numpy": lambda value: lambda: np.array(compute(value)),
}
"""Attributes by which pandas takes a lazy array for its wrapper of one, which it unpacks."""

_USUAL = {int, float, np.ndarray}
"""Most frequent classes of operands: arrays of objects are refused later."""


class LazyArray(np.lib.mixins.NDArrayOperatorsMixin, Lazy):
    """A NumPy array that is evaluated when it is needed; its shape and dtype are known before."""

    __slots__ = ()

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """NumPy's for pandas and scipy.ndimage, to which other objects stand for something else.

        That of a number, which is pending over a Split, for all but this package; evaluates.
        """
        asking = sys._getframe(1).f_globals.get("__name__", "")
        if not self.ndim:
            with asked_for_class():
                return LazyArray if asking.startswith("spliter.") else type(compute(self))
        return np.ndarray if asking.startswith(("pandas.", "scipy.ndimage.")) else LazyArray

    @property
    def _meta(self) -> ArrayMeta:
        """Shape, as far as it is known, and dtype."""
        return cast(ArrayMeta, self._node.meta)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents; evaluates if the length is unknown."""
        if not self._meta.is_known:
            length = self._graph.root().length_of(self._node)
            if length is not None:
                return (length, *cast(tuple[int, ...], self._meta.shape[1:]))
            compute(self)
        return cast(tuple[int, ...], self._meta.shape)

    @shape.setter
    def shape(self, value: Any) -> None:
        self._describe_anew("shape", computed(value))

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the elements."""
        return self._meta.dtype

    @dtype.setter
    def dtype(self, value: Any) -> None:
        self._describe_anew("dtype", value)

    def _describe_anew(self, name: str, value: Any) -> None:
        """Evaluate, and set the shape or the dtype of the array itself."""
        data = compute(self)
        setattr(data, name, value)
        self._node.meta = meta_of(data)

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
        """Return an iterator of rows: views, lazy in a decorated function."""
        return self._rows(range(len(self)))

    def __reversed__(self) -> Iterator[Any]:
        """Return an iterator of rows from the last one."""
        return self._rows(reversed(range(len(self))))

    def _rows(self, numbers: Iterable[int]) -> Iterator[Any]:
        self._real()  # else errors rise in a generator, which takes a StopIteration for its own
        return (self[at] for at in numbers)

    def __bytes__(self) -> bytes:
        """Evaluate, and return a copy of the memory."""
        return bytes(compute(self))

    def __getattr__(self, name: str) -> Any:
        """Return a method that evaluates, or evaluate and return another attribute."""
        if name in ("__array_namespace__", "__dlpack__", "__dlpack_device__"):
            return getattr(self.__array__(), name)
        if name in TO_PANDAS and self.ndim and _is_pandas(sys._getframe(1)):
            return TO_PANDAS[name](self)
        if name.startswith("__"):
            raise AttributeError(f"'LazyArray' object has no attribute {name!r}")
        if not self.ndim:  # a number, of NumPy's class
            return getattr(compute(self), name)
        found = getattr(np.ndarray, name, None)
        if found is None:  # need not be evaluated for functions that ask what it is
            raise AttributeError(f"'numpy.ndarray' object has no attribute {name!r}")
        if callable(found):
            return functools.partial(_call_method, found, self)
        return rewrapped(getattr(compute(self), name), self._graph.root(), [self])

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Capture a call of a ufunc."""
        if LAZY_CLASSES.get(FrameMeta) in [type(each) for each in inputs]:
            return NotImplemented  # frames capture their own calls
        if _is_pandas(sys._getframe(1)):  # its frames hold plain arrays
            return getattr(ufunc, method)(*computed(inputs), **computed(kwargs))
        return capture_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Capture a call of another function of NumPy, or evaluate its arguments."""
        if _is_pandas(sys._getframe(1)):
            return func(*computed(args), **computed(kwargs))
        return capture_function(func, args, kwargs)

    def __getitem__(self, key: Any) -> Any:
        """Return a view for a basic index, a copy for others."""
        if type(key) is LAZY_CLASSES.get(FrameMeta):
            key = key.to_numpy()
        if self._is_elsewhere():
            key = with_values(key)
        meta = self._meta
        if not meta.shape or (type(key) is int and len(meta.shape) == 1):
            return compute(self)[computed(key)]
        if _is_mask(key) and meta.shape[:1] == key._meta.shape != ():
            return self._by_rows(key, CHOOSE, (None, *meta.shape[1:]))
        axes = () if meta.is_known else written_out(key, self.ndim)
        if axes and has_all_rows(axes) and not self._turns(axes):
            found = self._by_rows(axes, OPERATOR, (meta.length, *meta.empty[axes].shape[1:]))
            if isinstance(found, LazyArray) and is_basic(key):
                self._graph.root().add_view(found, self, axes)
            return found
        if not is_basic(key):
            return plain(operator.getitem, (self, key), {})
        data = self._real()
        view = data[computed(key)]
        if is_array(view):
            return wrap(self._graph.root().source(view, data), self._graph.root())
        return rewrapped(compute(self)[computed(key)], self._graph.root())

    def _turns(self, axes: tuple[Any, ...]) -> bool:
        """Return whether rows are reversed, as some functions give other bits: :data:`INEXACT`."""
        turns = any(isinstance(each, slice) and (each.step or 1) < 0 for each in axes)
        return turns and not self._is_elsewhere()

    def _by_rows(self, key: Any, rule: Rule, shape: Shape) -> Any:
        is_cut = (True, True) if isinstance(key, Lazy) else (True,)
        annotation = RowsCall(rule, is_cut, ArrayMeta(shape, self.dtype, exact=False))
        return capture(operator.getitem, (self, key), {}, annotation)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Change elements, before anything later reads them."""
        if self._is_elsewhere():
            key = with_values(key)
        if not self.ndim:
            plain(operator.setitem, (self, key, value), {})  # raises, as numbers have no elements
        elif _is_mask(key) and key.shape == self.shape and is_number(value):
            self._assign(self, value, {"where": key})
        elif key is Ellipsis or (isinstance(key, slice) and key == slice(None)):
            self._assign(self, value, {})
        elif self._is_elsewhere() and is_basic(key):
            view = self[key]
            view._assign(view, value, {})
        elif self._is_elsewhere() and _is_mask(key) and key.ndim == 1:
            self._assign_rows(key, value)
        elif is_basic(key) and is_array(self._real()[computed(key)]):
            self._assign(self[key], value, {})
        else:
            if self._is_elsewhere():
                plain(operator.setitem, (self, key, value), {})  # raises
            before = compute(self)
            before[computed(key)] = computed(value)

    def _assign_rows(self, mask: LazyArray, value: Any) -> None:
        """Change the rows of a mask to rows that it has chosen, or all of them to the same."""
        if has_rows(value):
            self._before_change()
            self._replace(capture_rows_at(self, mask, value))
        else:
            axes = (slice(None), *[None] * (self.ndim - 1))
            self._assign(self, value, {"where": mask[axes]})

    def _is_elsewhere(self) -> bool:
        """Return whether it has rows over a Split."""
        return has_rows(self) and type(self._graph.root()) is not Graph

    def _replace(self, newer: Any) -> None:
        """Take over a newer version of the value, and keep views of it."""
        super()._replace(newer)
        if self._is_elsewhere():
            keep_views(self)

    def _before_change(self) -> None:
        """Evaluate if it is a view of a pending value, or there is one of it: both will change.

        Over a Split both are made anew, as far as indexes say what is a view of what.
        """
        if self._is_elsewhere():
            check_views(self)
            return
        for view, base, _ in self._graph.root().views:
            if self is view() or self is base():
                compute(self)
                return

    def _assign(self, target: Lazy, value: Any, where: dict[str, Any]) -> None:
        with graph_of(self, target, value, where):  # no other thread may evaluate in between
            self._assign_locked(target, value, where)

    def _assign_locked(self, target: Lazy, value: Any, where: dict[str, Any]) -> None:
        self._before_change()
        if isinstance(value, CONSTANTS):
            with np.errstate(all="ignore"):  # raises, if the dtype cannot hold it
                # By masks, NumPy casts its own numbers.
                is_cast = where and isinstance(value, np.generic)
                assign(np.empty(1, self.dtype), value, np.True_ if is_cast else True)
        elif isinstance(value, Lazy) and not self._is_as_known(value):
            value = compute(value)
        if not isinstance(value, (*CONSTANTS, Lazy)):
            check_nesting(value, target.ndim)
            value = np.asarray(value, None if isinstance(value, np.ndarray) else self.dtype)
            if value.ndim and not is_array(value):  # objects or texts, which no batch would cut
                value = value.astype(self.dtype)
        extra = getattr(value, "ndim", 0) - len(cast(ArrayMeta, target._node.meta).shape)
        if extra > 0 and value.shape[:extra] == (1,) * extra:
            value = value[(0,) * extra]
        if target._node.is_pending:
            self._replace(capture(assigned, (target, value), where, ASSIGNED))
        elif target._graph.root().locks.is_read_only(target._node.data):
            plain(assign, (target, value), where)  # raises
        else:
            capture(assign, (target, value), where, ASSIGN, writes=(target._node,))

    def _is_as_known(self, value: Lazy) -> bool:
        """Return whether a value can be assigned without a look at its length."""
        theirs, ours = value._node.meta, self._meta
        if not isinstance(theirs, ArrayMeta):
            return False
        return theirs.is_known or (not ours.is_known and len(theirs.shape) == len(ours.shape))

    def _real(self) -> Any:
        """Return the memory of the value; pending changes of it need not have happened."""
        return compute(self) if self._node.is_pending else self._node.data

    def astype(self, dtype: Any, *args: Any, **kwargs: Any) -> Any:
        """Return a copy with another dtype; evaluates if it need not be one, or has objects."""
        kind = np.dtype(dtype)
        is_cut = self.ndim and kind.itemsize and kind.kind in DTYPES
        if args or kwargs.keys() - {"casting"} or not is_cut:
            return plain(_astype, (self, dtype, *args), kwargs)
        return capture(np.ndarray.astype, (self, dtype), kwargs, ASTYPE)

    def copy(self, order: Any = "C") -> Any:
        """Return a copy; pandas gets an array, which it keeps."""
        if _is_pandas(sys._getframe(1)):
            return compute(self).copy(order)
        if order != "C" or not self.ndim:
            return plain(_copy, (self, order), {})
        return capture(np.copy, (self,), {"order": order}, ELEMENTWISE)

    __hash__ = Lazy.__hash__

    def __pow__(self, other: Any) -> Any:
        """Raise to a power; NumPy's operator differs from its ufunc for some exponents."""
        if type(other) not in (int, float):
            return np.power(self, other)
        is_number = not (self._node.is_pending or self._meta.shape)
        return self._node.data**other if is_number else self._power(other)

    def _power(self, exponent: float) -> Any:
        return capture(operator.pow, (self, exponent), {}, ELEMENTWISE)

    def __ipow__(self, other: Any) -> Any:
        """Raise to a power, in place."""
        if type(other) in (int, float):
            power = self._power(other)
            if not np.can_cast(power.dtype, self.dtype, "same_kind"):
                return plain(operator.ipow, (self, other), {})  # raises
            self[...] = power
            return self
        return capture_ufunc(np.power, "__call__", (self, other), {"out": (self,)})

    def __copy__(self) -> Any:
        """Return a copy."""
        return self.copy(order="K")


def _astype(value: Any, *args: Any, **kwargs: Any) -> Any:
    return value.astype(*args, **kwargs)


def _copy(value: Any, order: Any) -> Any:
    return value.copy(order)


LAZY_CLASSES[ArrayMeta] = LazyArray


def _is_pandas(frame: FrameType) -> bool:
    """Return whether a frame of the stack is one of pandas' own functions."""
    return bool(frame.f_globals.get("__name__", "").startswith("pandas."))


def _operator(name: str, *, reflected: bool) -> Callable[[LazyArray, Any], Any]:
    """Return an operator that leaves operands their own: matrices and sparse arrays have products.

    Parameters
    ----------
    name : str
        Such as ``"add"``.
    reflected : bool
        Whether the lazy array is the right operand.
    """
    captured = getattr(LazyArray, f"__r{name}__" if reflected else f"__{name}__")
    applied = getattr(operator, f"__{name}__")

    def operate(self: LazyArray, other: Any) -> Any:
        given = (other, self) if reflected else (self, other)
        if not self._meta.shape and isinstance(other, str | bytes | list | tuple):
            return plain(applied, given, {})  # a number of NumPy's class repeats these
        if type(other) is LAZY_CLASSES.get(FrameMeta):
            return NotImplemented  # its own operator is captured
        if self._is_elsewhere() and getattr(type(other), "__array_ufunc__", self) is None:
            return NotImplemented  # as arrays do; its own method gets the lazy value
        if type(other) in _USUAL or is_operand(other):
            if name not in ("eq", "ne"):
                return captured(self, other)
            with contextlib.suppress(TypeError):  # of other dtypes, of which no element is equal
                return captured(self, other)
        return plain_into(applied, given, {})

    return operate


def _in_place(name: str) -> Callable[[LazyArray, Any], Any]:
    """Return an operator in place; a number, which NumPy does not change, gives a new one."""
    captured, applied = getattr(LazyArray, f"__i{name}__"), getattr(operator, f"__{name}__")
    evaluating = in_place(name)

    def change(self: LazyArray, other: Any) -> Any:
        other = known(other)
        # Its ufunc takes the vectors that `@=` refuses; sparse arrays and series are the result.
        if name == "matmul" or not (type(other) in _USUAL or is_operand(other)):
            return evaluating(self, other)
        return captured(self, other) if self._meta.shape else applied(self, other)

    return change


_USUAL.add(LazyArray)
for _name in (*BINARY, "lshift", "rshift"):
    setattr(LazyArray, f"__{_name}__", _operator(_name, reflected=False))
    setattr(LazyArray, f"__r{_name}__", _operator(_name, reflected=True))
    setattr(LazyArray, f"__i{_name}__", _in_place(_name))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(LazyArray, f"__{_name}__", _operator(_name, reflected=False))


def _attribute(name: str) -> property:
    """Return an attribute of arrays that a program may set; both evaluate."""

    def get(self: LazyArray) -> Any:
        if name != "flat" and self._is_elsewhere():
            return getattr(np, name)(self)
        return rewrapped(getattr(compute(self), name), self._graph.root(), [self])

    def change(self: LazyArray, value: Any) -> None:
        setattr(compute(self), name, computed(value))

    return property(get, change)


for _name in ("flat", "real", "imag"):
    setattr(LazyArray, _name, _attribute(_name))


def _clip(value: Any, min: Any = None, max: Any = None, out: Any = None, **kwargs: Any) -> Any:
    """Call ``numpy.clip``, which must get both bounds, as the method need not."""
    return np.clip(value, min, max, **kwargs, **({} if out is None else {"out": out}))


METHODS: Final[dict[str, Callable[..., Any] | None]] = {"clip": _clip, "sort": None}
"""Methods of arrays that differ from the function of the same name: ``sort`` is in place."""


def _call_method(method: Callable[..., Any], value: LazyArray, *args: Any, **kwargs: Any) -> Any:
    """Call a method of arrays: by the function of the same name, if that is annotated."""
    function: Any = METHODS.get(method.__name__, getattr(np, method.__name__, None))
    is_ufunc = isinstance(function, np.ufunc) and value.dtype.kind == "c"  # else it is no copy
    if function is _clip or function in FUNCTIONS or function in RULES or is_ufunc:
        return function(value, *args, **kwargs)
    return plain(method, (value, *args), kwargs)


def _is_mask(key: Any) -> bool:
    return isinstance(key, LazyArray) and key.dtype == bool
