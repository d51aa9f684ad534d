"""Functions that a program annotates: how their calls are cut, and what they declare."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from spliter._errors import AnnotationError
from spliter._reading.rows import count_rows
from spliter.pipeline._annotations.rows import MOST_CALLS
from spliter.pipeline._calls.calls import Call, Node, Typing
from spliter.pipeline._calls.metas import ArrayMeta, Meta, Shape
from spliter.pipeline._calls.reductions import Nothing, first_step
from spliter.pipeline._calls.split_types import (
    AnyType,
    Axis,
    Broadcast,
    Generic,
    Mut,
    Rows,
    SplitType,
    Unknown,
)

DEFAULT: Final = Rows()
"""Split type of values for a ``Generic`` that nothing else determines."""


@dataclass(frozen=True)
class Annotated:
    """A function with its annotation."""

    fn: Callable[..., Any]
    types: Mapping[str, AnyType]
    returns: tuple[AnyType, ...]
    signature: inspect.Signature


@dataclass(frozen=True)
class OfSomeRows:
    """A function that combines rows: it is not called for a piece without rows."""

    fn: Callable[..., Any]
    keys: tuple[int | str, ...]
    results: int

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, unless there are no rows."""
        given = [args[key] if isinstance(key, int) else kwargs[key] for key in self.keys]
        if any(map(count_rows, given)):
            return self.fn(*args, **kwargs)
        nothing = Nothing(functools.partial(self.fn, *args, **kwargs))
        return nothing if self.results == 1 else (nothing,) * self.results


@dataclass(frozen=True)
class CallTypes:
    """Annotation of one call of a user's function."""

    inputs: tuple[tuple[str, AnyType], ...]
    returns: tuple[AnyType, ...]

    scratch = False

    def typings(self, call: Call, known: tuple[SplitType | None, ...]) -> Iterable[Typing]:
        """Return the one typing of the annotation, unless lengths differ."""
        cut = self._cut(call, known)
        if cut is None or self._loses_changes(call, cut[0]):
            return
        inputs, outputs = cut
        pairs = list(zip(inputs, known, strict=True))
        if any(have is None and isinstance(kind, Unknown) for kind, have in pairs):
            return  # an array beside the rows of a filter
        lengths = _lengths(call, inputs, known)
        is_cut = any(not isinstance(kind, Broadcast) for kind in inputs)
        if is_cut and len(lengths) <= 1 and 0 not in lengths:
            fn = _piece_function(call, inputs, outputs)
            yield Typing(inputs, outputs, next(iter(lengths), None), fn, is_checked=True)

    def _cut(
        self, call: Call, known: tuple[SplitType | None, ...]
    ) -> tuple[tuple[SplitType, ...], tuple[SplitType, ...]] | None:
        """Return the types of inputs and results; ``None`` if rows are of several calls."""
        generics: dict[str, SplitType] = {}
        for (_, kind), have in zip(self.inputs, known, strict=True):
            inner = kind.type if isinstance(kind, Mut) else kind
            if isinstance(inner, Generic) and have is not None:
                generics[inner.name] = have
        inputs = [
            _concrete(kind, generics, node)
            for (_, kind), node in zip(self.inputs, call.inputs, strict=True)
        ]
        outputs = [_concrete(kind, generics, None) for kind in self.returns]
        tokens = {kind for kind in known if isinstance(kind, Unknown)}
        if len(tokens) > 1:
            return None
        for token in tokens:
            inputs = [token if kind == DEFAULT else kind for kind in inputs]
            outputs = [token if kind == DEFAULT else kind for kind in outputs]
            takes_start = any(getattr(kind, "takes_start", False) for kind in outputs)
            if not token.has_positions and (takes_start or any(map(_has_items, outputs))):
                return None
        outputs = [
            Unknown(call.number + at * MOST_CALLS) if kind == Unknown() else kind
            for at, kind in enumerate(outputs)
        ]
        return tuple(inputs), tuple(outputs)

    def _loses_changes(self, call: Call, inputs: tuple[SplitType, ...]) -> bool:
        """Return whether an argument that is changed is cut into copies, or overlaps another."""
        pairs = list(zip(call.inputs, inputs, strict=True))
        for node, kind in pairs:
            is_array = isinstance(node.data, np.ndarray)
            if node in call.writes and (
                isinstance(kind, Broadcast)
                or (isinstance(kind, Axis) and not is_array)
                or any(is_array and _overlap(node, kind, *other) for other in pairs)
            ):
                return True
        return False

    def metas(self, call: Call) -> tuple[Meta, ...]:
        """Return what is declared; nothing is called."""
        rows = [self._row(call, kind) for kind in self.returns]
        nothing = (None,) * len(call.inputs)
        cut = self._cut(call, nothing)
        lengths = _lengths(call, cut[0], nothing) if cut else set()
        length = lengths.pop() if len(lengths) == 1 else None
        return tuple([row and ArrayMeta((length, *row[0]), row[1], exact=False) for row in rows])

    def _row(self, call: Call, kind: AnyType) -> tuple[Shape, np.dtype[Any]] | None:
        if not isinstance(kind, Rows) or (kind.like is None and kind.dtype is None):
            return None
        if kind.like is None:
            return kind.row_of(None)
        names = [name for name, _ in self.inputs]
        meta = call.inputs[names.index(kind.like)].meta if kind.like in names else None
        return None if meta is None else kind.row_of(meta)


def _piece_function(
    call: Call, inputs: tuple[SplitType, ...], outputs: tuple[SplitType, ...]
) -> Callable[..., Any] | None:
    """Return what is called with pieces, if some may have no rows and results combine them."""
    pairs = zip(call.keys, inputs, strict=True)
    counted = [key for key, kind in pairs if isinstance(kind, Unknown)]
    if not counted or not outputs or not all(kind.combines for kind in outputs):
        return None
    return OfSomeRows(first_step(call.fn, outputs), tuple(counted), len(outputs))


def _has_items(kind: SplitType) -> bool:
    """Return whether a result is cut otherwise than by rows, of which the number may be unknown."""
    return not (isinstance(kind, Broadcast | Unknown) or kind.combines or kind == DEFAULT)


def _overlap(node: Node, kind: SplitType, other: Node, other_kind: SplitType) -> bool:
    """Return whether pieces of a changed array share memory with other pieces of another input."""
    if other.data is node.data and other_kind == kind:
        return False
    return isinstance(other.data, np.ndarray) and np.may_share_memory(node.data, other.data)


def _concrete(kind: AnyType, generics: Mapping[str, SplitType], node: Node | None) -> SplitType:
    """Return a split type without generics and negative axes."""
    if isinstance(kind, Mut):
        kind = kind.type
    if isinstance(kind, Generic):
        kind = generics.get(kind.name, DEFAULT)
    assert not isinstance(kind, Generic | Mut)
    if isinstance(kind, Axis) and kind.axis < 0 and node is not None:
        return kind if node.meta is None else Axis(kind.axis + len(node.meta.shape))
    return kind


def _lengths(call: Call, inputs: Sequence[SplitType], known: Sequence[Any]) -> set[int | None]:
    """Return the numbers of items of inputs that the stage has not made."""
    triples = zip(call.inputs, inputs, known, strict=True)
    return {
        _length_of(node, kind, call)
        for node, kind, have in triples
        if have is None and not isinstance(kind, Broadcast | Unknown)
    }


def _length_of(node: Node, kind: SplitType, call: Call) -> int | None:
    """Return the number of items of an input; ``None`` if it is not known yet."""
    if not node.is_here:
        if isinstance(kind, Axis) and node.meta is not None:
            return node.meta.shape[kind.axis] if kind.axis < len(node.meta.shape) else None
        return None
    try:
        length = operator.index(kind.length(node.data))
        if length < 0:
            raise ValueError(f"its length returned {length}")
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise AnnotationError(
            f"{call.name} has an argument of type {type(node.data).__name__}, which is annotated "
            f"as {kind!r} but has no number of items by it ({error}); correct the annotation, or "
            "pass another value"
        ) from error
    return length
