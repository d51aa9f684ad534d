"""Find out whether a layout names a byte twice: then packed bytes have no one place in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from spliter.layout._integers import Int64s
from spliter.layout._nodes import Node, Places, Repeat, Run, Runs, Sequence

MOST_RUNS: Final = 2**22
"""Interleaved runs that are compared one by one (about 0.3 s); more are taken to overlap."""


def overlaps(node: Node) -> bool:
    """Return whether two bytes of a node are at the same displacement.

    Never wrong if it says no. It says yes, to be safe, if more than `MOST_RUNS` runs are
    interleaved irregularly.

    Examples
    --------
    >>> overlaps(Repeat(3, 8, Run(8))), overlaps(Repeat(3, 7, Run(8)))
    (False, True)
    """
    return not _nested(node) and not _interleaved(node)


def _nested(node: Node) -> bool:
    """Return whether the spans of the parts of each node are apart, which is quickly seen."""
    match node:
        case Run():
            return True
        case Repeat():
            return abs(node.stride) >= _span(node.child) and _nested(node.child)
        case Places():
            return _apart(node.displacements, _span(node.child)) and _nested(node.child)
        case Runs():
            return _apart(node.displacements, node.lengths)
        case Sequence():
            lows = np.array([part.low for part in node.parts])
            spans = np.array([_span(part.node) for part in node.parts])
            return _apart(lows, spans) and all(_nested(part.node) for part in node.parts)


def _span(node: Node) -> int:
    return node.high - node.low


def _apart(begins: Int64s, lengths: Int64s | int) -> bool:
    """Return whether no run reaches into another."""
    if not (begins[1:] > begins[:-1]).all():
        if isinstance(lengths, int):
            begins = np.sort(begins)  # several times as fast as argsort
        else:
            order = np.argsort(begins)
            begins, lengths = begins[order], lengths[order]
    ends = begins + lengths
    return bool((ends[:-1] <= begins[1:]).all())


@dataclass(frozen=True)
class _Runs:
    """Runs of some lengths, each repeated along dimensions of a positive stride and a count."""

    begins: Int64s
    lengths: Int64s
    low: int
    end: int
    dims: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        return len(self.begins) * math.prod(count for _, count in self.dims)

    @property
    def high(self) -> int:
        return self.end + sum(stride * (count - 1) for stride, count in self.dims)

    def without(self, stride: int) -> _Runs:
        """Return the first copy along a dimension of this stride."""
        for number, (one, _) in enumerate(self.dims):
            if one == stride:
                dims = self.dims[:number] + self.dims[number + 1 :]
                return _Runs(self.begins, self.lengths, self.low, self.end, dims)
        return self

    def expanded(self) -> tuple[Int64s, Int64s]:
        """Return begins and lengths of all runs."""
        begins, lengths = self.begins, self.lengths
        for stride, count in self.dims:
            begins = np.add.outer(np.arange(count) * stride, begins).ravel()
            lengths = np.tile(lengths, count)
        return begins, lengths


def _interleaved(node: Node) -> bool:
    """Return whether runs are apart though the spans of their nodes are not.

    What is repeated at the largest stride, and spans no more than that, is apart if one copy is.
    """
    if node.count_runs > MOST_RUNS and _places(node) > MOST_RUNS:
        return False
    found = list(_paths(node, 0, ()))
    while strides := [stride for runs in found for stride, _ in runs.dims]:
        largest = max(strides)
        rest = [runs.without(largest) for runs in found]
        if max(runs.high for runs in rest) - min(runs.low for runs in rest) > largest:
            break
        found = rest
    if sum(runs.count for runs in found) > MOST_RUNS:
        return False
    expanded = [runs.expanded() for runs in found]
    return _apart(
        np.concatenate([begins for begins, _ in expanded]),
        np.concatenate([lengths for _, lengths in expanded]),
    )


def _places(node: Node) -> int:
    """Return the number of displacements that :func:`_paths` lists."""
    match node:
        case Run():
            return 1
        case Repeat():
            return _places(node.child)
        case Places():
            return len(node.displacements) * _places(node.child)
        case Runs():
            return len(node.lengths)
        case Sequence():
            return sum(_places(part.node) for part in node.parts)


def _paths(node: Node, at: int, dims: tuple[tuple[int, int], ...]) -> Iterator[_Runs]:
    """Yield the runs of a node, by the way that leads to them."""
    match node:
        case Run():
            begins, lengths = np.array([at]), np.array([node.size])
            yield _Runs(begins, lengths, at, at + node.size, dims)
        case Repeat():
            low = min(0, (node.count - 1) * node.stride)
            yield from _paths(node.child, at + low, (*dims, (abs(node.stride), node.count)))
        case Places():
            for runs in _paths(node.child, at, dims):
                begins = np.add.outer(node.displacements, runs.begins).ravel()
                lengths = np.tile(runs.lengths, len(node.displacements))
                low, end = (int(node.displacements.min()), int(node.displacements.max()))
                yield _Runs(begins, lengths, runs.low + low, runs.end + end, runs.dims)
        case Runs():
            begins = node.displacements + at
            yield _Runs(begins, node.lengths, at + node.low, at + node.high, dims)
        case Sequence():
            for part in node.parts:
                yield from _paths(part.node, at + part.displacement, dims)
