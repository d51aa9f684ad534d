"""Annotations of the methods of pandas' frames and series; imports nothing of pandas.

Rows of a result have the labels of the rows they come from. A merge numbers its rows anew, which
pieces cannot do: their labels are replaced at the end, and rows filtered after a merge have none.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from spliter.backend.contents import concatenate
from spliter.pipeline._graph import ArrayMeta, Call, FrameMeta, Meta, Typing
from spliter.pipeline._types import Axis, Reduction, SplitType, Unknown, broadcast

Check: TypeAlias = Callable[..., bool]
"""Given the arguments of a call, frames among them without rows; returns whether it can be cut."""

MAX_WHOLE: Final = 50_000
"""Most rows of a frame that each batch gets whole, such as the right side of a merge: the hash
table of its keys is built for each batch."""


@dataclass(frozen=True)
class Renumbered(Unknown):
    """Rows of a merge, whose labels are their numbers."""

    def merge(self, pieces: Sequence[Any]) -> Any:
        """Concatenate pieces, and number the rows."""
        return concatenate(pieces).reset_index(drop=True)


@dataclass(frozen=True)
class Unlabelled(Unknown):
    """Rows chosen from those of a merge: their labels are known after it only."""

    is_mergeable = False


@dataclass(frozen=True, eq=False)
class Aggregates(SplitType):
    """One row per group of a frame; also the function that makes them.

    Parameters
    ----------
    by : str or list of str
        Columns of the keys.
    selection : str, list of str, or None
        Columns to aggregate; ``None`` for all others.
    name : str
        Method of pandas' group-by.
    as_index : bool
        Whether the keys are the index of the result.
    """

    by: Any
    selection: Any
    name: str
    as_index: bool

    @property
    def __name__(self) -> str:
        """Name of the method."""
        return f"groupby.{self.name}"

    @property
    def keys(self) -> list[str]:
        """Columns of the keys."""
        return [self.by] if isinstance(self.by, str) else self.by

    def columns(self, frame: Any) -> list[str]:
        """Return the columns to aggregate."""
        if self.selection is None:
            return [each for each in frame.columns if each not in self.keys]
        return [self.selection] if isinstance(self.selection, str) else self.selection

    def __call__(self, frame: Any) -> Any:
        """Aggregate, as pandas does."""
        return self._aggregate(frame, self.name)

    def _aggregate(self, frame: Any, name: str) -> Any:
        grouped = frame.groupby(self.by, as_index=self.as_index)
        return getattr(grouped if self.selection is None else grouped[self.selection], name)()

    def partial(self, frame: Any) -> Any:
        """Return frames with a row per group, in any order, and the keys as columns."""
        grouped = frame.groupby(self.by, as_index=False, sort=False)[self.columns(frame)]
        return tuple(getattr(grouped, name)() for name, _ in AGGREGATES[self.name])

    def merge(self, pieces: Sequence[Any]) -> Any:
        """Combine the rows of equal keys."""
        partials = zip(concatenate(pieces), AGGREGATES[self.name], strict=True)
        first, *counts = [self._aggregate(partial, name) for partial, (_, name) in partials]
        return first / counts[0] if counts else first

    def is_for(self, frame: Any) -> bool:
        """Return whether aggregates of pieces give those of the frame."""
        columns = self.columns(frame)
        dtypes = [frame[each].dtype for each in columns]
        return (
            frame.columns.is_unique
            and not {*columns} & {*self.keys}
            and (self.name == "count" or all(map(_is_number, dtypes)))
            and (self.name != "mean" or (self.as_index and np.dtype("f4") not in dtypes))
        )


AGGREGATES: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "sum": [("sum", "sum")],
    "min": [("min", "min")],
    "max": [("max", "max")],
    "count": [("count", "sum")],
    "mean": [("sum", "sum"), ("count", "sum")],
}
"""Methods of a group-by: those that pieces are aggregated with, each with the one that combines."""


@dataclass(frozen=True)
class Rule:
    """How a method is cut.

    Parameters
    ----------
    result : callable
        Given the number of the call and the type of the frame, returns the type of the result.
    is_for : callable
        Given the arguments, without rows, returns whether the method can be cut for them.
    names : tuple of str
        Arguments that may be passed, by position or by name.
    aligned : bool
        Whether other frames among the arguments are cut like the first one.
    mixed : bool
        Whether a series or an array may stand by a frame, with a value for each row.
    partial : callable, optional
        Called with pieces in place of the method.
    """

    result: Callable[[int, SplitType], SplitType]
    is_for: Check = lambda *args, **kwargs: True
    names: tuple[str, ...] = ()
    aligned: bool = True
    mixed: bool = False
    partial: Callable[..., Any] | None = None

    @property
    def keeps_rows(self) -> bool:
        """Whether the result has the rows of the first argument."""
        return self.result is _rows


@dataclass(frozen=True, eq=False)
class WholeCall:
    """Annotation of a call that runs on whole values, of whose result nothing is known before."""

    scratch = False

    def metas(self, call: Call) -> tuple[Meta, ...]:
        """Return nothing."""
        return (None,)

    def typings(self, call: Call, known: tuple[SplitType | None, ...]) -> Iterable[Typing]:
        """Return none."""
        return ()


@dataclass(frozen=True, eq=False)
class FrameCall:
    """Annotation of one call.

    Parameters
    ----------
    rule : Rule
    is_cut : tuple of bool
        For each input, in order.
    meta : Meta
        Of the result.
    """

    rule: Rule
    is_cut: tuple[bool, ...]
    meta: Meta
    scratch = False

    def metas(self, call: Call) -> tuple[Meta, ...]:
        """Return what the method gives for no rows."""
        return (self.meta,)

    def typings(self, call: Call, known: tuple[SplitType | None, ...]) -> Iterable[Typing]:
        """Return the typing by rows, if those of all inputs match."""
        pairs = list(zip(call.inputs, self.is_cut, strict=True))
        kinds = {kind for kind, is_cut in zip(known, self.is_cut, strict=True) if is_cut}
        kind = next((each for each in kinds if each is not None), Axis(0))
        lengths = {_length(node.meta) for node, is_cut in pairs if is_cut}
        whole = [_length(node.meta) or 0 for node, is_cut in pairs if not is_cut]
        if isinstance(kind, Unknown):
            matches = len(kinds) == 1
            length = None
        else:
            matches = kinds <= {None, Axis(0)} and len(lengths) == 1 and not lengths & {None, 0}
            length = next(iter(lengths))
        if matches and max(whole, default=0) <= MAX_WHOLE:
            inputs = tuple(kind if is_cut else broadcast for is_cut in self.is_cut)
            result = self.rule.result(call.number, kind)
            yield Typing(inputs, (result,), length, self._piece_function(call.fn))

    def _piece_function(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        if self.rule.partial is not None or not isinstance(self.meta, FrameMeta):
            return self.rule.partial or fn
        expected = _described(self.meta.empty)

        def checked(*args: Any, **kwargs: Any) -> Any:
            result = fn(*args, **kwargs)
            if (found := _described(result)) != expected:
                raise TypeError(f"a piece is {found} in place of {expected}")  # run on whole values
            return result

        return checked


def _length(meta: Meta) -> int | None:
    if isinstance(meta, FrameMeta):
        return meta.length
    return meta.shape[0] if isinstance(meta, ArrayMeta) and meta.shape else None


def _described(frame: Any) -> tuple[Any, ...]:
    """Return what pieces have in common: dtypes and names."""
    if getattr(frame, "ndim", 0) == 1:
        return type(frame), frame.dtype, getattr(frame, "name", None)
    return type(frame), list(frame.columns), list(frame.dtypes)


def _dtypes(frame: Any) -> list[Any]:
    return [frame.dtype] if frame.ndim == 1 else list(frame.dtypes)


def _is_number(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and dtype.kind in "iufb"


def _is_text(dtype: Any) -> bool:
    return str(dtype) in ("str", "string")


def _has_text(frame: Any, *args: Any, **kwargs: Any) -> bool:
    return frame.ndim == 1 and _is_text(frame.dtype)


def _has_numbers(series: Any) -> bool:
    return series.ndim == 1 and _is_number(series.dtype)


def _has_floats(series: Any) -> bool:
    return _has_numbers(series) and series.dtype != np.dtype("f4")


def _has_flags(series: Any) -> bool:
    return bool(series.ndim == 1 and series.dtype == np.dtype(bool))


def _can_be_unique(series: Any) -> bool:
    return series.ndim == 1 and (_is_number(series.dtype) or _is_text(series.dtype))


def _holds(frame: Any, *values: Any) -> bool:
    """Return whether a frame keeps its dtypes with some values, and missing ones, in it.

    The dtype of integers would depend on whether values are missing.
    """
    dtypes = _dtypes(frame)
    floats = all(isinstance(each, np.dtype) and each.kind == "f" for each in dtypes)
    texts = all(map(_is_text, dtypes))
    return (floats or texts) and all(
        _dtypes(value) == dtypes
        if hasattr(value, "dtype") or hasattr(value, "dtypes")
        else isinstance(value, (int, float) if floats else str)
        for value in values
    )


def _can_replace(frame: Any, condition: Any, *other: Any, **named: Any) -> bool:
    masks = all(each == np.dtype(bool) for each in _dtypes(condition))
    return masks and _holds(frame, *other, *named.values())


def _can_fill(frame: Any, *value: Any, **named: Any) -> bool:
    return _holds(frame, *value, *named.values())


def _can_convert(frame: Any, *dtype: Any, **named: Any) -> bool:
    (wanted,) = (*dtype, *named.values())
    return bool(wanted != "category") and getattr(wanted, "categories", ()) is not None


def _can_compute(one: Any, other: Any) -> bool:
    """Return whether the dtype of a quotient is known: of integers not if a divisor may be 0."""
    operands = [each for each in (one, other) if hasattr(each, "ndim")]
    has_floats = all(dtype.kind == "f" for each in operands for dtype in _dtypes(each))
    return has_floats or (isinstance(other, int | float) and other != 0)


def _can_choose(frame: Any, mask: Any) -> bool:
    return mask.ndim == 1 and bool(mask.dtype == np.dtype(bool))


def _can_join(left: Any, right: Any, *, on: Any, how: str = "inner", **named: Any) -> bool:
    """Return whether a merge keeps the order of the left rows, and the dtypes of both sides."""
    if left.ndim != 2 or getattr(right, "ndim", 0) != 2 or how not in ("inner", "left"):
        return False
    added = right.drop(columns=on)
    return how == "inner" or all(_holds(added[each]) for each in added)


def _rows(number: int, kind: SplitType) -> SplitType:
    return kind


def _chosen(number: int, kind: SplitType) -> SplitType:
    if isinstance(kind, Renumbered | Unlabelled):
        return Unlabelled(number)
    return Unknown(number)


def _joined(number: int, kind: SplitType) -> SplitType:
    return Renumbered(number)


def with_column(frame: Any, name: Any, value: Any) -> Any:
    """Return a frame with a column set, as ``frame[name] = value`` does."""
    result = frame.copy(deep=False)
    result[name] = value
    return result


def _mean_parts(series: Any) -> Any:
    values = series.to_numpy()
    return np.array([np.nansum(values, dtype=np.float64), series.count()])


def _mean(parts: Any) -> Any:
    return parts[0] / parts[1] if parts[1] else np.float64(np.nan)


def _distinct(series: Any) -> Any:
    return type(series)(series.unique(), dtype=series.dtype)


def _both(one: Any, other: Any) -> Any:
    return _distinct(concatenate([one, other]))


def _reduction(
    is_for: Check,
    merge: Callable[[Any, Any], Any],
    partial: Callable[..., Any] | None = None,
    finish: Callable[[Any], Any] | None = None,
) -> Rule:
    kind = Reduction(partial, merge, finish)
    return Rule(lambda number, rows: kind, is_for, partial=partial)


def aggregation(kind: Aggregates) -> Rule:
    """Return the rule of an aggregation of groups."""
    return Rule(lambda number, rows: kind, kind.is_for, partial=kind.partial)


WHOLE: Final = WholeCall()
COLUMNS: Final = Rule(_rows, names=("key",), aligned=False)
CHOOSE: Final = Rule(_chosen, _can_choose, ("mask",), mixed=True)
SET_COLUMN: Final = Rule(_rows, names=("name", "value"), mixed=True)
OPERATOR: Final = Rule(_rows, names=("other",))
DIVISION: Final = Rule(_rows, _can_compute, names=("other",))
TEXT: Final = Rule(
    _rows,
    _has_text,
    ("pat", "case", "flags", "na", "regex", "start", "stop", "step", "width", "side", "fillchar"),
)

TEXT_METHODS: Final = (
    *("lower", "upper", "title", "capitalize", "swapcase", "casefold", "strip", "lstrip", "rstrip"),
    *("slice", "pad", "zfill", "ljust", "rjust", "center", "removeprefix", "removesuffix"),
    *("contains", "startswith", "endswith", "isdigit", "isalpha", "isalnum", "isnumeric"),
    *("isspace", "islower", "isupper"),
)
METHODS: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(("abs", "isna", "isnull", "notna", "notnull", "copy"), Rule(_rows)),
    **dict.fromkeys(("mask", "where"), Rule(_rows, _can_replace, ("cond", "other"))),
    "round": Rule(_rows, names=("decimals",)),
    "astype": Rule(_rows, _can_convert, ("dtype",)),
    "isin": Rule(_rows, lambda frame, *values: frame.ndim == 1, ("values",), aligned=False),
    "between": Rule(_rows, names=("left", "right", "inclusive")),
    "clip": Rule(_rows, _can_fill, ("lower", "upper")),
    "fillna": Rule(_rows, _can_fill, ("value",)),
    "dropna": Rule(_chosen),
    "merge": Rule(_joined, _can_join, ("right", "on", "how", "suffixes"), aligned=False),
    "sum": _reduction(_has_numbers, operator.add),
    "count": _reduction(lambda series: series.ndim == 1, operator.add),
    "min": _reduction(_has_numbers, np.fmin),
    "max": _reduction(_has_numbers, np.fmax),
    "mean": _reduction(_has_floats, operator.add, _mean_parts, _mean),
    "any": _reduction(_has_flags, np.logical_or),
    "all": _reduction(_has_flags, np.logical_and),
    "unique": _reduction(_can_be_unique, _both, _distinct, lambda series: series.unique()),
    "nunique": _reduction(_can_be_unique, _both, _distinct, lambda series: series.nunique()),
    **{f"str.{name}": TEXT for name in TEXT_METHODS},
}
"""Rules of methods by name; those of an accessor with its name before a dot."""
