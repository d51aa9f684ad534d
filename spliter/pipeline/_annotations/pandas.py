"""Functions on pandas' frames that ``module("pandas")`` has: those that Mozart annotates.

They are operators and methods of pandas as functions, so that a chain of them is captured. Imports
nothing of pandas. For other programs, annotate a function of rows as a whole.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from spliter._errors import InvalidArgumentError
from spliter._reading.concatenate import concatenate
from spliter.pipeline._calls.reductions import Reduction
from spliter.pipeline._calls.split_types import Rows, SplitType, broadcast, unknown

MISSING: Final = float("nan")


def _with_same_labels(*values: Any) -> None:
    """Refuse frames and series that pandas would align: pieces do not have the rows for that."""
    first, *others = [each.index for each in values if hasattr(type(each), "iloc")] or [None]
    if not all(first.equals(other) for other in others):
        raise InvalidArgumentError(
            "operands have other labels than the first one, and are cut by rows; give them one "
            "index, as by reset_index(drop=True), or put them into one frame"
        )


def _aligned(name: str, apply: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of values and an operand that has the same labels, or none."""

    def function(values: Any, other: Any) -> Any:
        _with_same_labels(values, other)
        return apply(values, other)

    function.__name__ = function.__qualname__ = name
    return function


def mask(values: Any, cond: Any, other: Any = MISSING) -> Any:
    """Return ``values.mask(cond, other)``."""
    _with_same_labels(values, cond, other)
    return values.mask(cond, other)


def str_slice(series: Any, start: int | None = None, stop: int | None = None) -> Any:
    """Return ``series.str.slice(start, stop)``."""
    return series.str.slice(start, stop)


def str_contains(series: Any, pat: str, regex: bool = True) -> Any:
    """Return ``series.str.contains(pat, regex=regex)``."""
    return series.str.contains(pat, regex=regex)


def sum(values: Any) -> Any:
    """Return ``values.sum()``."""
    return values.sum()


def unique(series: Any) -> Any:
    """Return ``series.unique()``, in the order of appearance."""
    return series.unique()


def join(left: Any, right: Any, on: Any, how: str = "inner") -> Any:
    """Return rows of `left`, with their labels, beside those of `right` with equal keys."""
    if how not in ("inner", "left"):
        raise InvalidArgumentError(
            f"join got how={how!r}, which needs all rows of the left; pass 'inner' or 'left'"
        )
    return left.join(right.set_index(on), on=on, how=how)


def _distinct(series: Any) -> Any:
    return type(series)(series.unique(), dtype=series.dtype)


def _distinct_of_both(one: Any, other: Any) -> Any:
    return _distinct(concatenate([one, other]))


OPERATORS: Final = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "equal": operator.eq,
    "greater": operator.gt,
    "less": operator.lt,
}
ROWS: Final = Rows()
UNIQUE: Final = Reduction(_distinct, _distinct_of_both, operator.methodcaller("unique"))

FUNCTIONS: Final[Mapping[str, tuple[Callable[..., Any], Mapping[str, SplitType]]]] = {
    **{
        f"pandas.{name}": (_aligned(name, fn), {"values": ROWS, "other": ROWS, "returns": ROWS})
        for name, fn in OPERATORS.items()
    },
    "pandas.invert": (operator.invert, {"a": ROWS, "returns": ROWS}),
    "pandas.mask": (mask, {"values": ROWS, "cond": ROWS, "other": ROWS, "returns": ROWS}),
    "pandas.filter": (
        _aligned("filter", operator.getitem),
        {"values": ROWS, "other": ROWS, "returns": unknown},
    ),
    "pandas.str_slice": (str_slice, {"series": ROWS, "returns": ROWS}),
    "pandas.str_contains": (str_contains, {"series": ROWS, "returns": ROWS}),
    "pandas.sum": (sum, {"values": ROWS, "returns": Reduction(merge=np.add, commutative=True)}),
    "pandas.unique": (unique, {"series": ROWS, "returns": UNIQUE}),
    "pandas.join": (join, {"left": ROWS, "right": broadcast, "returns": unknown}),
}
"""Functions by full names, with the arguments of ``splittable``."""
