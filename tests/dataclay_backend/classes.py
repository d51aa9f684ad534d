"""Persistent classes as a user writes them, importable at backends by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from dataclay import DataClayObject, activemethod


def address(array: npt.NDArray[Any]) -> int:
    """Return where an array's elements are in memory."""
    return int(array.__array_interface__["data"][0])


class Readings(DataClayObject):  # type: ignore[misc]
    """An object that is a block itself: tasks use its attributes and methods."""

    values: npt.NDArray[np.int64]

    def __init__(self, values: npt.NDArray[np.int64]) -> None:
        self.values = values

    @activemethod  # type: ignore[untyped-decorator]
    def total(self) -> int:
        return int(self.values.sum())

    @activemethod  # type: ignore[untyped-decorator]
    def address(self) -> int:
        """Return where the values are in the backend's memory."""
        return address(self.values)


class Table(Readings):
    def spliter_block(self) -> Any:
        """Return the values."""
        return self.values


class Broken(Readings):
    """An object whose block cannot be told: an error that dataClay's own could be taken for."""

    calls = 0

    def spliter_block(self) -> Any:
        """Count the call, and raise."""
        type(self).calls += 1
        raise AttributeError("_dc_property_values")


def calls_of_broken() -> int:
    """Return how often a block has been asked of :class:`Broken` at this backend."""
    return Broken.calls
