"""Find out whether a layout names a byte twice: then packed bytes have no one place in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter.layout._integers import Int64s
from spliter.layout._nodes import Contiguous, Indexed, IndexedBlock, Node, Struct, Vector

Ints: TypeAlias = npt.NDArray[np.signedinteger[Any]]
Dims: TypeAlias = tuple[tuple[int, int], ...]

MOST_RUNS: Final = 2**22
"""Interleaved runs that are compared one by one (about 0.3 s); more are taken to overlap."""


def overlaps(node: Node) -> bool:
    """Return whether two bytes of a node are at the same displacement, or may be.

    They may if more than `MOST_RUNS` runs are interleaved irregularly.
    """
    return not _nested(node) and not _interleaved(node)


def _nested(node: Node) -> bool:
    """Return whether the spans of the parts of each node are apart, which is quickly seen."""
    match node:
        case Contiguous():
            return True
        case Vector():
            return abs(node.stride) >= _span(node.child) and _nested(node.child)
        case IndexedBlock():
            return _apart(node.displacements, _span(node.child)) and _nested(node.child)
        case Indexed():
            return _apart(node.displacements, node.lengths)
        case Struct():
            lows = np.array([part.low for part in node.parts])
            spans = np.array([_span(part.node) for part in node.parts])
            return _apart(lows, spans) and all(_nested(part.node) for part in node.parts)


def _span(node: Node) -> int:
    return node.high - node.low


def _apart(begins: Ints, lengths: Int64s | int) -> bool:
    """Return whether no run reaches into another."""
    if not (begins[1:] > begins[:-1]).all():
        if isinstance(lengths, int):
            begins = begins - begins.min()
            if int(begins.max()) + lengths < 2**31:
                begins = begins.astype(np.int32)  # sorted faster
            begins = np.sort(begins)  # several times as fast as argsort
        else:
            order = np.argsort(begins)
            begins, lengths = begins[order], lengths[order]
    ends = begins + lengths
    return bool((ends[:-1] <= begins[1:]).all())


class _Runs(NamedTuple):
    """Runs of some lengths, each repeated along dimensions of a positive stride and a count."""

    begins: Int64s
    lengths: Int64s
    dims: Dims

    @property
    def total(self) -> int:
        return len(self.begins) * math.prod(count for _, count in self.dims)

    @property
    def span(self) -> tuple[int, int]:
        """Displacements of the first byte, and behind the last."""
        more = sum(stride * (count - 1) for stride, count in self.dims)
        return int(self.begins.min()), int((self.begins + self.lengths).max()) + more

    def without(self, stride: int) -> _Runs:
        """Return the first copy along a dimension of this stride."""
        at = next((at for at, (one, _) in enumerate(self.dims) if one == stride), len(self.dims))
        return self._replace(dims=self.dims[:at] + self.dims[at + 1 :])

    def expanded(self) -> _Runs:
        """Return all runs, none repeated."""
        begins = self.begins
        for stride, count in self.dims:
            begins = np.add.outer(np.arange(count) * stride, begins).ravel()
        return _Runs(begins, np.tile(self.lengths, len(begins) // len(self.begins)), ())


def _interleaved(node: Node) -> bool:
    """Return whether runs are apart though the spans of their nodes are not.

    What is repeated at the largest stride, and spans no more than that, is apart if one copy is.
    """
    by_dims: dict[Dims, list[_Runs]] = {}
    for runs in _paths(node, 0, ()):
        by_dims.setdefault(runs.dims, []).append(runs)
    found = [_concatenated(group, dims) for dims, group in by_dims.items()]
    while strides := [stride for runs in found for stride, _ in runs.dims]:
        largest = max(strides)
        rest = [runs.without(largest) for runs in found]
        lows, highs = zip(*(runs.span for runs in rest), strict=True)
        if max(highs) - min(lows) > largest:
            break
        found = rest
    if sum(runs.total for runs in found) > MOST_RUNS:
        return False
    every = _concatenated([runs.expanded() for runs in found], ())
    return _apart(every.begins, every.lengths)


def _concatenated(group: list[_Runs], dims: Dims) -> _Runs:
    begins, lengths, _ = zip(*group, strict=True)
    return _Runs(np.concatenate(begins), np.concatenate(lengths), dims)


def _paths(node: Node, at: int, dims: Dims) -> Iterator[_Runs]:
    """Yield the runs of a node, by the way that leads to them."""
    match node:
        case Contiguous():
            yield _Runs(np.array([at]), np.array([node.size]), dims)
        case Vector():
            low = min(0, (node.count - 1) * node.stride)
            yield from _paths(node.child, at + low, (*dims, (abs(node.stride), node.count)))
        case IndexedBlock():
            inner = list(_paths(node.child, at, dims))
            if len(node.displacements) * sum(len(runs.begins) for runs in inner) > MOST_RUNS:
                whole = np.array([at + node.child.low]), np.array([_span(node.child)])
                inner = [_Runs(*whole, dims)]
            for runs in inner:
                begins = np.add.outer(node.displacements, runs.begins).ravel()
                lengths = np.tile(runs.lengths, len(node.displacements))
                yield _Runs(begins, lengths, runs.dims)
        case Indexed():
            yield _Runs(node.displacements + at, node.lengths, dims)
        case Struct():
            for part in node.parts:
                yield from _paths(part.node, at + part.displacement, dims)
