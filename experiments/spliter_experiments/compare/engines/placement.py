"""How the blocks of a comparison are spread over the workers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

PlaceT = TypeVar("PlaceT")


class Placement(StrEnum):
    """How blocks are spread over the workers."""

    EVEN = "even"
    """In turn, each worker as many as it has threads."""
    CONTIGUOUS = "contiguous"
    """A range of neighbours for each worker, in proportion to its threads: to a block the same rows
    as if they were rechunked to one chunk per thread."""
    DASK = "dask"
    """Where Dask happens to make them, which is a tenth uneven or more."""
    DATACLAY = "dataclay"
    """At random, as dataClay does where it is not told."""
    COMPSS = "compss"
    """Where COMPSs' scheduler has the tasks run that make them."""


def seats(nblocks: int, cores: Mapping[PlaceT, int], placement: Placement) -> list[PlaceT]:
    """Return the place of each block, where the engine can be told.

    Parameters
    ----------
    nblocks : int
        How many there are.
    cores : mapping of place to int
        Places and their cores, at least one each.
    placement : Placement
        :attr:`Placement.EVEN` or :attr:`Placement.CONTIGUOUS`.

    Returns
    -------
    list of place
        One for each block, in the order of the blocks.

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
