"""Annotations of the methods of pandas' frames and series; imports nothing of pandas.

Rows of a result have the labels of the rows they come from. A merge numbers its rows anew, which
pieces cannot do: their labels are replaced at the end, and rows filtered after a merge have none.
"""

from __future__ import annotations

import datetime as dt
import functools
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

import numpy as np

from spliter.backend.contents import concatenate
from spliter.pipeline._annotations.dtypes import (
    all_are,
    dtypes_of,
    has_double_mean,
    has_flags,
    has_numbers,
    is_number,
    is_text,
)
from spliter.pipeline._annotations.groups import (
    Aggregates,
    count_values,
    most_frequent_first,
    sum_counts,
)
from spliter.pipeline._annotations.numpy import extreme_finish, extreme_merge, extreme_partial
from spliter.pipeline._annotations.rows import (
    Check,
    Columns,
    Renumbered,
    Rule,
    chosen_rows,
    fits,
    same_rows,
)
from spliter.pipeline._calls.calls import Call, Node
from spliter.pipeline._calls.metas import FrameMeta
from spliter.pipeline._calls.split_types import Reduction, SplitType


def _has_text(frame: Any, *args: Any, **kwargs: Any) -> bool:
    return frame.ndim == 1 and is_text(frame.dtype)


def _has_frequency(series: Any, freq: Any = None) -> bool:
    """Return whether periods have a given frequency: pandas infers it from all dates otherwise."""
    return isinstance(freq, str) and isinstance(series.dtype, np.dtype)  # pandas warns of zones


def _has_double_mean(value: Any) -> bool:
    return all_are(has_double_mean, value)


def _has_double_var(value: Any, axis: Any = 0, skipna: Any = True, ddof: Any = 1) -> bool:
    is_default = axis in (0, "index") and skipna is True
    return is_default and _has_double_mean(value) and isinstance(ddof, int)


def _has_doubles(value: Any) -> bool:
    return all_are(lambda dtype: bool(dtype == np.float64), value)


def _is_along_rows(
    check: Callable[[Any], bool], frame: Any, axis: Any = 0, skipna: Any = True
) -> bool:
    return frame.ndim == 2 and axis in (1, "columns") and skipna is True and check(frame)


def _can_be_unique(series: Any) -> bool:
    return series.ndim == 1 and (is_number(series.dtype) or is_text(series.dtype))


def _holds(frame: Any, *values: Any) -> bool:
    """Return whether a frame keeps its dtypes with some values, and missing ones, in it.

    The dtype of integers would depend on whether values are missing.
    """
    dtypes = dtypes_of(frame)
    floats = all(isinstance(each, np.dtype) and each.kind == "f" for each in dtypes)
    texts = all(map(is_text, dtypes))
    return (floats or texts) and all(
        dtypes_of(value) == dtypes
        if getattr(value, "ndim", 0)
        else all(fits(value, dtype) for dtype in dtypes)
        for value in values
    )


def _can_replace(frame: Any, condition: Any, *other: Any, **named: Any) -> bool:
    masks = all(each == np.dtype(bool) for each in dtypes_of(condition))
    return masks and _holds(frame, *other, *named.values())


def _can_fill(frame: Any, *value: Any, **named: Any) -> bool:
    return _holds(frame, *value, *named.values())


def _has_columns_for(check: Check, frame: Any, *given: Any, **named: Any) -> bool:
    """Return whether columns pass a check with what a dict has for each."""
    pairs = [(each, value) for items in (*given, *named.values()) for each, value in items.items()]
    return frame.ndim == 2 and all(check(frame[at], value) for at, value in pairs if at in frame)


def _can_convert(frame: Any, *dtype: Any, **named: Any) -> bool:
    (wanted,) = (*dtype, *named.values())
    if isinstance(wanted, dict):
        return _has_columns_for(_can_convert, frame, wanted)
    # Texts of dates have the time of day if one of all dates has.
    has_dates = any(isinstance(each, np.dtype) and each.kind in "mM" for each in dtypes_of(frame))
    return (
        bool(wanted != "category")
        and getattr(wanted, "categories", ()) is not None
        and not (has_dates and not _is_to_number(frame, wanted))
    )


def _is_to_number(frame: Any, dtype: Any) -> bool:
    """Return whether all values become numbers, and not texts that show the dtype they had."""
    try:
        return np.dtype(dtype).kind in "iufcb"
    except TypeError:
        return False


def _can_compute(one: Any, other: Any) -> bool:
    """Return whether the dtype of a quotient is known: of integers not if a divisor may be 0."""
    operands = [each for each in (one, other) if hasattr(each, "ndim")]
    has_floats = all(dtype.kind == "f" for each in operands for dtype in dtypes_of(each))
    return has_floats or (isinstance(other, int | float) and other != 0)


def _can_join(left: Any, right: Any, *, on: Any, how: str = "inner", **named: Any) -> bool:
    """Return whether a merge keeps the order of the left rows, and the dtypes of both sides."""
    if left.ndim != 2 or getattr(right, "ndim", 0) != 2 or how not in ("inner", "left"):
        return False
    if {*np.atleast_1d(on)} & {*left.index.names, *right.index.names}:
        return False  # of labels, which are kept then
    return how == "inner" or all(_holds(right[each]) for each in right.drop(columns=on))


def _keeps_order(left: Any, right: Any, *, on: Any, how: str = "inner", **named: Any) -> bool:
    """Return whether rows are in the order of the left ones; before pandas 3.1 not all are."""
    version: str = sys.modules["pandas"].__version__
    is_new = tuple(map(int, version.split(".")[:2])) >= (3, 1)
    return is_new or how == "left" or not right.duplicated(on).any()


def _joined(number: int, kind: SplitType) -> SplitType:
    return Renumbered(number)


def _is_by_columns(value: Any, other: Any = None, axis: Any = "columns") -> bool:
    """Return whether an operator aligns a series with the columns of a frame, as by default."""
    return isinstance(axis, int | str) and axis in (1, "columns")


def rows_at(frame: Any, mask: Any) -> Any:
    """Return ``frame.loc[mask]``."""
    return frame.loc[mask]


def _shallow(frame: Any) -> Any:
    """Return a copy that shares the memory: pieces are not changed."""
    return frame.copy(deep=False)


def _is_of_columns(frame: Any, labels: Any = None, *, axis: Any = 0, columns: Any = None) -> bool:
    """Return whether columns are dropped, and no rows."""
    return (labels is None) != (columns is None) and (columns is not None or axis in (1, "columns"))


def _renames(value: Any, name: Any = None, *, columns: Any = None) -> bool:
    """Return whether a series gets a name, or columns get names."""
    return isinstance(name, str) if value.ndim == 1 else columns is not None


def _mean_parts(value: Any) -> tuple[Any, Any]:
    if value.ndim == 1 and value.dtype.kind != "f":
        return value.to_numpy().sum(dtype=np.float64), len(value)
    return np.nansum(value.to_numpy(), axis=0, dtype=np.float64), value.count()


def _add_parts(one: Any, other: Any) -> tuple[Any, Any]:
    return one[0] + other[0], one[1] + other[1]


def _mean(parts: Any) -> Any:
    total, count = parts
    if hasattr(count, "index"):  # of a frame
        return total / count
    return total / count if count else np.nan


def _squares(value: Any, axis: Any = 0, skipna: Any = True, ddof: int = 1) -> tuple[Any, ...]:
    """Return count, mean and sum of squared distances from it, `ddof`, and the number of rows."""
    values = value.to_numpy(np.float64)
    count = value.count()
    mean = np.nansum(values, axis=0) / np.maximum(count, 1)
    distances = np.where(np.isnan(values), 0.0, values - np.asarray(mean))
    return count, mean, (distances**2).sum(axis=0), ddof, len(value)


def _add_squares(one: Any, other: Any) -> tuple[Any, ...]:
    """Merge as :func:`.var_merge`, for each column of a frame."""
    count = one[0] + other[0]
    step, share = other[1] - one[1], other[0] / np.maximum(count, 1)
    squares = one[2] + other[2] + step**2 * (one[0] * share)
    return count, one[1] + step * share, squares, one[3], one[4] + other[4]


def _var(parts: Any) -> Any:
    count, _, squares, ddof, rows = parts
    if hasattr(count, "index"):  # of a frame
        return squares / (count - ddof).where(count > ddof)
    missing = np.float64(np.nan) if rows else np.nan  # as pandas
    return squares / (count - ddof) if count > ddof else missing


def _std(parts: Any) -> Any:
    found = _var(parts)
    return found if type(found) is float else np.sqrt(found)


def _distinct(series: Any) -> Any:
    return type(series)(series.unique(), dtype=series.dtype)


def _both(one: Any, other: Any) -> Any:
    return _distinct(concatenate([one, other]))


def _reduction(
    is_for: Check,
    merge: Callable[[Any, Any], Any],
    partial: Callable[..., Any] | None = None,
    finish: Callable[[Any], Any] | None = None,
    *,
    names: tuple[str, ...] = (),
    commutative: bool = True,
    at_once: bool = False,
) -> Rule:
    kind = Reduction(partial, merge, finish, commutative=commutative)
    return Rule(lambda number, rows: kind, is_for, names, partial=partial, at_once=at_once)


def _has_extreme(value: Any) -> bool:
    is_date = value.ndim == 1 and str(value.dtype).startswith(("datetime64[", "timedelta64["))
    return is_date or has_numbers(value)


def _extreme_of_two(ufunc: np.ufunc, one: Any, other: Any) -> Any:
    """Return the extreme of two numbers, dates or spans that are not missing if one is not."""
    if not isinstance(one, dt.date | dt.timedelta):
        return ufunc(one, other)
    there = [each for each in (one, other) if each == each]  # noqa: PLR0124 -- NaT is not
    return (min if ufunc is np.fmin else max)(there, default=one)


def _extreme(name: str, ufunc: np.ufunc) -> Rule:
    # The extreme of no rows is NaN, which would turn integers to floats.
    fn = operator.methodcaller(name)
    partial = functools.partial(extreme_partial, fn)
    choose: Any = functools.partial(_extreme_of_two, ufunc)
    finish = functools.partial(extreme_finish, fn, choose)
    return _reduction(_has_extreme, extreme_merge, partial, finish, at_once=True)


def aggregation(kind: Aggregates) -> Rule:
    """Return the rule of an aggregation of groups."""
    is_sorted = kind.options.get("sort", True)
    reduction = _reduction(
        kind.is_for, kind.merge, kind.partial, kind.finish, commutative=is_sorted
    )
    return replace(
        reduction,
        reads=lambda call, _: [frozenset(kind.reads(_empty(call.inputs[0])))],
    )


def _empty(node: Node) -> Any:
    return cast(FrameMeta, node.meta).empty


def _chosen_columns(call: Call, wanted: Columns) -> Sequence[Columns]:
    key = call.args[1]
    return [frozenset([key] if isinstance(key, str) else key)]


def _joined_columns(call: Call, wanted: Columns) -> Sequence[Columns]:
    """Return the columns to merge; those that both sides have decide on the names of the result."""
    sides = [frozenset(_empty(node).columns) for node in call.inputs]
    return [None if wanted is None else each & (wanted | sides[0] & sides[1]) for each in sides]


COLUMNS: Final = Rule(
    *(same_rows, lambda *args: True, ("key",)),
    aligned=False,
    reads=_chosen_columns,
    is_light=True,
    at_once=True,
)
DIVISION: Final = Rule(same_rows, _can_compute, names=("other",))
TO_ARRAY: Final = Rule(
    same_rows, lambda value, *_, **named: all(map(is_number, dtypes_of(value))), ("dtype", "copy")
)
TEXT: Final = Rule(
    same_rows,
    _has_text,
    (
        *("pat", "case", "flags", "na", "regex", "start", "stop", "step", "width", "side"),
        *("fillchar", "repl", "n", "i", "repeats", "expand"),
    ),
)

TEXT_METHODS: Final = (
    *("lower", "upper", "title", "capitalize", "swapcase", "casefold", "strip", "lstrip", "rstrip"),
    *("slice", "pad", "zfill", "ljust", "rjust", "center", "removeprefix", "removesuffix"),
    *("replace", "slice_replace", "repeat", "get", "extract"),
    *("contains", "startswith", "endswith", "isdigit", "isalpha", "isalnum", "isnumeric"),
    *("isspace", "islower", "isupper", "isdecimal", "match", "fullmatch"),
)
TEXT_NUMBERS: Final = ("len", "count", "find", "rfind")
"""Integers, or floats if a text is missing."""

DATES: Final = Rule(
    same_rows, names=("freq", "date_format", "tz", "unit", "locale", "ambiguous", "nonexistent")
)

DATE_METHODS: Final = (
    *("floor", "ceil", "round", "normalize", "strftime", "day_name", "month_name"),
    *("tz_localize", "tz_convert", "as_unit", "isocalendar", "total_seconds"),
)
DATE_PROPERTIES: Final = (
    *("is_leap_year", "date", "time", "timetz", "is_month_start", "is_month_end"),
    *("is_quarter_start", "is_quarter_end", "is_year_start", "is_year_end"),
)
VAR_ARGUMENTS: Final = ("axis", "skipna", "ddof")
"""As pandas takes them by position."""

DATE_NUMBERS: Final = (
    *("year", "quarter", "month", "day", "hour", "minute", "second", "microsecond", "nanosecond"),
    *("day_of_week", "dayofweek", "weekday", "day_of_year", "dayofyear", "days_in_month"),
    *("days", "seconds", "microseconds", "nanoseconds"),
)
"""Integers, or floats if a date is missing."""

OPERATOR_METHODS: Final = (
    *("eq", "ne", "lt", "le", "gt", "ge", "add", "radd", "sub", "subtract", "rsub"),
    *("mul", "multiply", "rmul", "div", "divide", "truediv", "rdiv", "rtruediv", "pow", "rpow"),
)

METHODS: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(OPERATOR_METHODS, Rule(same_rows, _is_by_columns, ("other", "axis"))),
    **dict.fromkeys(("floordiv", "mod"), DIVISION),
    **dict.fromkeys(("abs", "isna", "isnull", "notna", "notnull"), Rule(same_rows)),
    "copy": Rule(same_rows, partial=_shallow, is_light=True),
    **dict.fromkeys(("mask", "where"), Rule(same_rows, _can_replace, ("cond", "other"))),
    "round": Rule(same_rows, names=("decimals",)),
    "astype": Rule(
        *(same_rows, _can_convert, ("dtype",)), aligned=False, is_for_inexact=_is_to_number
    ),
    "isin": Rule(same_rows, lambda frame, *values: frame.ndim == 1, ("values",), aligned=False),
    "between": Rule(same_rows, names=("left", "right", "inclusive")),
    "clip": Rule(same_rows, _can_fill, ("lower", "upper")),
    "fillna": Rule(same_rows, _can_fill, ("value",)),
    "drop": Rule(
        *(same_rows, _is_of_columns, ("labels", "axis", "columns")), aligned=False, is_light=True
    ),
    "rename": Rule(same_rows, _renames, ("index", "columns"), aligned=False, is_light=True),
    "dropna": Rule(chosen_rows, names=("how", "subset"), aligned=False),
    "to_frame": Rule(same_rows, names=("name",)),
    "merge": Rule(
        *(_joined, _can_join, ("right", "on", "how", "suffixes")),
        aligned=False,
        reads=_joined_columns,
        holds=_keeps_order,
    ),
    # NumPy's addition wraps around without a warning, as pandas.
    "sum": _reduction(has_numbers, np.add, at_once=True),
    "count": _reduction(lambda value: True, operator.add, at_once=True),
    "min": _extreme("min", np.fmin),
    "max": _extreme("max", np.fmax),
    "mean": _reduction(_has_double_mean, _add_parts, _mean_parts, _mean, at_once=True),
    "var": _reduction(_has_double_var, _add_squares, _squares, _var, names=VAR_ARGUMENTS),
    "std": _reduction(_has_double_var, _add_squares, _squares, _std, names=VAR_ARGUMENTS),
    "any": _reduction(has_flags, np.logical_or, at_once=True),
    "all": _reduction(has_flags, np.logical_and, at_once=True),
    # In the order in which values appear.
    "unique": _reduction(
        _can_be_unique, _both, _distinct, lambda series: series.unique(), commutative=False
    ),
    "nunique": _reduction(_can_be_unique, _both, _distinct, lambda series: series.nunique()),
    "value_counts": _reduction(
        _can_be_unique, sum_counts, count_values, most_frequent_first, commutative=False
    ),
    **{f"str.{name}": TEXT for name in TEXT_METHODS},
    **{f"str.{name}": replace(TEXT, exact=False) for name in TEXT_NUMBERS},
    **{f"dt.{name}": DATES for name in (*DATE_METHODS, *DATE_PROPERTIES)},
    **{f"dt.{name}": replace(DATES, exact=False) for name in DATE_NUMBERS},
    "dt.to_period": Rule(same_rows, _has_frequency, ("freq",)),
}
"""Rules of methods and properties by name; those of an accessor with its name before a dot."""

ALONG_ROWS: Final[Mapping[str, Rule]] = {
    name: Rule(same_rows, functools.partial(_is_along_rows, check), ("axis", "skipna"))
    for check, names in (
        (has_numbers, ("sum",)),
        (lambda frame: True, ("count",)),
        (has_flags, ("any", "all")),
        (_has_doubles, ("mean", "min", "max", "median", "std", "var")),
    )
    for name in names
}
"""Rules of reductions of each row."""


FILL_COLUMNS: Final = replace(
    METHODS["fillna"], is_for=functools.partial(_has_columns_for, _can_fill), aligned=False
)
"""Rule of ``fillna`` with a dict that has a value for each of some columns."""


def method_rule(path: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Rule | None:
    """Return the rule of a call of a method, if it has one.

    Parameters
    ----------
    path : str
    args, kwargs
        Its arguments.
    """
    axis = kwargs.get("axis", args[0] if args else 0)
    along = isinstance(axis, int | str) and axis in (1, "columns")
    if path == "fillna" and any(isinstance(each, dict) for each in (*args, *kwargs.values())):
        return FILL_COLUMNS
    return (along and ALONG_ROWS.get(path)) or METHODS.get(path)
