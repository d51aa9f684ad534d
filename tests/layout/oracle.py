"""What layouts mean, by recursion over their type maps; and random nests of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from spliter import layout as lo

Bytes = npt.NDArray[np.uint8]


def blocks(layout: lo.Layout) -> Iterator[tuple[int, int, lo.Layout]]:
    """Yield displacement, copies and base of each block, as MPI defines the constructors."""
    of = dict(layout.contents)
    base: Any = of.get("base")
    match layout.combiner:
        case "contiguous":
            yield 0, of["count"], base
        case "resized":
            yield 0, 1, base
        case "vector" | "hvector":
            step = of["stride"] * (base.extent if layout.combiner == "vector" else 1)
            yield from ((i * step, of["blocklength"], base) for i in range(of["count"]))
        case "subarray":
            begin = dict(zip(range(len(of["sizes"])), of["starts"].tolist(), strict=True))
            ranges = [range(begin[d], begin[d] + n) for d, n in enumerate(of["subsizes"].tolist())]
            nested = ranges if of["order"] == "C" else ranges[::-1]
            for index in itertools.product(*nested):
                where = index if of["order"] == "C" else index[::-1]
                yield (
                    int(np.ravel_multi_index(where, of["sizes"], order=of["order"])) * base.extent,
                    1,
                    base,
                )
        case "struct":
            yield from zip(
                of["displacements"].tolist(), of["blocklengths"].tolist(), of["types"], strict=True
            )
        case _:
            factor = 1 if layout.combiner.startswith("h") else base.extent
            places = [place * factor for place in of["displacements"].tolist()]
            lengths = of.get(
                "blocklengths", np.full(len(places), of.get("blocklength", 0))
            ).tolist()
            yield from (
                (place, length, base) for place, length in zip(places, lengths, strict=True)
            )


def type_map(layout: lo.Layout, at: int = 0) -> list[int]:
    """Return the displacement of each byte, in packed order."""
    if layout.combiner == "named":
        return list(range(at, at + layout.contents["dtype"].itemsize))
    return [
        byte
        for place, copies, base in blocks(layout)
        for copy in range(copies)
        for byte in type_map(base, at + place + copy * base.extent)
    ]


def alignment(layout: lo.Layout) -> int:
    """Return the largest alignment of the basic types that have data."""
    if layout.combiner == "named":
        return int(layout.contents["dtype"].alignment)
    return max(
        [alignment(base) for _, copies, base in blocks(layout) if copies and base.size], default=1
    )


def bounds(layout: lo.Layout) -> tuple[int, int]:
    """Return the lower and upper bound, as MPI defines them."""
    if layout.combiner == "named":
        return 0, layout.contents["dtype"].itemsize
    if layout.combiner == "resized":
        return layout.contents["lb"], layout.contents["lb"] + layout.contents["extent"]
    if layout.combiner == "subarray":
        base = layout.contents["base"]
        return base.lb, base.lb + int(np.prod(layout.contents["sizes"])) * base.extent
    found = [
        (place + copy * base.extent + low, place + copy * base.extent + high)
        for place, copies, base in blocks(layout)
        if base.size
        for low, high in [bounds(base)]
        for copy in range(copies)
    ]
    if not found:
        return 0, 0
    low, high = min(low for low, _ in found), max(high for _, high in found)
    if layout.combiner == "struct":
        high += -(high - low) % alignment(layout)
    return low, high


SMALL = st.sampled_from([2, 3, 1, 2, 3, 1, 2, 3, 2, 3, 0])
STEPS = st.integers(-4, 6)
DTYPES: list[Any] = ["u1", "i2", ">i4", "f8", "c16", "S3", [("a", "i2"), ("b", "f8")]]


@st.composite
def wrapped(draw: st.DrawFn, bases: st.SearchStrategy[Any]) -> lo.Layout:
    """Draw a layout of bases; counts may be 0, strides negative, displacements permuted."""
    base = draw(bases)
    kind = draw(st.sampled_from(sorted(KINDS)))
    made: lo.Layout = KINDS[kind](draw, base, bases)
    return made


def _displacements(draw: st.DrawFn, count: int, scale: int = 1) -> list[int]:
    """Draw places with gaps, in any order; some overlap."""
    step = draw(st.integers(0, 3)) * scale
    jitter = draw(st.lists(st.integers(0, 2 * scale), min_size=count, max_size=count))
    return [
        place * step + more
        for place, more in zip(draw(st.permutations(range(count))), jitter, strict=True)
    ]


def _subarray(draw: st.DrawFn, base: Any, bases: Any) -> lo.Layout:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    boxes = [draw(st.integers(1, size)) for size in sizes]
    starts = [draw(st.integers(0, size - box)) for size, box in zip(sizes, boxes, strict=True)]
    return lo.subarray(sizes, boxes, starts, base, draw(st.sampled_from(["C", "F"])))


def _struct(draw: st.DrawFn, base: Any, bases: Any) -> lo.Layout:
    lengths = draw(st.lists(SMALL, min_size=1, max_size=3))
    types = [draw(bases) if draw(st.booleans()) else base for _ in lengths]
    return lo.struct(lengths, _displacements(draw, len(lengths), 20), types)


def _lengths(draw: st.DrawFn) -> list[int]:
    return draw(st.lists(SMALL, min_size=1, max_size=4))


def _indexed(make: Any, scale: int) -> Any:
    def made(draw: st.DrawFn, base: Any, bases: Any) -> lo.Layout:
        lengths = _lengths(draw)
        found: lo.Layout = make(lengths, _displacements(draw, len(lengths), scale), base)
        return found

    return made


def _indexed_block(make: Any, scale: int) -> Any:
    def made(draw: st.DrawFn, base: Any, bases: Any) -> lo.Layout:
        count = draw(SMALL)
        found: lo.Layout = make(draw(SMALL), _displacements(draw, count, scale), base)
        return found

    return made


KINDS = {
    "contiguous": lambda draw, base, _: lo.contiguous(draw(SMALL), base),
    "vector": lambda draw, base, _: lo.vector(draw(SMALL), draw(SMALL), draw(STEPS), base),
    "hvector": lambda draw, base, _: lo.hvector(draw(SMALL), draw(SMALL), 5 * draw(STEPS), base),
    "indexed": _indexed(lo.indexed, 1),
    "hindexed": _indexed(lo.hindexed, 11),
    "indexed_block": _indexed_block(lo.indexed_block, 1),
    "hindexed_block": _indexed_block(lo.hindexed_block, 11),
    "struct": _struct,
    "subarray": _subarray,
    "resized": lambda draw, base, _: lo.resized(base, draw(STEPS), 4 * draw(STEPS)),
}


def nests(depth: int = 5) -> st.SearchStrategy[lo.Layout]:
    """Return layouts of up to this depth, small enough for the oracle."""
    found: st.SearchStrategy[Any] = st.sampled_from(DTYPES).map(lo.of_dtype)
    for _ in range(depth):
        found = st.one_of(wrapped(found), wrapped(found), found)
    return found.filter(lambda layout: layout.size <= 20_000)


def memory_for(layout: lo.Layout, count: int = 1) -> tuple[Bytes, int]:
    """Return random bytes that a layout just fits into, and the index of displacement 0."""
    displacements = repeated_map(layout, count)
    low, high = min(displacements, default=0), max(displacements, default=-1) + 1
    return np.random.default_rng(0).integers(0, 256, high - low, np.uint8), -low


def repeated_map(layout: lo.Layout, count: int) -> list[int]:
    """Return the type map of some repetitions."""
    return [byte for copy in range(count) for byte in type_map(layout, copy * layout.extent)]
