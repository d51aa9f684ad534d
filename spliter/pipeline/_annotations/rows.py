"""Annotations of calls on frames and arrays that are cut by rows; imports nothing of pandas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, cast

import numpy as np

from spliter.backend.contents import concatenate
from spliter.pipeline._annotations.dtypes import has_flags, has_numbers, is_number, is_text
from spliter.pipeline._calls.calls import Call, Node, Typing
from spliter.pipeline._calls.metas import ArrayMeta, FrameMeta, Meta, meta_of
from spliter.pipeline._calls.split_types import Axis, SplitType, Unknown, axis, broadcast

Check: TypeAlias = Callable[..., bool]
"""Given the arguments of a call, frames among them without rows; returns whether it can be cut."""

Columns: TypeAlias = frozenset[Any] | None
"""Columns that are read; ``None`` for all of them, and for what has none."""

Reads: TypeAlias = Callable[[Call, Columns], Sequence[Columns]]

MAX_WHOLE: Final = 50_000
"""Most rows of a frame that each batch gets whole, such as the right side of a merge: the hash
table of its keys is built for each batch."""


ROWS: Final = axis(0)


@dataclass(frozen=True, repr=False)
class Renumbered(Unknown):
    """Rows of a merge, whose labels are their numbers."""

    def merge(self, pieces: Sequence[Any]) -> Any:
        """Concatenate pieces, and number the rows."""
        rows = concatenate(pieces)
        return rows.reset_index(drop=True) if hasattr(rows, "iloc") else rows


@dataclass(frozen=True, repr=False)
class Unlabelled(Unknown):
    """Rows chosen from those of a merge: their labels are known after it only."""

    is_mergeable = False


class Labelled(Axis):
    """Rows whose labels exist before: pandas aligns by labels that are equal but not the same."""

    def __init__(self, index: Any) -> None:
        super().__init__()
        self.index = index

    def merge(self, pieces: Sequence[Any]) -> Any:
        """Concatenate pieces, and give them the labels."""
        return super().merge(pieces).set_axis(self.index.view())

    def frame(self, values: Any, piece: Any) -> Any:
        """Return a frame or series of values, with the labels, and the names of a piece."""
        named = {"name": piece.name} if piece.ndim == 1 else {"columns": piece.columns}
        made = type(piece)(values, self.index.view(), copy=False, **named)
        return made.__finalize__(piece)


@dataclass(frozen=True, repr=False)
class Chosen(Unknown):
    """Rows of a filter, with labels of the dtype of all."""

    def merge(self, pieces: Sequence[Any]) -> Any:
        """Concatenate pieces; pandas would infer another dtype from labels that are objects."""
        rows = super().merge(pieces)
        if not hasattr(type(rows), "iloc"):
            return rows
        dtype = pieces[0].index.dtype
        return rows if rows.index.dtype == dtype else rows.set_axis(rows.index.astype(dtype))


def _all_columns(call: Call, wanted: Columns) -> Sequence[Columns]:
    return [None for _ in call.inputs]


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
    exact : bool
        Whether the dtypes of a result are known from those of the arguments.
    is_for_inexact : callable
        Given the same as `is_for`, whether it can be cut if the dtypes of the first argument depend
        on its values, and so on the piece.
    partial : callable, optional
        Called with pieces in place of the method.
    holds : callable, optional
        Given the arguments of a piece, returns whether the pieces make the whole; it runs on whole
        values otherwise.
    reads : callable
        Given a call and the columns of its result that are read, returns those of each input that
        the call reads; ``None`` stands for all.
    is_light : bool
        Whether to collect pieces takes longer than to call the method of a frame that is there:
        it copies columns that the result shares, or rows a second time.
    at_once : bool
        Whether it runs at once on values that are there: pieces would wait for memory as long.
    """

    result: Callable[[int, SplitType], SplitType]
    is_for: Check = lambda *args, **kwargs: True
    names: tuple[str, ...] = ()
    aligned: bool = True
    mixed: bool = False
    exact: bool = True
    is_for_inexact: Check = lambda *args, **kwargs: True
    partial: Callable[..., Any] | None = None
    holds: Check | None = None
    reads: Reads = _all_columns
    is_light: bool = False
    at_once: bool = False

    @property
    def keeps_rows(self) -> bool:
        """Whether the result has the rows of the first argument."""
        return self.result is same_rows


@dataclass(frozen=True, eq=False)
class WholeCall:
    """Annotation of a call that runs on whole values, of whose result nothing is known before."""

    is_users = False
    scratch = False

    def metas(self, call: Call) -> tuple[Meta, ...]:
        """Return nothing."""
        return (None,)

    def typings(self, call: Call, known: tuple[SplitType | None, ...]) -> Iterable[Typing]:
        """Return none."""
        return ()


@dataclass(frozen=True, eq=False)
class RowsCall:
    """Annotation of one call, on frames or arrays, that is cut by rows.

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
    is_users = False
    scratch = False

    def metas(self, call: Call) -> tuple[Meta, ...]:
        """Return what the method gives for no rows; the labels are those of the first argument."""
        frames = [node for node in call.inputs if isinstance(node.meta, FrameMeta)]
        given = frames[:1] if self.rule is CHOOSE else frames
        exact = self.rule.exact and all(cast(FrameMeta, node.meta).exact for node in given)
        empty = getattr(self.meta, "empty", None)
        exact |= getattr(empty, "ndim", 0) == 1 and empty.dtype == np.dtype(bool)  # type: ignore[union-attr]
        if isinstance(self.meta, ArrayMeta) and self.rule.keeps_rows and exact:
            length = None if call.inputs[0].meta is None else call.inputs[0].meta.length
            return (self.meta._replace(shape=(length, *self.meta.shape[1:])),)
        if not isinstance(self.meta, FrameMeta):
            return (self.meta if exact else None,)
        if not self.rule.keeps_rows:
            return (replace(self.meta, exact=exact),)
        first = frames[0]
        main = cast(FrameMeta, first.meta if first.is_pending else meta_of(first.data))
        # A view has a name of its own, and pandas still knows that the labels are the same.
        index = main.index.view() if hasattr(main.index, "view") else main.index
        return (FrameMeta(self.meta.empty, main.length, index, exact),)

    def typings(self, call: Call, known: tuple[SplitType | None, ...]) -> Iterable[Typing]:
        """Return the typing by rows, if those of all inputs match."""
        kind: SplitType = ROWS
        cut: list[SplitType | None] = []
        lengths: list[int | None] = []
        for node, have, is_cut in zip(call.inputs, known, self.is_cut, strict=True):
            length = None if node.meta is None else node.meta.length
            if is_cut:
                kind = kind if have in (None, ROWS) else have
                cut.append(have)
                lengths.append(length)
            elif (length or 0) > MAX_WHOLE:
                return
        if isinstance(kind, Unknown):
            length, matches = None, cut.count(kind) == len(cut)
        else:
            length = lengths[0]
            matches = bool(length) and lengths.count(length) == len(lengths) and kind == ROWS
        if matches:
            inputs = tuple([kind if is_cut else broadcast for is_cut in self.is_cut])
            token = token_of(call.inputs[-1], call) if self.rule is CHOOSE else call.number
            result = self._labelled(call, self.rule.result(token, kind))
            fn, is_light = self._piece_function(call.fn), self.rule.is_light
            yield Typing(inputs, (result,), length, fn, is_light=is_light)

    def _labelled(self, call: Call, kind: SplitType) -> SplitType:
        (meta,) = self.metas(call)
        index = meta.index if isinstance(meta, FrameMeta) else None
        return Labelled(index) if kind == ROWS and hasattr(index, "identical") else kind

    def _piece_function(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        if self.rule.partial is not None or not isinstance(self.meta, FrameMeta):
            return self.rule.partial or fn
        expected, holds = _described(self.meta.empty), self.rule.holds

        def checked(*args: Any, **kwargs: Any) -> Any:
            if holds is not None and not holds(*args, **kwargs):
                raise TypeError("pieces would not make the whole")
            result = fn(*args, **kwargs)
            if (found := _described(result)) != expected:
                raise TypeError(f"a piece is {found} in place of {expected}")  # run on whole values
            return result

        return checked


MOST_CALLS: Final = 2**48
"""More than a process can make: the results of one are numbered beyond it."""


def token_of(mask: Node, call: Call) -> int:
    """Return a number for the rows that a mask chooses: the same one for all of them.

    Parameters
    ----------
    mask : Node
    call : Call
        Whose number it is if the mask exists, as the program may change it.
    """
    maker = mask.call
    if maker is None:
        return call.number
    at = next(at for at, node in maker.live_outputs() if node is mask)
    return -2 - maker.number - at * MOST_CALLS


def _described(frame: Any) -> tuple[Any, ...]:
    """Return what pieces have in common: dtypes and names."""
    if getattr(frame, "ndim", 0) == 1:
        return type(frame), frame.dtype, getattr(frame, "name", None)
    return type(frame), list(frame.columns), list(frame.dtypes)


def same_rows(number: int, kind: SplitType) -> SplitType:
    """Return the type of a result with the rows of the first argument."""
    return kind


def chosen_rows(number: int, kind: SplitType) -> SplitType:
    """Return the type of a result with some of the rows of the first argument."""
    if isinstance(kind, Renumbered | Unlabelled):
        return Unlabelled(number)
    return Chosen(number)


def _can_choose(frame: Any, mask: Any) -> bool:
    return mask.ndim == 1 and str(mask.dtype) in ("bool", "boolean", "bool[pyarrow]")


def with_column(frame: Any, name: Any, value: Any) -> Any:
    """Return a frame with a column set, as ``frame[name] = value`` does."""
    result = frame.copy(deep=False)
    result[name] = value
    return result


def assigned(frame: Any, name: Any, value: Any) -> Any:
    """Return a copy of a frame with a column set."""
    return frame.assign(**{name: value})


def with_values(value: Any, mask: Any, new: Any, *column: Any) -> Any:
    """Return a frame or series with values set, as ``value.loc[mask, column] = new`` does."""
    result = value.copy(deep=False)
    new = new[mask] if hasattr(new, "loc") else new
    if column:
        result.loc[mask, column[0]] = new
    else:
        result[mask] = new
    return result


def _can_set(value: Any, mask: Any, new: Any, *column: Any) -> bool:
    """Return whether a column or series keeps its dtype, also where the mask is nowhere true."""
    target = value[column[0]] if column else value
    return mask.ndim == target.ndim == 1 and has_flags(mask) and fits(new, target.dtype)


def fits(new: Any, dtype: Any) -> bool:
    """Return whether a text, a number, or the values of a series leave a dtype as it is."""
    if hasattr(new, "dtype"):
        return (hasattr(new, "loc") or not new.ndim) and bool(new.dtype == dtype)
    if is_text(dtype):
        return isinstance(new, str)
    if dtype.kind in "iu":
        return type(new) is int and np.iinfo(dtype).min <= new <= np.iinfo(dtype).max
    return is_number(dtype) and type(new) in ((bool,) if dtype.kind == "b" else (int, float))


def select(*args: Any) -> Any:
    """Return what ``numpy.select`` does, given conditions, as many choices, and the default."""
    count = len(args) // 2
    return np.select([*args[:count]], [*args[count:-1]], args[-1])


def select_rule(count: int) -> Rule:
    """Return the rule of ``numpy.where`` and of `select` with some number of arguments."""
    return Rule(same_rows, _can_select, ("condition or value",) * (count - 1))


def _can_select(*args: Any) -> bool:
    """Return whether flags select numbers; these alone decide on the dtype."""
    flags, values = args[: len(args) // 2], args[len(args) // 2 :]
    numbers = all(isinstance(each, int | float) or has_numbers(each) for each in values)
    return numbers and all(map(has_flags, flags))


def _filtered_columns(call: Call, wanted: Columns) -> Sequence[Columns]:
    return [wanted, None]


WHOLE: Final = WholeCall()
CHOOSE: Final = Rule(
    *(chosen_rows, _can_choose, ("mask",)), mixed=True, reads=_filtered_columns, is_light=True
)
OPERATOR: Final = Rule(same_rows, names=("other",))
SET_COLUMN: Final = Rule(same_rows, names=("name", "value"), mixed=True, is_light=True)
SET_VALUES: Final = Rule(same_rows, _can_set, ("mask", "new", "column"), mixed=True)
