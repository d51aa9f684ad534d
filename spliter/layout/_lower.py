"""Bring a layout into its normal form of nodes over bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import numpy as np

from spliter.layout._integers import Int64s
from spliter.layout._nodes import (
    NOTHING,
    Placed,
    Run,
    places,
    repeat,
    runs,
    sequence,
)

MOST_PLACES: Final = 2**20
"""Blocks of several lengths of a base with gaps become one displacement for each copy of the base,
up to this many (8 MiB of displacements); beyond, one node for each block."""


class Described(Protocol):
    """What this module reads of a layout."""

    @property
    def combiner(self) -> str: ...
    @property
    def contents(self) -> Mapping[str, Any]: ...
    @property
    def size(self) -> int: ...
    @property
    def extent(self) -> int: ...


def lower(layout: Described) -> Placed:
    """Return the normal form of a layout.

    Examples
    --------
    >>> from spliter import layout as lo
    >>> lower(lo.vector(2, 3, 4, "f8"))
    Placed(displacement=0, node=Repeat(count=2, stride=32, child=Run(size=24)))
    """
    return _RULES[layout.combiner](**layout.contents) if layout.size else NOTHING


def _named(dtype: np.dtype[Any]) -> Placed:
    return Placed(0, Run(dtype.itemsize))


def _block(length: int, base: Described) -> Placed:
    return repeat(length, base.extent, lower(base))


def _contiguous(count: int, base: Described) -> Placed:
    return _block(count, base)


def _vector(count: int, blocklength: int, stride: int, base: Described) -> Placed:
    return _hvector(count, blocklength, stride * base.extent, base)


def _hvector(count: int, blocklength: int, stride: int, base: Described) -> Placed:
    return repeat(count, stride, _block(blocklength, base))


def _indexed_block(blocklength: int, displacements: Int64s, base: Described) -> Placed:
    return _hindexed_block(blocklength, displacements * base.extent, base)


def _hindexed_block(blocklength: int, displacements: Int64s, base: Described) -> Placed:
    return places(displacements, _block(blocklength, base))


def _indexed(blocklengths: Int64s, displacements: Int64s, base: Described) -> Placed:
    return _hindexed(blocklengths, displacements * (blocklengths > 0) * base.extent, base)


def _hindexed(blocklengths: Int64s, displacements: Int64s, base: Described) -> Placed:
    filled = blocklengths > 0
    if not filled.all():
        blocklengths, displacements = blocklengths[filled], displacements[filled]
    one = lower(base)
    if (blocklengths == blocklengths[0]).all():
        return places(displacements, repeat(int(blocklengths[0]), base.extent, one))
    if isinstance(one.node, Run) and one.node.size == base.extent:
        return runs(displacements + one.displacement, blocklengths * base.extent)
    copies = int(blocklengths.sum())
    if copies > MOST_PLACES:
        each = zip(displacements.tolist(), blocklengths.tolist(), strict=True)
        return sequence(repeat(many, base.extent, one.moved(at)) for at, many in each)
    firsts = np.cumsum(blocklengths) - blocklengths
    number = np.arange(copies) - np.repeat(firsts, blocklengths)
    return places(np.repeat(displacements, blocklengths) + number * base.extent, one)


def _struct(blocklengths: Int64s, displacements: Int64s, types: tuple[Described, ...]) -> Placed:
    if all(one == types[0] for one in types):
        return _hindexed(blocklengths, displacements, types[0])
    each = zip(blocklengths.tolist(), displacements.tolist(), types, strict=True)
    return sequence(_block(many, base).moved(at) for many, at, base in each if many)


def _subarray(
    sizes: Int64s, subsizes: Int64s, starts: Int64s, order: str, base: Described
) -> Placed:
    found, step = lower(base), base.extent
    dimensions = list(zip(sizes.tolist(), subsizes.tolist(), starts.tolist(), strict=True))
    for size, subsize, start in reversed(dimensions) if order == "C" else dimensions:
        found = repeat(subsize, step, found).moved(start * step)
        step *= size
    return found


def _resized(base: Described, lb: int, extent: int) -> Placed:
    return lower(base)


_RULES: Final[dict[str, Callable[..., Placed]]] = {
    "named": _named,
    "contiguous": _contiguous,
    "vector": _vector,
    "hvector": _hvector,
    "indexed": _indexed,
    "hindexed": _hindexed,
    "indexed_block": _indexed_block,
    "hindexed_block": _hindexed_block,
    "struct": _struct,
    "subarray": _subarray,
    "resized": _resized,
}
