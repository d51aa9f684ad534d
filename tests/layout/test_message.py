"""Messages: what was sent arrives, and what is damaged is refused before anything is allocated."""

from __future__ import annotations

import contextlib
import json
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spliter import InvalidArgumentError, LayoutBoundsError, LayoutMessageError
from spliter import layout as lo
from spliter.layout._boxes import CONSTRUCTORS
from spliter.layout._message import PREFIX
from tests.layout.oracle import memory_for, nests, type_map
from tests.layout.test_semantics import at_zero

PACKER = lo.struct([3, 1], [0, 40], ["f8", lo.indexed([1, 2], [3, 0], ">i4")]).commit()
MEMORY = np.arange(100, dtype="u1")
MESSAGE = lo.write_message(PACKER, MEMORY)


@given(nests(), st.integers(0, 2))
def test_any_layout_arrives(layout: lo.Layout, count: int) -> None:
    moved, _ = at_zero(layout, count)
    memory, _ = memory_for(layout, count)
    packer = moved.commit("numpy")
    message = lo.read_message(lo.write_message(packer, memory, count))
    assert message.layout == moved
    assert type_map(message.layout) == type_map(moved)
    np.testing.assert_array_equal(message.array(), packer.pack(memory, count=count))


def test_structured_data_arrives_without_a_copy() -> None:
    rows = np.zeros(5, np.dtype([("id", "i4"), ("x", ">f8", (2,)), ("at", "M8[s]")], align=True))
    rows["id"], rows["x"] = range(5), [[1, np.nan]] * 5
    packer = lo.contiguous(rows.itemsize, "u1").commit()
    sent = lo.write_message(packer, rows[1:], count=3, dtype=rows.dtype, shape=(3, 1))
    message = lo.read_message(sent)
    assert message.array().dtype == rows.dtype
    assert message.array().tobytes() == rows[1:4].tobytes()
    assert np.shares_memory(message.array(), sent)
    assert not message.array().flags.writeable
    assert b"pickle" not in sent.tobytes() and b"\x80\x04" not in sent[:26].tobytes()


def test_the_layout_puts_data_to_its_place() -> None:
    out = np.zeros(100, "u1")
    assert lo.read_message(MESSAGE.tobytes()).unpack(out) is out
    np.testing.assert_array_equal(PACKER.pack(out), PACKER.pack(MEMORY))


def test_length_is_known_from_the_first_bytes() -> None:
    assert lo.message_nbytes(MESSAGE[: PREFIX.size].tobytes(), limit=len(MESSAGE)) == len(MESSAGE)
    with pytest.raises(LayoutMessageError, match="more than the limit of"):
        lo.message_nbytes(MESSAGE, limit=len(MESSAGE) - 1)


def test_truncated_messages_are_refused() -> None:
    for length in range(len(MESSAGE)):
        with pytest.raises(LayoutMessageError):
            lo.read_message(MESSAGE[:length])
    with pytest.raises(LayoutMessageError):
        lo.read_message(MESSAGE.tobytes() + b"1")


@given(st.integers(0, len(MESSAGE) - PACKER.size - 1), st.integers(1, 255))
def test_damaged_headers_are_refused(at: int, change: int) -> None:
    damaged = MESSAGE.copy()
    damaged[at] ^= change
    with pytest.raises(LayoutMessageError):
        lo.read_message(damaged)


def written(header: Any, data: bytes = bytes(8)) -> bytes:
    """Return a message whose checksum is right, whatever its header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    prefix = PREFIX.pack(b"SPLM", 1, 0, len(text), len(data))
    crc = zlib.crc32(text, zlib.crc32(prefix[:6] + prefix[10:]))
    return PREFIX.pack(b"SPLM", 1, crc, len(text), len(data)) + text + data


GOOD = {"layout": "<f8", "count": 1, "dtype": "<f8", "shape": [1]}
NESTED = (
    b'{"layout":' + 10_000 * b'{"contiguous":{"count":1,"base":' + b'"<f8"' + 20_000 * b"}" + b"}"
)


def test_a_header_written_by_hand_is_read() -> None:
    assert lo.read_message(written(GOOD)).array().tolist() == [0.0]


@pytest.mark.parametrize(
    "header",
    [
        b"\xff",
        b"[]",
        b"1",
        NESTED,
        {},
        GOOD | {"count": 2},
        GOOD | {"count": -1},
        GOOD | {"count": 1.0},
        GOOD | {"count": 2**70},
        GOOD | {"shape": [2**62, 4]},
        GOOD | {"shape": [-1]},
        GOOD | {"shape": 1},
        GOOD | {"dtype": "O"},
        GOOD | {"dtype": "V0"},
        GOOD | {"dtype": [["a"]]},
        GOOD | {"dtype": 3},
        GOOD | {"dtype": "(2,"},
        GOOD | {"layout": {"vector": [1]}},
        GOOD | {"layout": "O"},
        GOOD | {"layout": None},
        GOOD | {"layout": {}},
        GOOD | {"layout": {"as_layout": {"base": "<f8"}}},
        GOOD | {"layout": {"named": {"dtype": "<f8"}}},
        GOOD | {"layout": {"contiguous": {"count": 1}}},
        GOOD | {"layout": {"contiguous": {"count": "1", "base": "<f8"}}},
        GOOD | {"layout": {"contiguous": {"count": 2**50, "base": "<f8"}}},
        GOOD
        | {"layout": {"hindexed_block": {"blocklength": 1, "displacements": "AA", "base": "<f8"}}},
        GOOD
        | {
            "layout": {"hindexed_block": {"blocklength": 1, "displacements": "AAA=", "base": "<f8"}}
        },
    ],
    ids=str,
)
def test_wrong_headers_are_refused(header: Any) -> None:
    with pytest.raises(LayoutMessageError, match="is wrong"):
        lo.read_message(written(header))


WORDS = st.sampled_from([*CONSTRUCTORS, "base", "count", "blocklength", "displacements", "types"])
DTYPES = st.text("<>(),[]{}:|=?0123456789bifcmMOSUVa", max_size=6)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | DTYPES | st.text(max_size=4),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(WORDS, values, max_size=3),
)


@given(st.dictionaries(st.sampled_from([*GOOD]), JSON))
def test_any_header_is_read_or_refused(changed: dict[str, Any]) -> None:
    with contextlib.suppress(LayoutMessageError):
        lo.read_message(written(GOOD | changed))


def test_dtype_and_shape_must_be_those_of_the_data() -> None:
    packer = lo.contiguous(3, "f8").commit()
    with pytest.raises(InvalidArgumentError, match=r"shape \(2,\) have 16 bytes, .* 24"):
        lo.write_message(packer, np.zeros(3), dtype="f8", shape=(2,))
    with pytest.raises(InvalidArgumentError, match=r"shape \(4,\) have 20 bytes, .* 24"):
        lo.write_message(packer, np.zeros(3), dtype="V5")
    with pytest.raises(LayoutBoundsError):
        lo.write_message(packer, np.zeros(2))


@pytest.mark.parametrize("wrong", [lo.contiguous(3, "f8"), None, np.dtype("f8")])
def test_layouts_that_are_not_committed_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"pass layout\.commit\(\)"):
        lo.write_message(wrong, np.zeros(3))
