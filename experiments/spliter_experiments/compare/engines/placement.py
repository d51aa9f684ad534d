"""Assign the blocks of a comparison to workers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

PlaceT = TypeVar("PlaceT")


class Placement(StrEnum):
    """Distribution of blocks over the workers."""

    EVEN = "even"
    """Round robin, each worker as often as it has threads."""
    CONTIGUOUS = "contiguous"
    """A range of consecutive blocks per worker, in proportion to its threads: up to a block the
    same rows as after rechunking to one chunk per thread."""
    DASK = "dask"
    """Chosen by Dask's scheduler; uneven by a tenth or more."""
    COMPSS = "compss"
    """Chosen by COMPSs' scheduler."""


def seats(nblocks: int, cores: Mapping[PlaceT, int], placement: Placement) -> list[PlaceT]:
    """Return the location of each block, by even or contiguous placement.

    Examples
    --------
    >>> seats(6, {"a": 2, "b": 1}, Placement.EVEN)
    ['a', 'b', 'a', 'a', 'b', 'a']
    >>> seats(6, {"a": 2, "b": 1}, Placement.CONTIGUOUS)
    ['a', 'a', 'a', 'a', 'b', 'b']
    """
    if placement is Placement.CONTIGUOUS:
        chairs = [place for place, count in cores.items() for _ in range(count)]
        return [chairs[number * len(chairs) // nblocks] for number in range(nblocks)]
    turns = range(max(cores.values()))
    chairs = [place for turn in turns for place, count in cores.items() if count > turn]
    return list(itertools.islice(itertools.cycle(chairs), nblocks))
