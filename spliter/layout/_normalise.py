"""Normalise layouts: the simplest description of the same bytes in the same order."""

from __future__ import annotations

import numpy as np

from spliter.layout._constructors import (
    contiguous,
    hindexed,
    hindexed_block,
    hvector,
    resized,
    struct,
)
from spliter.layout._layout import Layout
from spliter.layout._lower import lower
from spliter.layout._nodes import Node, Placed, Places, Repeat, Run, Runs


def normalise(layout: Layout) -> Layout:
    """Return the simplest layout of the same bytes in the same order, with the same bounds.

    Contiguous neighbours are merged, unless they are few among blocks of equal length. Blocks of
    equal length become ``hindexed_block``, equal steps ``hvector``, a struct of one type
    ``hindexed_block``, a struct of basic types ``hindexed``. The basic type is always a byte.

    Parameters
    ----------
    layout : Layout
        Any.

    Returns
    -------
    Layout
        Normalised again, it stays the same.

    Examples
    --------
    >>> from spliter import layout as lo
    >>> lo.normalise(lo.indexed([2, 2], [0, 2], lo.vector(2, 4, 4, "f8")))
    contiguous(count=256, base='u1')
    >>> lo.normalise(lo.struct([1, 1, 1], [0, 8, 24], ["f8", "f8", "f8"]))
    hindexed(blocklengths=[16, 8], displacements=[0, 24], base='u1')
    """
    placed = lower(layout)
    made = _as_layout(placed.node)
    if placed.displacement:
        made = hindexed_block(1, [placed.displacement], made)
    if (made.lb, made.extent) == (layout.lb, layout.extent):
        return made
    return resized(made, layout.lb, layout.extent)


def _as_layout(node: Node) -> Layout:
    match node:
        case Run():
            return contiguous(node.size, "u1")
        case Repeat():
            return hvector(node.count, 1, node.stride, _as_layout(node.child))
        case Places():
            return hindexed_block(1, node.displacements, _as_layout(node.child))
        case Runs():
            return hindexed(node.lengths, node.displacements, "u1")
    parts: tuple[Placed, ...] = node.parts
    return struct(
        np.ones(len(parts), np.int64),
        np.array([part.displacement for part in parts]),
        [_as_layout(part.node) for part in parts],
    )
