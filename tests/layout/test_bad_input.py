"""Wrong arguments: typed errors that name the value, and buffers that stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from spliter import InvalidArgumentError, LayoutBoundsError, LayoutOverlapError, layout

lo: Any = layout  # arguments of wrong types are the point
HUGE = 2**63


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: lo.contiguous(-1, "f8"), "count must be >= 0, got -1"),
        (lambda: lo.contiguous(1.0, "f8"), "count must be an integer, got 1.0"),
        (lambda: lo.contiguous(True, "f8"), "count must be an integer, got True"),
        (lambda: lo.contiguous("3", "f8"), "count must be an integer, got '3'"),
        (lambda: lo.contiguous(HUGE, "u1"), f"count is {HUGE}"),
        (lambda: lo.contiguous(HUGE // 4, "f8"), "the size of the layout is"),
        (lambda: lo.contiguous(2**40, lo.contiguous(2**40, "u1")), "the size of the layout is"),
        (lambda: lo.vector(2, -3, 4, "f8"), "blocklength must be >= 0, got -3"),
        (lambda: lo.vector(2, 1, 2**62, "f8"), "stride is"),
        (lambda: lo.vector(2**31, 1, 2**31, "f8"), "a bound of the layout is"),
        (lambda: lo.hvector(3, 1, -(2**62) - 1, "u1"), "a bound of the layout is"),
        (lambda: lo.hvector(2, 1, 0.5, "u1"), "stride must be an integer, got 0.5"),
        (lambda: lo.indexed([1, 2], [0], "f8"), "there are 2 blocklengths and 1 displacements"),
        (lambda: lo.indexed([1, -2], [0, 9], "f8"), "blocklengths must be >= 0, got -2"),
        (lambda: lo.indexed([1], [0.0], "f8"), "displacements must be an integer, got 0.0"),
        (lambda: lo.indexed([1], [HUGE], "f8"), f"displacements is {HUGE}"),
        (lambda: lo.indexed([1], [2**61], "f8"), "displacements is"),
        (lambda: lo.hindexed([2**62, 2**62], [0, 0], "u1"), "the size of the layout is"),
        (lambda: lo.hindexed([2], [2**63 - 9], "f8"), "a bound of the layout is"),
        (lambda: lo.hindexed(3, [0], "u1"), "blocklengths must be a sequence"),
        (lambda: lo.hindexed("1", [0], "u1"), "blocklengths must be a sequence"),
        (lambda: lo.indexed_block(1, np.zeros(2), "f8"), "got 1 dimensions of float64"),
        (lambda: lo.indexed_block(1, np.zeros((2, 1), int), "f8"), "got 2 dimensions of int64"),
        (lambda: lo.indexed_block(1, np.array([HUGE], "u8"), "f8"), f"displacements is {HUGE}"),
        (lambda: lo.indexed_block(1, np.array([True]), "f8"), "dimensions of bool"),
        (lambda: lo.hindexed_block(1, {1, 2}, "f8"), "displacements must be a sequence"),
        (lambda: lo.struct([1], [0, 8], ["f8"]), "there are 1 blocklengths and 2 displacements"),
        (lambda: lo.struct([1], [0], ["f8", "i4"]), "there are 1 blocklengths and 2 types"),
        (lambda: lo.struct([1], [0], "f8"), "types must be a sequence of layouts"),
        (lambda: lo.subarray([4], [2, 2], [0], "f8"), "differ in their dimensions"),
        (lambda: lo.subarray([], [], [], "f8"), "at least one"),
        (lambda: lo.subarray([4], [0], [0], "f8"), "subsizes must be >= 1, got 0"),
        (lambda: lo.subarray([4], [2], [-1], "f8"), "starts must be >= 0, got -1"),
        (lambda: lo.subarray([4], [2], [3], "f8"), r"here 3 \+ 2 > 4"),
        (lambda: lo.subarray([4], [2], [0], "f8", order="A"), 'order must be "C" or "F"'),
        (lambda: lo.subarray([2**32, 2**32], [1, 1], [0, 0], "u1"), "the extent of the array is"),
        (lambda: lo.resized("f8", 2**62, 2**62 + 2**62 - 1), "a bound of the layout is"),
        (lambda: lo.contiguous(3, object), "holds references to Python objects"),
        (lambda: lo.contiguous(3, np.dtypes.StringDType()), "holds references"),
        (lambda: lo.of_dtype([("a", "i4"), ("b", "O")]), "holds references"),
        (lambda: lo.contiguous(3, "S0"), "elements of size 0"),
        (lambda: lo.of_dtype([]), "elements of size 0"),
        (lambda: lo.contiguous(3, "f9"), "'f9' is neither a layout nor a dtype"),
        (lambda: lo.contiguous(3, None), "the base is None"),
        (lambda: lo.of_array([1, 2]), "takes NumPy arrays, got list"),
        (lambda: lo.of_array(np.zeros(3), np.zeros(3)), "outside of that of the base"),
        (lambda: lo.of_array(np.ma.zeros(3)), "takes NumPy arrays, got MaskedArray"),
        (lambda: lo.of_dtype("f8").commit("gpu"), 'engine must be "numpy", "llvm" or None'),
    ],
)
def test_layouts_that_cannot_be_are_refused(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        make()


def test_layouts_nested_too_deep_are_refused() -> None:
    nested = lo.of_dtype("u1")
    for level in range(97):
        count = 2 if level < 9 else 1
        nested = lo.resized(nested, 0, 1) if level % 2 else lo.hvector(count, 1, 99, nested)
    memory = np.zeros(5 * 99 + 1, "u1")
    assert len(nested.commit("numpy").pack(memory)) == 32
    assert eval(repr(nested), vars(layout)) == nested
    deepest = lo.resized(lo.resized(nested, 0, 1), 0, 1)
    with pytest.raises(InvalidArgumentError, match="nested 101 deep, more than the 100 levels"):
        lo.contiguous(1, deepest)


def test_huge_layouts_are_described_and_their_bounds_checked_exactly() -> None:
    edge = lo.hindexed([1], [2**63 - 9], "f8")
    assert edge.true_lb + edge.true_extent == 2**63 - 1
    with pytest.raises(LayoutBoundsError, match=f"bytes {2**63 - 9} to {2**63 - 1}"):
        edge.commit().pack(np.zeros(4))
    with pytest.raises(InvalidArgumentError, match=f"a bound of the layout is {2**63}"):
        lo.hindexed([1, 1], [-(2**62), 2**62 - 8], "f8")
    with pytest.raises(InvalidArgumentError, match=r"count \* extent is"):
        lo.resized("u1", 0, 2**61).commit().pack(np.zeros(4), count=4)


PACKER = lo.vector(3, 1, 2, "i4").commit()


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"array": np.zeros(19, "u1")}, LayoutBoundsError, "bytes 0 to 20 of a buffer .* 0 to 19"),
        ({"count": 2}, LayoutBoundsError, "bytes 0 to 40"),
        ({"count": -1}, InvalidArgumentError, "count must be >= 0, got -1"),
        ({"count": 1.5}, InvalidArgumentError, "count must be an integer, got 1.5"),
        ({"start": 13}, LayoutBoundsError, "start is 13, past the end of 12"),
        ({"start": -1}, InvalidArgumentError, "start must be >= 0, got -1"),
        ({"array": np.zeros(9, object)}, InvalidArgumentError, "has dtype object"),
        ({"array": np.ma.zeros(9)}, InvalidArgumentError, "is a masked array"),
        ({"array": scipy.sparse.eye_array(9)}, InvalidArgumentError, "got scipy.sparse"),
        ({"array": [1, 2, 3]}, InvalidArgumentError, "got builtins.list"),
        ({"array": None}, InvalidArgumentError, "got builtins.NoneType"),
        ({"out": b"123456789012"}, InvalidArgumentError, "out is read-only"),
        ({"out": np.zeros(9, "i4")[::2]}, InvalidArgumentError, "which is not contiguous"),
        ({"out": np.zeros(9, object)}, InvalidArgumentError, "has dtype object"),
    ],
)
def test_what_cannot_be_packed_is_refused(
    arguments: dict[str, Any], error: type[Exception], says: str
) -> None:
    out = np.full(12, 7, "u1")
    with pytest.raises(error, match=says):
        PACKER.pack(**({"array": np.arange(5, dtype="i4"), "out": out} | arguments))
    assert (out == 7).all()


def read_only() -> Any:
    array = np.full(20, 7, "u1")
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"packed": bytes(11)}, LayoutBoundsError, "packed has 11 bytes, the layout 12 from"),
        ({"packed": bytes(13)}, LayoutBoundsError, "packed has 13 bytes, the layout 12 from"),
        ({"packed": bytes(2), "start": 11}, LayoutBoundsError, "the layout 1 from byte 11 on"),
        ({"packed": b"", "start": 13}, LayoutBoundsError, "start is 13, past the end"),
        ({"packed": np.zeros(6, "i4")[::2]}, InvalidArgumentError, "packed has shape"),
        ({"packed": np.zeros(12, object)}, InvalidArgumentError, "has dtype object"),
        ({"out": np.full(19, 7, "u1")}, LayoutBoundsError, "bytes 0 to 20 of a buffer"),
        ({"out": read_only()}, InvalidArgumentError, "out is read-only"),
        ({"out": bytes([7]) * 20}, InvalidArgumentError, "out is read-only"),
        ({"out": np.full(40, 7, "u1")[::2]}, InvalidArgumentError, "which is not contiguous"),
        ({"out": np.ma.zeros(5, "i4") + 7}, InvalidArgumentError, "is a masked array"),
    ],
)
def test_what_cannot_be_unpacked_is_refused(
    arguments: dict[str, Any], error: type[Exception], says: str
) -> None:
    given = {"packed": bytes(12), "out": np.full(20, 7, "u1")} | arguments
    with pytest.raises(error, match=says):
        PACKER.unpack(**given)
    # Nothing was written, not even the bytes that would have been in bounds.
    assert (np.asarray(memoryview(given["out"])) == 7).all()


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"array": np.zeros(19, "u1")}, LayoutBoundsError, "bytes 0 to 20 of a buffer .* 0 to 19"),
        ({"array": read_only()}, InvalidArgumentError, "array is read-only"),
        ({"array": np.zeros(40, "u1")[::2]}, InvalidArgumentError, "array has shape"),
        ({"packed": bytearray(11)}, LayoutBoundsError, "packed has 11 bytes; pass a buffer of 12"),
        ({"packed": bytearray(13)}, LayoutBoundsError, "packed has 13 bytes; pass"),
        ({"packed": bytes(12)}, InvalidArgumentError, "packed is read-only"),
        ({"count": 2}, LayoutBoundsError, "bytes 0 to 40"),
    ],
)
def test_what_cannot_be_bound_is_refused(
    arguments: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        PACKER.bind(**({"array": np.zeros(20, "u1"), "packed": bytearray(12)} | arguments))


def test_memory_is_not_shared() -> None:
    memory = np.zeros(64, "u1")
    with pytest.raises(InvalidArgumentError, match="share memory"):
        PACKER.pack(memory[:20], out=memory[19:])
    with pytest.raises(InvalidArgumentError, match="share memory"):
        PACKER.unpack(memory[8:20], out=memory[:20])
    with pytest.raises(InvalidArgumentError, match="share memory"):
        PACKER.bind(memory[:20], memory[19:31])
    PACKER.pack(memory[:20], out=memory[20:])
    PACKER.unpack(memory[20:32], out=memory[:20])


OVERLAPPING = [
    lo.vector(3, 2, 1, "f8"),
    lo.hvector(2, 1, 0, "u1"),
    lo.indexed_block(1, [4, 0, 4], "f8"),
    lo.hindexed([4, 2], [0, 3], "u1"),
    lo.struct([1, 1], [0, 7], ["f8", "u1"]),
    lo.struct([1, 1], [0, 23], [lo.hvector(9, 1, 16, "f8"), lo.hvector(9, 1, 16, "u1")]),
]


@pytest.mark.parametrize("layout", OVERLAPPING, ids=repr)
def test_overlapping_displacements_can_only_be_packed(layout: layout.Layout) -> None:
    packer = layout.commit()
    memory = np.arange(200, dtype="u1")
    packed = packer.pack(memory)
    assert len(packed) == layout.size
    assert packer.explain().overlaps
    with pytest.raises(LayoutOverlapError, match="takes some bytes more than once"):
        packer.unpack(packed, out=memory)
    with pytest.raises(LayoutOverlapError, match="takes some bytes more than once"):
        packer.bind(memory, packed)
    np.testing.assert_array_equal(memory, np.arange(200))


def test_repetitions_that_overlap_are_found() -> None:
    packer = lo.resized("f8", 0, 4).commit()
    assert not packer.explain().overlaps
    with pytest.raises(LayoutOverlapError, match="2 x resized"):
        packer.unpack(bytes(16), out=bytearray(12), count=2)


def test_interleaved_columns_do_not_overlap() -> None:
    rows = 10**9  # more than could be compared one by one
    columns = lo.struct(
        [1, 1], [0, 8], [lo.hvector(rows, 1, 12, "f8"), lo.hvector(rows, 1, 12, "i4")]
    )
    assert not columns.commit().explain().overlaps
