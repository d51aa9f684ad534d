"""Calls that choose rows by a mask, or the same elements of each row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast

from spliter.pipeline._calls.calls import Call, Node, Typing
from spliter.pipeline._calls.metas import ArrayMeta, Meta
from spliter.pipeline._calls.split_types import ROWS, SplitType, Unknown

MOST_CALLS: Final = 2**48
"""More than a process can make: the results of one are numbered beyond it."""


class Filtered:
    """``x[mask]``: the rows where a mask of one axis is true."""

    scratch = True

    def metas(self, call: Call) -> tuple[Meta, ...]:
        """Return the meta of an unknown number of rows."""
        meta = call.inputs[0].meta
        return (meta and ArrayMeta((None, *meta.shape[1:]), meta.dtype, exact=False),)

    def typings(self, call: Call, known: tuple[SplitType | None, ...]) -> Iterable[Typing]:
        """Return the typing by rows, if those of value and mask match."""
        kinds = {kind for kind in known if kind is not None}
        kind = next(iter(kinds), ROWS)
        lengths = {_length(node) for node, have in zip(call.inputs, known, strict=True) if not have}
        is_cut = not lengths if isinstance(kind, Unknown) else kind == ROWS
        if is_cut and len(kinds) <= 1 and len(lengths) <= 1 and 0 not in lengths:
            made = Unknown(token_of(call.inputs[1], call))
            yield Typing((kind, kind), (made,), next(iter(lengths), None))


class Picked:
    """``x[:, key]``: the same elements of each row, as a view or a copy."""

    scratch = False

    def metas(self, call: Call) -> tuple[Meta, ...]:
        """Return the meta of the same rows."""
        meta = cast(ArrayMeta, call.inputs[0].meta)
        shape = meta.empty[call.args[1]].shape[1:]
        return (ArrayMeta((meta.length, *shape), meta.dtype, exact=False),)

    def typings(self, call: Call, known: tuple[SplitType | None, ...]) -> Iterable[Typing]:
        """Return the typing by rows."""
        kind, length = known[0] or ROWS, _length(call.inputs[0])
        if length != 0 and (isinstance(kind, Unknown) or kind == ROWS):
            yield Typing((kind,), (kind,), length)


def _length(node: Node) -> int | None:
    if node.meta is None:
        return None if node.data is None else len(node.data)
    return node.meta.length


def token_of(mask: Node, call: Call) -> int:
    """Return a number for the rows that a mask chooses: the same one for all of them."""
    maker = mask.call
    if maker is None:
        return call.number if mask.rows is None else cast(int, mask.rows.token)
    at = next(at for at, node in maker.live_outputs() if node is mask)
    return -2 - maker.number - at * MOST_CALLS


FILTERED: Final = Filtered()
PICKED: Final = Picked()
