"""Know the results of an annotated function from a call on one row, before it runs on all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spliter._errors import AnnotationError
from spliter.pipeline._elementwise import stand_in
from spliter.pipeline._graph import Call, Node
from spliter.pipeline._metas import DTYPES, ArrayMeta, FrameMeta, Meta, meta_of
from spliter.pipeline._types import Axis, Broadcast, SplitType, Unknown


@dataclass(frozen=True)
class AsForOneRow:
    """A function whose results must be as for one row, as later calls have been captured so.

    Parameters
    ----------
    fn : callable
    metas : tuple of Meta
        Of the results; ``None`` for any.
    """

    fn: Callable[..., Any]
    metas: tuple[Meta, ...]

    @property
    def __name__(self) -> str:
        """Name of the function."""
        return str(getattr(self.fn, "__name__", self.fn))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, and check its results."""
        result = self.fn(*args, **kwargs)
        if len(self.metas) == 1:
            return _as_for_one_row(result, self.metas[0], self.__name__)
        if not isinstance(result, tuple | list) or len(result) != len(self.metas):
            return result  # an error that says how many results there are
        pairs = zip(result, self.metas, strict=True)
        return tuple([_as_for_one_row(value, meta, self.__name__) for value, meta in pairs])


def _as_for_one_row(value: Any, meta: Meta, name: str) -> Any:
    """Return a result if it is as that for one row, by which later calls were captured.

    Parameters
    ----------
    value : object
    meta : Meta
    name : str
        Name of the call.

    Returns
    -------
    object
        For no items an array as that for some, as Python makes others of no items.

    Raises
    ------
    AnnotationError
    """
    found = meta_of(value)
    if meta is None or _is_like(found, meta):
        return value
    if isinstance(meta, ArrayMeta) and isinstance(found, ArrayMeta) and 0 in found.shape:
        return np.empty([extent or 0 for extent in meta.shape], meta.dtype)
    raise AnnotationError(
        f"{name} returned {_described(found, value)} for a batch, and {_described(meta)} for one "
        "row; let it return the same for any rows, or call it outside of the pipeline"
    )


def _is_like(found: Meta, meta: Meta) -> bool:
    if isinstance(meta, ArrayMeta) and isinstance(found, ArrayMeta):
        is_alike = len(found.shape) == len(meta.shape) and found.dtype == meta.dtype
        pairs = zip(found.shape, meta.shape, strict=False)
        return is_alike and all(want in (None, extent) for extent, want in pairs)
    return _described(found) == _described(meta)


def _described(meta: Meta, value: Any = None) -> str:
    if isinstance(meta, ArrayMeta):
        shape = str(meta.shape).replace("None", "n")
        return f"an array of {meta.dtype} of shape {shape}"
    if isinstance(meta, FrameMeta):
        columns = f" of {list(meta.empty.columns)}" if meta.empty.ndim > 1 else ""
        return f"a {type(meta.empty).__name__}{columns}"
    return f"a {type(value).__name__}"


def metas_of_first_rows(
    call: Call, inputs: Sequence[SplitType], outputs: Sequence[SplitType], *, over_split: bool
) -> tuple[Meta, ...]:
    """Return what a call gives for one row, or none; nothing if it fails.

    Parameters
    ----------
    call : Call
    inputs, outputs : sequence of SplitType
    over_split : bool
        Whether nothing else can be known, as the program does not get the results.
    """
    is_frame = [each.is_pending and isinstance(each.meta, FrameMeta) for each in call.inputs]
    found = () if any(is_frame) else _metas_on_rows(1, call, inputs, outputs)
    if found or not (any(is_frame) or over_split):
        return found
    metas = _metas_on_rows(0, call, inputs, outputs)
    # Of no rows, Python makes arrays of another dtype and shape than of some.
    return tuple([each if over_split or isinstance(each, FrameMeta) else None for each in metas])


def _metas_on_rows(
    rows: int, call: Call, inputs: Sequence[SplitType], outputs: Sequence[SplitType]
) -> tuple[Meta, ...]:
    """Return what a call gives for the first rows; nothing if it fails."""
    kinds = iter(inputs)
    try:
        args, kwargs = call.filled(lambda node: _sample(node, next(kinds), rows))
        with np.errstate(all="ignore"):
            result = call.fn(*args, **kwargs)
    except Exception:  # noqa: BLE001 -- a function may refuse no rows, and rows of ones
        return ()
    results = result if len(outputs) > 1 else (result,)
    if not isinstance(results, tuple | list) or len(results) != len(outputs):
        return ()
    pairs = zip(results, outputs, strict=True)
    return tuple([of_length(meta_of(value), kind, None) for value, kind in pairs])


def _sample(node: Node, kind: SplitType, rows: int) -> Any:
    if not node.is_pending:
        if isinstance(kind, Broadcast):
            return node.data
        piece = kind.split(node.data, 0, rows)
        return piece.copy() if isinstance(piece, np.ndarray) else piece  # it may be changed
    if isinstance(node.meta, FrameMeta):
        return node.meta.empty
    if not isinstance(node.meta, ArrayMeta) or not isinstance(kind, Axis):
        raise TypeError("nothing is known of an input that is pending")
    return kind.split(stand_in(node), 0, rows)


def of_length(meta: Meta, kind: SplitType, length: int | None) -> Meta:
    """Return the meta of a result from that for some rows."""
    if isinstance(kind, Unknown):
        length = None
    elif not isinstance(kind, Axis):
        return None
    if isinstance(meta, FrameMeta):
        return FrameMeta(meta.empty, length, exact=False)
    axis = kind.axis if isinstance(kind, Axis) else 0
    if meta is None or len(meta.shape) <= axis or meta.dtype.kind not in DTYPES:
        return None
    shape = (*meta.shape[:axis], length, *meta.shape[axis + 1 :])
    return ArrayMeta(shape, meta.dtype, exact=False)
