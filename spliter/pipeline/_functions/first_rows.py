"""Know the results of an annotated function from a call on one row, before it runs on all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, cast

import numpy as np

from spliter.pipeline._calls.calls import Call, Node
from spliter.pipeline._calls.graph import RUNNING, Graph
from spliter.pipeline._calls.metas import DTYPES, ArrayMeta, FrameMeta, Meta, meta_of
from spliter.pipeline._calls.split_types import (
    Axis,
    Broadcast,
    Groups,
    Reduction,
    Rows,
    SplitType,
    Unknown,
)
from spliter.pipeline._running.interrupts import is_interrupt

MAX_CALLS: Final = 50
"""As many pending calls run on first rows to know the results of another one."""

MAX_ROWS: Final = 100
"""Of as many rows a call is tried that fails for one, or of which a filter drops one."""


class NoFirstRowsError(LookupError):
    """A value follows from a call that does not run on first rows, or from too many ones."""


class Tried(NamedTuple):
    """What is known of the results of a call: their metas, and what they are of no rows."""

    metas: tuple[Meta, ...]
    empties: tuple[Any, ...]


def try_first_rows(
    call: Call, inputs: Sequence[SplitType], outputs: Sequence[SplitType]
) -> Tried | None:
    """Return what is known of a call after one on the first row; nothing if it fails.

    Parameters
    ----------
    call : Call
    inputs, outputs : sequence of SplitType
    """
    lazies = [node.lazy() for node in call.inputs if node.lazy]
    graph = next((each._graph.root() for each in lazies if each is not None), None)
    tried = None
    for rows in (1, MAX_ROWS):
        kinds = iter(inputs)
        values = _FirstRows(graph, rows)
        try:
            args, kwargs = call.filled(lambda node: values.given(node, next(kinds)))  # noqa: B023
            result = values.called(call.fn, args, kwargs)
        except BaseException as error:  # of a class of its own, too
            if is_interrupt(error):
                raise
            continue  # there is no row, or so few are refused
        results = result if len(outputs) > 1 else (result,)
        if not isinstance(results, tuple | list) or len(results) != len(outputs):
            return None
        pairs = list(zip(results, outputs, strict=True))
        metas = tuple([of_length(meta_of(value), kind, None) for value, kind in pairs])
        tried = Tried(metas, tuple([_without_rows(*pair) for pair in pairs]))
        if rows == 1 and all(isinstance(kind, Unknown) or kind == Rows() for kind in outputs):
            call.first = tuple(results)  # so that it is made once in a chain of calls
        found = zip(tried.empties, outputs, strict=True)
        if not any(isinstance(kind, Unknown) and empty is None for empty, kind in found):
            break
    return tried


def _without_rows(value: Any, kind: SplitType) -> Any:
    """Return no rows of a result, or ``None`` if it has none."""
    if isinstance(kind, Broadcast | Reduction | Groups):
        return None
    if isinstance(kind, Unknown):
        kind = Rows()
    try:
        return kind.split(value, 0, 0) if kind.length(value) else None
    except Exception:  # noqa: BLE001 -- by no method, or one of the user's
        return None


class _FirstRows:
    """The first rows of values; of pending ones what their calls make of the first rows of others.

    Its methods raise ``LookupError`` if they cannot be had.

    Parameters
    ----------
    graph : Graph or None
        That of the values, which may be elsewhere.
    rows : int
    """

    def __init__(self, graph: Graph | None, rows: int) -> None:
        self.graph = graph
        self.rows = rows
        self.made: dict[tuple[Node, SplitType], Any] = {}
        self.calls = 0

    def given(self, node: Node, kind: SplitType) -> Any:
        """Return some rows of a value, after a pass if first rows of others do not make them."""
        try:
            return self.of(node, kind)
        except NoFirstRowsError:
            if self.graph is None:
                raise
            return self.graph.first_row(node)

    def of(self, node: Node, kind: SplitType) -> Any:
        """Return some rows of a value that is cut, or the value."""
        if not node.is_pending and self._will_change(node.data):
            raise NoFirstRowsError
        if isinstance(kind, Broadcast) and not node.is_pending:
            return node.data
        if isinstance(kind, Broadcast) and self.graph is not None:
            return self.graph.whole(node)
        key = node, kind
        if key not in self.made:
            piece = self._piece(node, kind)
            # It is copied, as the call may change it.
            self.made[key] = piece.copy() if isinstance(piece, np.ndarray) else piece
        if kind.length(self.made[key]) == 0:
            if self.graph is None or self.rows < MAX_ROWS:
                raise LookupError("it has no rows")
            self.made[key] = self.graph.first_row(node)
        return self.made[key]

    def _will_change(self, value: Any) -> bool:
        """Return whether pending calls change a value, or an array that shares its memory."""
        if self.graph is None or not self.graph.writes_wait:
            return False
        changed = [node.data for call in self.graph.pending for node in call.writes]
        return any(value is each or _share_memory(value, each) for each in changed)

    def _piece(self, node: Node, kind: SplitType) -> Any:
        if not node.is_pending:
            return kind.split(node.data, 0, min(self.rows, kind.length(node.data)))
        rows = None if self.graph is None else self.graph.first_rows(node)
        return self._made(node, kind) if rows is None else rows[: self.rows]

    def _made(self, node: Node, kind: SplitType) -> Any:
        call = cast(Call, node.call)
        at = next(at for at, each in call.live_outputs() if each is node)
        if self.rows == 1 and call.first is not None and kind in (Rows(), Unknown()):
            return call.first[at]
        self.calls += 1
        if call.writes or self.calls > MAX_CALLS:
            raise NoFirstRowsError
        known = tuple([None if _has_length(each) else Unknown() for each in call.inputs])
        for typing in call.annotation.typings(call, known):
            made = typing.outputs[at]
            if made == kind or (isinstance(made, Unknown) and kind in (Rows(), Unknown())):
                kinds = iter(typing.inputs)
                args, kwargs = call.filled(lambda each: self.of(each, next(kinds)))  # noqa: B023
                if call.into is not None:
                    kwargs["out"] = self.of(call.into, next(kinds)).copy()
                result = self.called(typing.fn or call.fn, args, kwargs)
                return result[at] if len(call.outputs) > 1 else result
        raise NoFirstRowsError

    def called(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a function, which must not use values that it does not get."""
        running = RUNNING.set(self.graph)
        try:
            with np.errstate(all="ignore"):
                return fn(*args, **kwargs)
        finally:
            RUNNING.reset(running)


def _share_memory(one: Any, other: Any) -> bool:
    are_arrays = isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
    return are_arrays and np.may_share_memory(one, other)


def _has_length(node: Node) -> bool:
    """Return whether the number of rows is known: not of what a filter leaves, nor over a Split."""
    return not node.is_pending or (node.meta is not None and node.meta.is_known)


def of_length(meta: Meta, kind: SplitType, length: int | None) -> Meta:
    """Return the meta of a result from that for some rows."""
    if isinstance(kind, Unknown):
        if (0 in meta.shape) if isinstance(meta, ArrayMeta) else (meta and meta.length == 0):
            return None  # of no rows
        length = None
    elif not isinstance(kind, Axis):
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
