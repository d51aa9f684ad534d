"""Random layouts, compared byte by byte with the oracle."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spliter import LayoutBoundsError
from spliter import layout as lo
from spliter.layout import _llvm_engine
from spliter.layout._packer import Engine
from tests.layout.oracle import alignment, bounds, memory_for, nests, repeated_map, type_map

ENGINES: list[Engine] = ["numpy", "llvm"]


@pytest.fixture(autouse=True, scope="module")
def _kernels_for_small_layouts() -> Iterator[None]:
    """Copy with kernels whatever has more than one run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_llvm_engine, "FEW_RUNS", 2)
        yield


def at_zero(layout: lo.Layout, count: int) -> tuple[lo.Layout, int]:
    """Return a layout moved so that its first byte is at displacement 0."""
    low = min(repeated_map(layout, count), default=0)
    moved = lo.hindexed_block(1, [-low], layout)
    return lo.resized(moved, layout.lb, layout.extent), low


@given(nests())
def test_sizes_and_bounds_are_those_of_the_type_map(layout: lo.Layout) -> None:
    displacements = type_map(layout)
    low, high = bounds(layout)
    assert layout.size == len(displacements)
    assert (layout.lb, layout.extent) == (low, high - low)
    true_lb, true_ub = min(displacements, default=0), max(displacements, default=-1) + 1
    assert (layout.true_lb, layout.true_extent) == (true_lb, true_ub - true_lb)
    if layout.size:
        assert layout.bounds.alignment == alignment(layout)


@pytest.mark.parametrize("engine", ENGINES)
@given(nests(), st.integers(0, 3))
def test_packed_bytes_are_in_the_order_of_the_type_map(
    engine: Engine, layout: lo.Layout, count: int
) -> None:
    moved, low = at_zero(layout, count)
    memory, _ = memory_for(layout, count)
    expected = memory[np.array(repeated_map(layout, count), int) - low]
    np.testing.assert_array_equal(moved.commit(engine).pack(memory, count=count), expected)


@pytest.mark.parametrize("engine", ENGINES)
@given(nests(4).filter(lambda layout: 0 < layout.size <= 24))
def test_every_part_of_small_layouts(engine: Engine, layout: lo.Layout) -> None:
    moved, _ = at_zero(layout, 1)
    memory, _ = memory_for(layout)
    packer = moved.commit(engine)
    whole = packer.pack(memory)
    for start in range(len(whole) + 1):
        for stop in range(start, len(whole) + 1):
            part = packer.pack(memory, np.empty(stop - start, np.uint8), start)
            np.testing.assert_array_equal(part, whole[start:stop])


@given(nests(), st.integers(1, 3))
def test_buffers_that_are_a_byte_short_are_refused(layout: lo.Layout, count: int) -> None:
    moved, _ = at_zero(layout, count)
    memory, _ = memory_for(layout, count)
    if not layout.size:
        return
    with pytest.raises(LayoutBoundsError):
        moved.commit().pack(memory[:-1], count=count)
    before = lo.resized(lo.hindexed_block(1, [-1], moved), moved.lb, moved.extent)
    with pytest.raises(LayoutBoundsError):
        before.commit().pack(memory, count=count)


@pytest.mark.parametrize("engine", ENGINES)
@given(nests(), st.integers(0, 2))
def test_unpacked_bytes_are_back_and_gaps_untouched(
    engine: Engine, layout: lo.Layout, count: int
) -> None:
    moved, low = at_zero(layout, count)
    displacements = np.array(repeated_map(layout, count), int) - low
    memory, _ = memory_for(layout, count)
    packer = moved.commit(engine)
    if len(set(displacements.tolist())) < len(displacements):
        return
    packed = packer.pack(memory, count=count)
    other = np.full_like(memory, 0xA5)
    expected = other.copy()
    expected[displacements] = memory[displacements]
    packer.unpack(packed, out=other, count=count)
    np.testing.assert_array_equal(other, expected)
    again = np.empty_like(packed)
    bound = packer.bind(other, again, count)
    assert bound.pack() is again
    np.testing.assert_array_equal(again, packed)
    other[:], again[:] = 0xA5, packed
    assert bound.unpack() is other
    np.testing.assert_array_equal(other, expected)


@given(nests(3))
def test_pickled_layouts_are_equal(layout: lo.Layout) -> None:
    again = pickle.loads(pickle.dumps(layout))
    assert again == layout
    assert hash(again) == hash(layout)
    assert repr(again) == repr(layout)
