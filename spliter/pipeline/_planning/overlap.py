"""Find accesses of the same memory, one of which writes it.

The memory that the calls of a program write is a few regions: ranges of addresses, joined where
views overlap. What is elsewhere, results of pending calls above all, cannot be in conflict.
"""

from __future__ import annotations

import collections
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from spliter.pipeline._calls.calls import Call
from spliter.pipeline._calls.split_types import SplitType

EXACT_WORK: Final = 1000
"""Steps that NumPy may take to find whether two strided views share an element, a few microseconds;
else they count as overlapping."""

Key: TypeAlias = tuple[int, bool]
"""Number of a region, and whether it is written."""


@dataclass(frozen=True, eq=False)
class View:
    """Elements of an array, in some order, or another object.

    Parameters
    ----------
    data : object
    regions : range
        Numbers of the regions in which they are.
    """

    data: Any
    regions: range

    def overlaps(self, other: View) -> bool:
        """Return whether two views have an element in common."""
        if self is other:
            return True
        one, two = self.data, other.data
        if not isinstance(one, np.ndarray) or not isinstance(two, np.ndarray):
            return False
        try:
            return np.shares_memory(one, two, max_work=EXACT_WORK)  # type: ignore[arg-type]
        except np.exceptions.TooHardError:
            return True


class Access(NamedTuple):
    """An input of a call in memory that a call of the program writes.

    Parameters
    ----------
    view : View
    at : int
        Number of the input.
    is_written : bool
    """

    view: View
    at: int
    is_written: bool

    @property
    def keys(self) -> Iterator[Key]:
        """What it accesses."""
        return ((region, self.is_written) for region in self.view.regions)

    @property
    def opposed(self) -> Iterator[Key]:
        """Accesses with which it must not change places."""
        kinds = (True, False) if self.is_written else (True,)
        return ((region, kind) for region in self.view.regions for kind in kinds)


class Memory:
    """The regions that calls write.

    Parameters
    ----------
    calls : iterable of Call
    """

    def __init__(self, calls: Iterable[Call]) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._views: dict[Any, View] = {}
        nodes = {node for call in calls for node in call.writes}
        for start, stop in sorted(_span(node.data) for node in nodes):
            if self._stops and start < self._stops[-1]:
                self._stops[-1] = max(stop, self._stops[-1])
            else:
                self._starts.append(start)
                self._stops.append(stop)

    def accesses(self, call: Call) -> list[Access]:
        """Return the inputs of a call that are in a region."""
        if not self._starts:
            return []
        return [
            Access(view, at, node in call.writes)
            for at, node in enumerate(call.inputs)
            if node.data is not None and (view := self._view(node.data)).regions
        ]

    def _view(self, data: Any) -> View:
        """Return the view of an object; the same one for the same elements in the same order."""
        start, stop = _span(data)
        key: Any = start
        if isinstance(data, np.ndarray):
            key = start, data.shape, data.strides, data.dtype
        if key not in self._views:
            regions = range(bisect_right(self._stops, start), bisect_left(self._starts, stop))
            self._views[key] = View(data, regions)
        return self._views[key]


def _span(data: Any) -> tuple[int, int]:
    """Return the addresses of an array; of another object some that no array has."""
    if isinstance(data, np.ndarray):
        return np.lib.array_utils.byte_bounds(data) if data.size else (0, 0)
    return id(data), id(data) + 1


class Accesses:
    """Accesses of several calls, and how these cut them."""

    def __init__(self) -> None:
        self._found: dict[Key, set[tuple[View, SplitType]]] = collections.defaultdict(set)

    def add(self, access: Access, kind: SplitType) -> None:
        """Add one that is cut by a split type."""
        for key in access.keys:
            self._found[key].add((access.view, kind))

    def has(self, access: Access, kind: SplitType) -> bool:
        """Return whether they include one of the same elements, cut alike, written if it is."""
        kinds = (True, access.is_written)
        keys = [(access.view.regions.start, is_written) for is_written in kinds]
        return any((access.view, kind) in self._found.get(key, ()) for key in keys)

    def conflicts(self, access: Access) -> Iterator[tuple[View, SplitType]]:
        """Yield those of memory that a later access shares, unless both read it."""
        for key in access.opposed:
            for view, kind in self._found.get(key, ()):
                if view.overlaps(access.view):
                    yield view, kind
