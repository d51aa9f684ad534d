"""Collect the pieces of a stage's results, and merge them."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from spliter._errors import AnnotationError
from spliter.pipeline._calls.calls import Call
from spliter.pipeline._calls.metas import Meta
from spliter.pipeline._calls.split_types import Axis, SplitType


class Pieces:
    """Pieces of one result, which come from several threads in any order; kept until the end."""

    def __init__(self, kind: SplitType) -> None:
        self.kind = kind
        self.pieces: dict[int, Any] = {}

    def put(self, start: int, stop: int, piece: Any) -> None:
        """Keep a piece."""
        self.pieces[start] = piece

    def finish(self) -> Any:
        """Merge by the split type, in the order of the items."""
        return self.kind.merge([self.pieces[start] for start in sorted(self.pieces)])


class Arrays(Pieces):
    """Pieces of equal dtype and width, copied to their place in one array; others are merged."""

    kind: Axis

    def __init__(self, kind: Axis, length: int, name: str) -> None:
        super().__init__(kind)
        self.length = length
        self.name = name
        self.result: Any = None
        self.copied: dict[int, int] = {}
        self.lock = threading.Lock()

    def put(self, start: int, stop: int, piece: Any) -> None:
        """Copy or keep a piece; check its length."""
        check_length(self.kind, piece, stop - start, self.name)
        if type(piece) is not np.ndarray or piece.dtype.hasobject:
            self.pieces[start] = piece
            return
        with self.lock:
            if self.result is None:
                shape = list(piece.shape)
                shape[self.kind.axis] = self.length
                self.result = np.empty(shape, piece.dtype)
        place = self.kind.split(self.result, start, stop)
        if piece.dtype == place.dtype and piece.shape == place.shape:
            place[...] = piece
            self.copied[start] = stop
        else:
            self.pieces[start] = piece.copy()

    def finish(self) -> Any:
        """Return the array, or all pieces merged."""
        if not self.pieces:
            return self.result
        for start, stop in self.copied.items():
            self.pieces[start] = self.kind.split(self.result, start, stop)
        return super().finish()


def check_results(result: Any, call: Call) -> None:
    """Refuse another number of results than the annotation names: some would be lost."""
    count = len(call.outputs)
    found = len(result) if count > 1 and isinstance(result, tuple | list) else 1
    if (count > 1 and found != count) or (not count and result is not None):
        raise AnnotationError(
            f"{call.place} returned {found} results, such as a {type(result).__name__}, and its "
            f"annotation names {count}; correct returns=, or let it return nothing"
        )


def check_declared(meta: Meta, value: Any, name: str) -> None:
    """Raise if a result is not what its annotation declares."""
    is_array = type(value) is np.ndarray and value.ndim
    if meta is None or (is_array and (not len(value) or meta.is_like(value))):
        return
    found = f"the type {type(value).__name__}"
    if isinstance(value, np.ndarray):
        found += f" of {value.dtype} and rows of shape {value.shape[1:]}"
    raise AnnotationError(
        f"{name} returned {found}, and its annotation declares an ndarray of {meta.dtype} and rows "
        f"of shape {meta.shape[1:]}; correct returns="
    )


def check_length(kind: SplitType, piece: Any, expected: int, name: str) -> None:
    """Raise if a piece has another number of items than expected."""
    try:
        found = str(kind.length(piece))
    except Exception:  # noqa: BLE001 -- whatever the method of the user's type raises
        found = f"a {type(piece).__name__} without"
    if found != str(expected):
        raise AnnotationError(
            f"{name} returned {found} items for a batch of {expected}, but its result is annotated "
            f"as {kind!r}; annotate it as unknown if it drops items, or as a Reduction if it "
            "combines them"
        )
