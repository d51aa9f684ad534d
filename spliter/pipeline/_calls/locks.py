"""Arrays that ``options(pedantic=True)`` makes read-only as long as calls on them are pending."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np


class Locks:
    """Arrays that are read-only for now; pipelines may change them nevertheless."""

    def __init__(self) -> None:
        self._arrays: dict[int, Any] = {}

    def add(self, values: Iterable[Any]) -> None:
        """Make arrays read-only, unless they are views of what is no array."""
        for array in values:
            if not isinstance(array, np.ndarray) or not array.flags.writeable:
                continue
            if _bases(array)[-1].flags.owndata:  # other arrays may stay read-only
                array.flags.writeable = False
                self._arrays[id(array)] = array

    def add_view(self, view: Any, whole: Any) -> None:
        """Remember a view of a locked array: it was made read-only."""
        if id(whole) in self._arrays:
            self._arrays[id(view)] = view

    def is_read_only(self, array: Any) -> bool:
        """Return whether the program must not change an array."""
        return id(array) not in self._arrays and not array.flags.writeable

    def take_over(self, other: Locks) -> None:
        """Take over the arrays of other locks."""
        self._arrays.update(other._arrays)
        other._arrays = {}

    def end(self) -> None:
        """Make the arrays writeable again."""
        for array in self._arrays.values():
            locked = [each for each in reversed(_bases(array)) if not each.flags.writeable]
            for each in locked:
                each.flags.writeable = True  # a view can be so only if its base is
            for each in locked[:-1]:
                each.flags.writeable = False  # by others
        self._arrays.clear()


def _bases(array: Any) -> list[Any]:
    """Return an array, and the arrays of which it is a view."""
    found = [array]
    while isinstance(found[-1].base, np.ndarray):
        found.append(found[-1].base)
    return found
