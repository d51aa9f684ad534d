"""Capture calls on pandas' frames and series, if these can be cut by rows.

What is known of a result follows from the call on no rows.
"""

from __future__ import annotations

import datetime as dt
import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np

from spliter._errors import WholeArrayError
from spliter.pipeline._annotations.pandas import METHODS, method_rule, rows_at
from spliter.pipeline._annotations.rows import (
    CHOOSE,
    SET_VALUES,
    RowsCall,
    Rule,
    select,
    select_rule,
    with_values,
)
from spliter.pipeline._calls.graph import Graph
from spliter.pipeline._calls.metas import ArrayMeta, FrameMeta, Meta, meta_of
from spliter.pipeline._values.capture import capture, graph_of, known, plain, wrap
from spliter.pipeline._values.lazy import (
    Lazy,
    compute,
    computed,
    is_capturable,
    is_frame,
    lazies_in,
)
from spliter.pipeline._values.lazy_numbers import number

SCALARS: Final = (type, np.dtype, dt.date, dt.timedelta, type(None))
"""Types of arguments without rows, with the scalars of NumPy."""


@functools.cache
def method_of(path: str) -> Callable[..., Any]:
    """Return the function that calls a method of its first argument.

    Parameters
    ----------
    path : str
        Such as ``"round"`` or ``"str.lower"``.
    """
    find = operator.attrgetter(path)

    def call(value: Any, /, *args: Any, **kwargs: Any) -> Any:
        return find(value)(*args, **kwargs)

    call.__name__ = path
    return call


@dataclass(frozen=True, eq=False)
class WithRow:
    """A call on a frame and a series that has a value for each column.

    Parameters
    ----------
    fn : callable
    row : Series
    """

    fn: Callable[..., Any]
    row: Any

    @property
    def __name__(self) -> str:
        """Name of the function."""
        return self.fn.__name__

    def __call__(self, frame: Any, **kwargs: Any) -> Any:
        """Call."""
        return self.fn(frame, self.row, **kwargs)


def call_method(value: Lazy, path: str, /, *args: Any, **kwargs: Any) -> Any:
    """Capture a call of a method, or run it on evaluated arguments."""
    return capture_frame(method_of(path), method_rule(path, args, kwargs), (value, *args), kwargs)


def capture_frame(
    fn: Callable[..., Any], rule: Rule | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Capture a call if it can be cut by rows, or run it on evaluated arguments.

    Parameters
    ----------
    fn : callable
    rule : Rule or None
    args, kwargs
        Its arguments, a lazy frame among them.
    """
    args = args[0], *map(known, args[1:])
    kwargs = {name: known(each) for name, each in kwargs.items()}
    args = tuple(map(_with_numbers, args))
    kwargs = {name: _with_numbers(each) for name, each in kwargs.items()}
    if rule is not None and rule.aligned and not rule.mixed and _is_row(*args):
        row = computed(args[1])
        if row.index.equals(args[0].columns):
            # A copy, as the program may change it before the call runs.
            fn, args = WithRow(fn, row.copy().set_axis(row.index.copy())), args[:1]
    if rule is None:
        return run_plain(fn, args, kwargs)
    if rule.at_once and _is_there(*args, *kwargs.values()):
        graph = args[0]._graph.root()  # whose pending calls may go on waiting
        result = fn(args[0]._node.data, *args[1:], **kwargs)
        return wrap(graph.source(result), graph) if is_frame(result) else result
    try:
        is_cut = _is_cut(rule, args, kwargs)
    except Exception:  # noqa: BLE001 -- the call itself raises the error of the plain program
        is_cut = None
    if is_cut is None:
        return run_plain(fn, args, kwargs)
    try:
        annotation = RowsCall(rule, is_cut, _meta_without_rows(fn, rule, args, kwargs))
    except Exception as error:  # noqa: BLE001
        try:
            return run_plain(fn, args, kwargs)
        except WholeArrayError:
            raise error from None
    return delivered(capture(fn, args, kwargs, annotation))


def run_plain(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a call on evaluated arguments; frames that it returns are lazy again."""
    return delivered(plain(fn, args, kwargs))


def delivered(result: Any) -> Any:
    """Return a frame as it is; evaluate arrays and numbers, which pandas would not know as lazy.

    Over a Split they stay lazy: they are not here.
    """
    is_here = isinstance(result, Lazy) and not is_over_split(result)
    return number(result) if is_here and not isinstance(result._node.meta, FrameMeta) else result


class LazyAccessor:
    """The accessor ``str`` or ``dt`` of a lazy series; its methods and properties are captured."""

    def __init__(self, value: Any, name: str, empty: Any) -> None:
        self._value = value
        self._name = name
        self._empty = empty

    def __getattr__(self, name: str) -> Any:
        """Return a method, or a property; both are captured, or evaluate."""
        path = f"{self._name}.{name}"
        if callable(getattr(self._empty, name)):
            return functools.partial(call_method, self._value, path)
        return capture_frame(operator.attrgetter(path), METHODS.get(path), (self._value,), {})

    def __getitem__(self, key: Any) -> Any:
        """Return characters of each text."""
        if isinstance(key, slice):
            return call_method(self._value, f"{self._name}.slice", key.start, key.stop, key.step)
        return call_method(self._value, f"{self._name}.get", key)


class LazyIndexer:
    """An indexer of a lazy frame: ``loc`` with a mask is captured, anything else evaluates."""

    def __init__(self, value: Any, name: str) -> None:
        self._value = value
        self._name = name

    def __getitem__(self, key: Any) -> Any:
        """Return all rows or those where a mask is true, all columns or some; else evaluate."""
        mask, *columns = key if isinstance(key, tuple) else (key,)
        is_table = self._value.ndim == 2 and len(columns) == 1 and are_columns(*columns)
        if self._name == "loc" and is_table and isinstance(mask, slice) and mask == slice(None):
            return self._value[columns[0]]
        if self._name == "loc" and is_lazy_mask(mask):
            if not columns:
                return capture_frame(rows_at, CHOOSE, (self._value, mask), {})
            if is_table:
                return self._value[columns[0]].loc[mask]
        return run_plain(_item, (self._value, self._name, key), {})

    def __setitem__(self, key: Any, value: Any) -> None:
        """Set values where a mask is true, of a frame in one column; else evaluate before."""
        mask, *column = key if isinstance(key, tuple) else (key,)
        is_one = [type(each) for each in column] == [str] * (self._value.ndim - 1)
        with graph_of(self._value, key, value):  # no other thread may evaluate in between
            if not (self._name == "loc" and is_one and self.captures_change(mask, value, *column)):
                getattr(compute(self._value), self._name)[computed(key)] = computed(value)

    def captures_change(self, mask: Any, value: Any, *column: str) -> bool:
        """Capture that values are set where a mask is true, if possible; return whether it was."""
        args = mask, known(value), *column
        # pandas aligns a series, unless labels repeat; those of a Split are not known.
        can_align = is_over_split(self._value) or not _axes(args[1])
        is_captured = can_align and is_lazy_mask(mask)
        return is_captured and self._value._change(with_values, SET_VALUES, args, *column)


def _item(value: Any, indexer: str, key: Any) -> Any:
    return getattr(value, indexer)[key]


def is_lazy_mask(key: Any) -> bool:
    """Return whether a key is lazy and has a value for each row, as a mask has."""
    return isinstance(key, Lazy) and isinstance(key._node.meta, FrameMeta | ArrayMeta)


def are_columns(key: Any) -> bool:
    """Return whether a key is the name of a column, or a list of names."""
    return isinstance(key, str) or (
        isinstance(key, list) and bool(key) and all(isinstance(each, str) for each in key)
    )


def capture_choice(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Capture a call of ``numpy.where`` or ``numpy.select``; of others return NotImplemented."""
    if func is np.select and len(args) > 1 and len(args[0]) == len(args[1]):
        func, args = select, (*args[0], *args[1], *(args[2:] or kwargs.values() or (0,)))
    elif func is not np.where or len(args) < 3:
        return NotImplemented
    return capture_frame(func, select_rule(len(args)), args, {})


def _with_numbers(value: Any) -> Any:
    """Return an argument, evaluated if it is a plain frame or a dict with lazy numbers in it."""
    return computed(value) if is_frame(value) or isinstance(value, dict) else value


def _is_row(value: Any, *others: Any) -> bool:
    """Return whether a series stands by a frame; pandas aligns it with the columns."""
    is_pair = isinstance(value, Lazy) and len(others) == 1
    return is_pair and _axes(others[0]) == 1 and _axes(value) == 2


def _is_there(value: Any, *others: Any) -> bool:
    """Return whether a value is evaluated, and here, and no other argument is lazy."""
    is_lazy = value._node.is_pending or is_over_split(value) or lazies_in(others)
    return not (is_lazy or value._graph.root().writes_wait)


def _axes(value: Any) -> int:
    """Return the number of axes of a frame or series; 0 of other values."""
    meta = operand_meta(value) if isinstance(value, Lazy) or is_frame(value) else None
    return int(meta.empty.ndim) if isinstance(meta, FrameMeta) else 0


def _is_cut(rule: Rule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, ...] | None:
    """Return whether each input of a call is cut; ``None`` if the call cannot be cut."""
    operands = (*args, *kwargs.values())
    metas = (operand_meta(each) for each in operands if isinstance(each, Lazy))
    main = next(meta for meta in metas if isinstance(meta, FrameMeta))
    is_first = True
    is_cut = []
    if len(args) > len(rule.names) + 1 or kwargs.keys() - {*rule.names}:
        return None
    for each in operands:
        if isinstance(each, Lazy) or is_capturable(each):
            cut = _is_aligned(main, each, rule) if rule.aligned or is_first else False
            if cut is None:
                return None
            is_cut.append(cut)
            is_first = False
        elif not _is_plain(each, rule):
            return None
    named = {name: _empty(each) for name, each in kwargs.items()}
    checks = [rule.is_for] if main.exact else [rule.is_for, rule.is_for_inexact]
    return tuple(is_cut) if all(check(*map(_empty, args), **named) for check in checks) else None


def _meta_without_rows(
    fn: Callable[..., Any], rule: Rule, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Meta:
    """Return the meta of a result, from a call on no rows; raises what the call raises."""
    first, *others = map(_empty, args)
    named = {name: _empty(each) for name, each in kwargs.items()}
    with np.errstate(all="ignore"):
        result = fn(first, *others, **named)
        if isinstance(result, float):  # NaN, whose dtype is not that of an extreme of rows
            one = first.dtype.type(1)
            result = fn(first.reset_index(drop=True).reindex([0], fill_value=one))
    return _result_meta(meta_of(result), keeps_rows=rule.keeps_rows)


def _is_aligned(main: FrameMeta, value: Any, rule: Rule) -> bool | None:
    """Return whether an operand is cut with the rows of the first; ``None`` if it is not known."""
    meta = operand_meta(value)
    if isinstance(meta, ArrayMeta) and not meta.shape:
        return False
    if isinstance(meta, FrameMeta):
        fits = _same_labels(main, meta)
        ndim = meta.empty.ndim
    else:
        # Over a Split no length is known; the types of both say whether their rows are the same.
        is_known = main.length is not None or is_over_split(value)
        fits = is_known and meta is not None and meta.shape == (main.length,)
        ndim = 1
    return True if fits and (rule.mixed or ndim == main.empty.ndim) else None


def is_over_split(value: Any) -> bool:
    """Return whether a value is one of a pipeline over a Split."""
    return isinstance(value, Lazy) and type(value._graph.root()) is not Graph


def _same_labels(one: FrameMeta, other: FrameMeta) -> bool:
    """Return whether two frames have the same labels in the same order: else pandas aligns them."""
    if one.index is other.index:
        return True
    known = hasattr(one.index, "identical") and hasattr(other.index, "identical")
    return known and bool(one.index.identical(other.index))


def _is_plain(value: Any, rule: Rule) -> bool:
    """Return whether an argument is the same for all pieces."""
    if np.isscalar(value) or isinstance(value, SCALARS):
        return True
    if not rule.aligned and hasattr(type(value), "get_indexer"):  # pandas' indexes do not change
        return True
    return (
        not rule.aligned and isinstance(value, list | tuple | set | dict) and not lazies_in(value)
    )


def operand_meta(value: Any) -> Meta:
    """Return the meta of an operand; of a frame that exists as it is now."""
    if not isinstance(value, Lazy):
        return meta_of(value)
    if not value._node.is_pending:  # a call may have changed the number of its rows in place
        value._node.meta = meta_of(value._node.data)
    return value._node.meta


def _empty(value: Any) -> Any:
    """Return an operand without rows."""
    if not isinstance(value, Lazy) and not is_capturable(value):
        return value
    return cast(ArrayMeta | FrameMeta, operand_meta(value)).empty


def _result_meta(meta: Meta, *, keeps_rows: bool) -> Meta:
    if isinstance(meta, FrameMeta):
        return FrameMeta(meta.empty, None)
    if not isinstance(meta, ArrayMeta) or (meta.shape and not keeps_rows):
        return None
    return ArrayMeta((None, *meta.shape[1:]) if meta.shape else (), meta.dtype, exact=False)
