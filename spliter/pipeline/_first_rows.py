"""Know the results of an annotated function from a call on one row, before it runs on all."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np

from spliter._errors import AnnotationError
from spliter.pipeline._elementwise import stand_in
from spliter.pipeline._graph import Call, Node
from spliter.pipeline._metas import DTYPES, ArrayMeta, FrameMeta, Meta, meta_of
from spliter.pipeline._types import Axis, Broadcast, SplitType, Unknown

MAX_VALUES: Final = 50
"""Of as many pending values the first rows are computed to know those of another one."""


@dataclass(frozen=True)
class AsForOneRow:
    """A function whose results must be as for one row, as later calls have been captured so.

    Parameters
    ----------
    fn : callable
    metas : tuple of Meta
        Of the results; ``None`` for any.
    checked : tuple of Meta
        The same, but without extents where another axis may be cut.
    """

    fn: Callable[..., Any]
    metas: tuple[Meta, ...]
    checked: tuple[Meta, ...]

    @property
    def __name__(self) -> str:
        """Name of the function."""
        return str(getattr(self.fn, "__name__", self.fn))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, and check its results."""
        result = self.fn(*args, **kwargs)
        if len(self.checked) == 1:
            return _as_for_one_row(result, self.checked[0], self.__name__)
        if not isinstance(result, tuple | list) or len(result) != len(self.checked):
            return result  # an error that says how many results there are
        pairs = zip(result, self.checked, strict=True)
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
    if isinstance(meta, ArrayMeta) and isinstance(value, list | np.ndarray) and not np.size(value):
        return np.empty([extent or 0 for extent in meta.shape], meta.dtype)
    raise AnnotationError(
        f"{name} returned {_described(found, value)} for a batch, and {_described(meta)} when it "
        "was tried on one row, or on none over a Split; let it return the same dtype and width for "
        "any rows, or call it outside of the pipeline"
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
    """Return what a call gives for one row; nothing if it fails.

    Parameters
    ----------
    call : Call
    inputs, outputs : sequence of SplitType
    over_split : bool
        Whether there are no rows in this process: then for a row of ones, or if it fails for the
        first row, for which all calls up to there have to run.
    """
    metas = functools.partial(_metas_of, call, inputs, outputs)
    if over_split:
        found = metas(functools.partial(_stand_in, rows=1))
        if found and all(_tells(each, call) for each in found):
            return found
        pairs = zip(call.inputs, inputs, strict=True)
        rows = [_row_elsewhere(node, kind) for node, kind in pairs]
        samples = iter(rows)
        return metas(lambda *_: next(samples)) or metas(functools.partial(_stand_in, rows=0))
    if found := metas(_FirstRows().of):
        return found
    found = metas(functools.partial(_stand_in, rows=0))
    # Of no rows, Python makes arrays of another dtype and shape than of some.
    return tuple([each if isinstance(each, FrameMeta) else None for each in found])


def _tells(meta: Meta, call: Call) -> bool:
    """Return whether a result is as for some rows, though pending frames stand for none."""
    if not any(isinstance(node.meta, FrameMeta) and node.is_pending for node in call.inputs):
        return True
    if not isinstance(meta, FrameMeta):
        return False
    dtypes = [meta.empty.dtype] if meta.empty.ndim == 1 else meta.empty.dtypes
    return "object" not in map(str, dtypes)  # which pandas makes of lists of no values


def _row_elsewhere(node: Node, kind: SplitType) -> Any:
    """Return the first row of a value that tasks have, for which its calls run; or the value."""
    lazy = node.lazy() if node.lazy else None
    if lazy is not None and node.is_pending:
        return lazy._graph.root().first_row(node)
    return node.data if isinstance(kind, Broadcast) else kind.split(node.data, 0, 1)


def _metas_of(
    call: Call,
    inputs: Sequence[SplitType],
    outputs: Sequence[SplitType],
    sample: Callable[[Node, SplitType], Any],
) -> tuple[Meta, ...]:
    """Return what a call gives for samples of its inputs; nothing if it fails."""
    kinds = iter(inputs)
    try:
        args, kwargs = call.filled(lambda node: sample(node, next(kinds)))
        with np.errstate(all="ignore"):
            result = call.fn(*args, **kwargs)
    except Exception:  # noqa: BLE001 -- it may refuse so few rows
        return ()
    results = result if len(outputs) > 1 else (result,)
    if not isinstance(results, tuple | list) or len(results) != len(outputs):
        return ()
    pairs = zip(results, outputs, strict=True)
    return tuple([of_length(meta_of(value), kind, None) for value, kind in pairs])


class _FirstRows:
    """The first rows of values; of pending ones what their calls make of the first rows of others.

    Its methods raise ``LookupError`` if they cannot be had.
    """

    def __init__(self) -> None:
        self.made: dict[tuple[Node, SplitType], Any] = {}

    def of(self, node: Node, kind: SplitType) -> Any:
        """Return the first row of a value that is cut, or the value."""
        if isinstance(kind, Broadcast) and not node.is_pending:
            return node.data
        key = node, kind
        if key not in self.made:
            piece = self._made(node, kind) if node.is_pending else kind.split(node.data, 0, 1)
            # It is copied, as the call may change it.
            self.made[key] = piece.copy() if isinstance(piece, np.ndarray) else piece
        if kind.length(self.made[key]) == 0:
            raise LookupError("it has no rows")
        return self.made[key]

    def _made(self, node: Node, kind: SplitType) -> Any:
        call = cast(Call, node.call)
        if call.writes or len(self.made) > MAX_VALUES:
            raise LookupError("it takes too long")
        at = next(at for at, each in call.live_outputs() if each is node)
        for typing in call.annotation.typings(call, (None,) * len(call.inputs)):
            if typing.outputs[at] == kind or isinstance(typing.outputs[at], Unknown):
                kinds = iter(typing.inputs)
                args, kwargs = call.filled(lambda each: self.of(each, next(kinds)))  # noqa: B023
                if call.into is not None:
                    kwargs["out"] = self.of(call.into, next(kinds)).copy()
                result = (typing.fn or call.fn)(*args, **kwargs)
                return result[at] if len(call.outputs) > 1 else result
        raise LookupError("its call is not cut so")


def _stand_in(node: Node, kind: SplitType, *, rows: int) -> Any:
    """Return ones in place of the rows of a pending array, and no rows of other values."""
    if not node.is_pending:
        return node.data if isinstance(kind, Broadcast) else kind.split(node.data, 0, rows)
    if isinstance(node.meta, FrameMeta):
        return node.meta.empty
    if not isinstance(node.meta, ArrayMeta) or not isinstance(kind, Axis):
        raise LookupError("nothing is known of an input that is pending")
    return kind.split(stand_in(node), 0, rows)


def of_length(meta: Meta, kind: SplitType, length: int | None) -> Meta:
    """Return the meta of a result from that for some rows."""
    if isinstance(kind, Unknown):
        if isinstance(meta, ArrayMeta) and 0 in meta.shape:
            return None  # of no rows
        length = None
    elif not isinstance(kind, Axis) or counts_otherwise(kind):
        return None
    if isinstance(meta, FrameMeta):
        return FrameMeta(meta.empty, length, exact=False)
    if meta is None or meta.dtype.kind not in DTYPES:
        return None
    axis = kind.axis if isinstance(kind, Axis) else 0
    axis += len(meta.shape) if axis < 0 else 0
    if not 0 <= axis < len(meta.shape):
        return None
    shape = (*meta.shape[:axis], length, *meta.shape[axis + 1 :])
    return ArrayMeta(shape, meta.dtype, exact=False)


def without_extents(meta: Meta) -> Meta:
    """Return the meta of a result of any extents."""
    return meta._replace(shape=(None,) * len(meta.shape)) if isinstance(meta, ArrayMeta) else meta


def counts_otherwise(kind: SplitType) -> bool:
    """Return whether items are not those along an axis."""
    return type(kind).length is not Axis.length
