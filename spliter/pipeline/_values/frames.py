"""Frames and series of pandas as lazy values: their operators, methods and columns are captured."""

from __future__ import annotations

import functools
import math
import operator
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import numpy as np

from spliter._errors import WholeArrayError
from spliter.pipeline._annotations.groups import AGGREGATES, GROUP_OPTIONS, Aggregates
from spliter.pipeline._annotations.pandas import COLUMNS, DIVISION, METHODS, TO_ARRAY, aggregation
from spliter.pipeline._annotations.rows import (
    CHOOSE,
    OPERATOR,
    SET_COLUMN,
    WHOLE,
    Rule,
    assigned,
    with_column,
)
from spliter.pipeline._calls.calls import Node
from spliter.pipeline._calls.graph import Graph
from spliter.pipeline._calls.metas import FrameMeta
from spliter.pipeline._values.capture import LAZY_CLASSES, capture, graph_of, plain, rewrapped
from spliter.pipeline._values.frame_calls import (
    LazyAccessor,
    LazyIndexer,
    are_columns,
    call_method,
    capture_choice,
    capture_frame,
    delivered,
    is_lazy_mask,
    is_over_split,
    method_of,
    operand_meta,
    run_plain,
)
from spliter.pipeline._values.lazy import (
    BINARY,
    Lazy,
    asked_for_class,
    compute,
    computed,
    define_operators,
    evaluated,
    identity,
    is_frame,
)
from spliter.pipeline._values.row_calls import check_views

DTYPES: Final = ("dtype", "dtypes")

KNOWN: Final = ("columns", "name", "ndim", *DTYPES)
"""Attributes that a frame or series without rows has alike."""

ACCESSORS: Final = ("str", "dt")

INDEXERS: Final = ("loc", "iloc", "at", "iat")

OPERATORS: Final[dict[Any, Rule | None]] = {
    operator.floordiv: DIVISION,
    operator.mod: DIVISION,
    operator.matmul: None,
}
"""Rules of operators other than `OPERATOR`."""


class LazyFrame(Lazy):
    """A frame or series that is evaluated when it is needed; its columns and dtypes are known."""

    __slots__ = ("_groups",)

    def __init__(self, node: Node, graph: Graph) -> None:
        super().__init__(node, graph)
        self._groups: list[weakref.ref[LazyGroupBy]] = []

    def _settle(self) -> None:
        """Group the rows as they are now for the group-bys that the program still holds."""
        groups, self._groups = self._groups, []
        for each in groups:
            if (group := each()) is not None:
                group._settle()

    def _is_grouped(self, column: str | None = None) -> bool:
        """Return whether the program holds a group-by that must not see a change of a column.

        Parameters
        ----------
        column : str, optional
            The column that changes; by default all do.
        """
        groups = [group for each in self._groups if (group := each()) is not None]
        return any(column is None or group._reads(column) for group in groups)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The class of the value, for ``isinstance``."""
        with asked_for_class():
            return type(self._meta.empty)

    @property
    def _meta(self) -> FrameMeta:
        return cast(FrameMeta, operand_meta(self))

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows, and of columns."""
        return (len(self), *self._meta.empty.shape[1:])

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def empty(self) -> bool:
        """Whether it has no elements."""
        return not self.size

    def __len__(self) -> int:
        """Return the number of rows; evaluates if it is not known."""
        length = self._meta.length
        if length is None:
            length = self._graph.root().length_of(self._node)
        return len(compute(self)) if length is None else length

    def __getattr__(self, name: str) -> Any:
        """Return a method that is captured, a column, or what is known; else evaluate."""
        empty = self._meta.empty
        if name.startswith("__"):  # such as __dataframe__, which only some classes have
            return getattr(compute(self) if hasattr(empty, name) else empty, name)
        if empty.ndim == 2 and name in empty and not hasattr(type(empty), name):
            return self[name]
        if name in KNOWN:
            is_known = self._meta.exact or name not in DTYPES
            is_there = not self._node.is_pending and not is_over_split(self)
            found = self._node.data if is_there else (empty if is_known else compute(self))
            return getattr(found, name)
        if name in ACCESSORS and empty.ndim == 1:
            return LazyAccessor(self, name, getattr(empty, name))
        if name in INDEXERS:
            return LazyIndexer(self, name)
        if name == "groupby":
            return functools.partial(_group, self)
        if name == "unstack":  # so that the frame before it need not be stored
            return lambda *args, **kwargs: capture(method_of(name), (self, *args), kwargs, WHOLE)
        if name in METHODS and hasattr(empty, name):
            return functools.partial(call_method, self, name)
        if name == "assign" and empty.ndim == 2:
            return functools.partial(_assign, self)
        if name in ("to_numpy", "values") and is_over_split(self):
            if name == "to_numpy":
                return lambda *args, **kwargs: _as_array(method_of(name), self, *args, **kwargs)
            return _as_array(operator.attrgetter(name), self)
        try:
            found = getattr(compute(self), name)
        except WholeArrayError:
            if empty.ndim == 2 or empty.index.dtype.kind != "O":  # texts are attributes, too
                getattr(empty, name)  # raises what the plain program raises
            raise
        if name.startswith("_"):  # for pandas' own functions
            return found
        if name in ("eval", "query"):  # they look names up in the frame of their caller's caller
            root = self._graph.root()
            return lambda *args, **kwargs: delivered(
                rewrapped(found(*args, **{"level": 1, **kwargs}), root)
            )
        if isinstance(found, types.MethodType):
            return functools.partial(call_method, self, name)
        return delivered(rewrapped(found, self._graph.root()))

    def __setattr__(self, name: str, value: Any) -> None:
        """Evaluate, and set an attribute of the value."""
        if name in ("_node", "_graph", "_groups"):
            super().__setattr__(name, value)
        else:
            setattr(compute(self), name, computed(value))

    def __delattr__(self, name: str) -> None:
        """Evaluate, and delete an attribute of the value."""
        delattr(compute(self), name)

    def __dir__(self) -> list[str]:
        """Return the names of the attributes of the value, columns among them."""
        return dir(self._meta.empty)

    def __copy__(self) -> Any:
        """Copy the rows."""
        return call_method(self, "copy")

    def __deepcopy__(self, memo: Any) -> Any:
        """Copy the rows."""
        return call_method(self, "copy")

    def __round__(self, *digits: int) -> Any:
        """Round the values."""
        return call_method(self, "round", *digits)

    def __contains__(self, item: Any) -> bool:
        """Return whether there is a column, or a label of a series."""
        empty = self._meta.empty
        return item in (empty if empty.ndim == 2 else compute(self))

    def __iter__(self) -> Iterator[Any]:
        """Yield the names of columns, or the values of a series."""
        empty = self._meta.empty
        return iter(empty if empty.ndim == 2 else compute(self))

    def __delitem__(self, key: Any) -> None:
        """Evaluate, and delete a column or a row."""
        plain(operator.delitem, (self, key), {})

    def __getitem__(self, key: Any) -> Any:
        """Return columns, or the rows where a mask is true."""
        rule = CHOOSE if is_lazy_mask(key) else COLUMNS
        if rule is COLUMNS and (self._meta.empty.ndim == 1 or not are_columns(key)):
            return run_plain(operator.getitem, (self, key), {})
        return capture_frame(operator.getitem, rule, (self, key), {})

    def __setitem__(self, key: Any, value: Any) -> None:
        """Set a column, or values: of the caller's own frame at once, of others when evaluated."""
        with graph_of(self, key, value):  # no other thread may evaluate in between
            is_captured = False
            if self._meta.empty.ndim == 1:
                is_captured = LazyIndexer(self, "loc").captures_change(key, value)
            elif isinstance(key, str):
                is_captured = self._change(with_column, SET_COLUMN, (key, value), key)
            if not is_captured:
                plain(operator.setitem, (self, key, value), {})

    def _change(self, fn: Any, rule: Rule, args: Any, column: str | None = None) -> bool:
        """Capture a call that makes a changed copy, if possible; return whether it was captured."""
        if not self._node.is_pending or self._is_grouped(column):
            return False
        if is_over_split(self):
            check_views(self)  # it may be another form of a value that the program holds
        changed = capture_frame(fn, rule, (self, *args), {})
        if is_captured := self._node.is_pending:
            self._replace(changed)
        return is_captured

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Capture a call of a ufunc."""
        fn = ufunc if method == "__call__" else getattr(ufunc, method)
        if method != "__call__" or kwargs or ufunc.nout > 1 or ufunc.signature:
            return run_plain(fn, inputs, kwargs)
        return capture_frame(fn, OPERATOR, inputs, {})

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Capture a choice between values; other functions call the methods of the frame."""
        result = capture_choice(func, args, kwargs)
        if result is not NotImplemented or {*types} - {LazyFrame, np.ndarray}:
            return result  # lazy arrays capture their own calls
        return func._implementation(*args, **kwargs)


def _as_array(fn: Callable[..., Any], value: LazyFrame, *args: Any, **kwargs: Any) -> Any:
    return capture_frame(fn, TO_ARRAY, (value, *args), kwargs)


def _operate(function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    return capture_frame(function, OPERATORS.get(function, OPERATOR), operands, {})


def _evaluating(name: str) -> Callable[..., Any]:
    return lambda value, *args: run_plain(method_of(name), (value, *args), {})


def _in_place(name: str) -> Callable[..., Any]:
    function, changing = getattr(operator, f"__{name}__"), getattr(operator, f"__i{name}__")

    def change(value: LazyFrame, other: Any) -> Any:
        """Change the caller's own frame at once, others when they are evaluated."""
        # Another series could have another name, which the result of the operator would not keep.
        is_named = isinstance(other, LazyFrame) or is_frame(other)
        with graph_of(value, other):  # no other thread may evaluate in between
            if value._node.is_pending and not (is_named or value._is_grouped()):
                if is_over_split(value):
                    check_views(value)
                value._replace(_operate(function, (value, other)))
            else:
                node = value._node
                compute(value)
                node.data = changing(node.data, computed(other))
        return value

    return change


define_operators(LazyFrame, _operate)
for _name in BINARY:
    setattr(LazyFrame, f"__i{_name}__", _in_place(_name))
for _name in ("divmod", "rdivmod"):
    setattr(LazyFrame, f"__{_name}__", _evaluating(f"__{_name}__"))


LAZY_CLASSES[FrameMeta] = LazyFrame


class LazyGroupBy:
    """Groups of a lazy frame; commutative aggregates are captured, the rest evaluates."""

    def __init__(
        self,
        value: LazyFrame,
        by: Any,
        options: dict[str, bool],
        selection: Any = None,
    ) -> None:
        self._value = value
        self._by = by
        self._options = options
        self._selection = selection
        self._groups: Any = None
        """Those of pandas, once they are needed."""
        self._is_settled = self._is_used = False
        self._empty = self._of(value._meta.empty)  # raises of missing columns
        value._groups.append(weakref.ref(self))

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The class of the groups, for ``isinstance``."""
        return type(self._empty)

    def __reduce__(self) -> tuple[Any, ...]:
        """Evaluate, and copy or pickle the groups of pandas."""
        return identity, (self._evaluated(),)

    def _of(self, frame: Any) -> Any:
        grouped = frame.groupby(self._by, **self._options)
        return grouped if self._selection is None else grouped[self._selection]

    def _settle(self) -> None:
        """Be those of pandas: the frame may change from now on."""
        self._is_settled = True
        groups = self._evaluated()
        if self._is_used:
            _ = groups._obj_with_exclusions  # pandas has kept the columns as they were

    def _reads(self, column: str) -> bool:
        """Return whether a column is one of the keys, or selected; all are once they were used."""
        uses_all = self._is_used and self._selection is None
        return uses_all or column in [*_listed(self._by), *_listed(self._selection)]

    def __getitem__(self, key: Any) -> Any:
        """Select columns."""
        if self._is_settled or self._selection is not None or not are_columns(key):
            return self._evaluated()[key]
        key = key if isinstance(key, str) else [*key]  # as they are now
        return LazyGroupBy(self._value, self._by, self._options, key)

    def __getattr__(self, name: str) -> Any:
        """Return an aggregate that is captured, or evaluate."""
        if self._is_settled:
            return getattr(self._groups, name)
        if name in AGGREGATES:
            return functools.partial(self._aggregate, name)
        if name in ("agg", "aggregate"):
            return self._aggregate_by
        if name in self._value.columns and not hasattr(type(self._empty), name):
            return self[name]
        return getattr(self._evaluated(), name)

    def __iter__(self) -> Iterator[Any]:
        """Evaluate, and yield groups."""
        return iter(self._evaluated())

    def __len__(self) -> int:
        """Evaluate, and return the number of groups."""
        return len(self._evaluated())

    def _evaluated(self) -> Any:
        if self._groups is None:
            self._groups = self._of(evaluated(self._value))
        return self._groups

    def _aggregate_by(self, how: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Aggregate by the name of a method, or evaluate."""
        if isinstance(how, str) and how in AGGREGATES:
            return self._aggregate(how, *args, **kwargs)
        return self._evaluated().agg(how, *args, **kwargs)

    def _aggregate(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs or self._is_settled:
            return getattr(self._evaluated(), name)(*args, **kwargs)
        self._is_used |= name != "size"
        meta = self._value._meta
        dtypes = dict(zip(meta.empty.columns, meta.empty.dtypes, strict=True)) if meta.exact else {}
        kind = Aggregates(self._by, self._selection, name, self._options, dtypes)
        return capture_frame(kind, aggregation(kind), (self._value,), {})


def _listed(columns: str | list[str] | None) -> list[str]:
    return [columns] if isinstance(columns, str) else columns or []


def _assign(value: Any, /, **columns: Any) -> Any:
    """Set columns of a copy, one after the other."""
    expression = sys.modules["pandas"].api.typing.Expression
    if any(isinstance(each, expression) for each in columns.values()):
        return run_plain(method_of("assign"), (value,), columns)
    for name, given in columns.items():
        column = given(value) if callable(given) else given
        if isinstance(value, LazyFrame):
            value = capture_frame(assigned, SET_COLUMN, (value, name, column), {})
        else:
            value = assigned(value, name, computed(column))
    return value if columns else value.copy()


def _group(value: LazyFrame, by: Any = None, **kwargs: Any) -> Any:
    empty = value._meta.empty
    if empty.ndim == 1 or not are_columns(by) or kwargs.keys() - GROUP_OPTIONS:
        return plain(method_of("groupby"), (value, by), kwargs)
    by = by if isinstance(by, str) else [*by]  # as they are now
    return LazyGroupBy(value, by, kwargs)
