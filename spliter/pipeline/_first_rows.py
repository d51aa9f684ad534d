"""Know the results of an annotated function from a call on one row, before it runs on all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np

from spliter.pipeline._graph import Call, Graph, Node
from spliter.pipeline._metas import DTYPES, ArrayMeta, FrameMeta, Meta, meta_of
from spliter.pipeline._types import Axis, Broadcast, SplitType, Unknown

MAX_VALUES: Final = 50
"""Of as many pending values the first rows are computed to know those of another one."""

MAX_ROWS: Final = 100
"""Of as many rows a filter may drop all but one."""


def metas_of_first_row(
    call: Call, inputs: Sequence[SplitType], outputs: Sequence[SplitType]
) -> tuple[Meta, ...]:
    """Return what a call gives for one row; nothing if there is none, or it fails.

    Parameters
    ----------
    call : Call
    inputs, outputs : sequence of SplitType
    """
    samples = _first_row(call, inputs)
    if samples is None:
        return ()
    values = iter(samples)
    args, kwargs = call.filled(lambda _: next(values))
    try:
        with np.errstate(all="ignore"):
            result = call.fn(*args, **kwargs)
    except Exception:  # noqa: BLE001 -- it may refuse so few rows
        return ()
    results = result if len(outputs) > 1 else (result,)
    if not isinstance(results, tuple | list) or len(results) != len(outputs):
        return ()
    pairs = zip(results, outputs, strict=True)
    return tuple([of_length(meta_of(value), kind, None) for value, kind in pairs])


def _first_row(call: Call, kinds: Sequence[SplitType]) -> list[Any] | None:
    """Return the inputs of a call with one row; nothing if that cannot be had.

    Over a Split, tasks run the calls before it if there is no other way.
    """
    lazies = [node.lazy() for node in call.inputs if node.lazy]
    graph = next((each._graph.root() for each in lazies if each is not None), None)
    for rows in (1, MAX_ROWS):  # a filter may drop the first one
        values = _FirstRows(graph, rows)
        try:
            return [values.row(*each) for each in zip(call.inputs, kinds, strict=True)]
        except Exception:  # noqa: BLE001 -- there is none, or it makes a call fail
            continue
    return graph.first_rows(call.inputs) if graph else None


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

    def row(self, node: Node, kind: SplitType) -> Any:
        """Return the first row of a value that is cut, or the value."""
        piece = self.of(node, kind)
        return piece if isinstance(kind, Broadcast) else kind.split(piece, 0, 1)

    def of(self, node: Node, kind: SplitType) -> Any:
        """Return some rows of a value that is cut, or the value."""
        if isinstance(kind, Broadcast) and not node.is_pending:
            return node.data
        key = node, kind
        if key not in self.made:
            piece = self._piece(node, kind)
            # It is copied, as the call may change it.
            self.made[key] = piece.copy() if isinstance(piece, np.ndarray) else piece
        if kind.length(self.made[key]) == 0:
            raise LookupError("it has no rows")
        return self.made[key]

    def _piece(self, node: Node, kind: SplitType) -> Any:
        if not node.is_pending:
            return kind.split(node.data, 0, min(self.rows, kind.length(node.data)))
        row = None if self.graph is None else self.graph.first_row_of_argument(node)
        return self._made(node, kind) if row is None else row

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
