"""Schedules: published sizes of chunks, and cuts that hold every block once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spliter import InvalidArgumentError, Schedule, split
from spliter._planning.schedule import ALIASES, FORMULAS, cut_in_proportion

PUBLISHED = {
    "STATIC": [250] * 4,
    "GSS": [250, 188, 141, 106, 79, 59, 45, 33, 25, 19, 14, 11, 8, 6, 4, 3, 3, 2, 1, 1, 1, 1],
    "TSS": [125, 117, 109, 101, 93, 85, 77, 69, 61, 53, 45, 37, 28],
    "FAC2": [125] * 4 + [63] * 4 + [31] * 4 + [16] * 4 + [8] * 4 + [4] * 4 + [2] * 4 + [1] * 4,
    "TFSS": [113] * 4 + [81] * 4 + [49] * 4 + [17, 11],
    "FISS": [50] * 4 + [83] * 4 + [117] * 4,
    "VISS": [62] * 4 + [93] * 4 + [108] * 3 + [56],
}
"""1,000 iterations on 4 processors: the example of Tzen and Ni (1993), Chronopoulos et al. (2001)
and Philip and Das (1997)."""

OURS = {
    "SS": [1] * 1000,
    "MSTATIC": [63] * 15 + [55],
    "MFSC": [32] * 31 + [8],
    "PLS": [125] * 5 + [94, 71, 53, 40, 30, 22, 17, 12, 9, 7, 5, 4, 3, 2, 2, 1, 1, 1, 1],
    "PSS": [
        *[167, 139, 116, 97, 81, 67, 56, 47, 39, 32, 27, 22, 19, 16],
        *[13, 11, 9, 7, 6, 5, 4, 4, 3, 3, 2, 2],
        *[1] * 6,
    ],
}
"""Computed by hand from the formula of each source: none gives this example."""


@pytest.mark.parametrize(("kind", "sizes"), [*PUBLISHED.items(), *OURS.items()])
def test_sizes_of_chunks(kind: str, sizes: list[int]) -> None:
    assert Schedule(kind).sizes(1000, 4) == sizes


def test_every_schedule_is_held_to_a_list() -> None:
    assert {*PUBLISHED, *OURS} == set(FORMULAS)


kinds = st.sampled_from([*FORMULAS, *ALIASES])
orders = st.sampled_from(["contiguous", "strided"])
costs = st.one_of(
    st.lists(st.integers(0, 10**12), min_size=1, max_size=300),
    st.lists(st.floats(0, 1e12), min_size=1, max_size=300),
).map(np.array)


@given(kinds, orders, costs, st.integers(1, 64), st.integers(1, 20))
def test_every_block_is_in_one_chunk(
    kind: str, order: Any, weights: Any, cores: int, least: int
) -> None:
    schedule = Schedule(kind, min_blocks=least, order=order)
    chunks = schedule.cut(weights, cores)
    assert sorted(i for chunk in chunks for i in chunk.tolist()) == list(range(len(weights)))
    for chunk, again in zip(chunks, schedule.cut(weights, cores), strict=True):
        assert chunk.size and (np.diff(chunk) > 0).all()
        np.testing.assert_array_equal(chunk, again)


@given(kinds, orders, st.integers(1, 500), st.integers(1, 64))
def test_blocks_of_equal_weight_are_cut_by_the_schedules_sizes(
    kind: str, order: Any, blocks: int, cores: int
) -> None:
    schedule = Schedule(kind, order=order)
    chunks = schedule.cut(np.full(blocks, 8), cores)
    assert [len(chunk) for chunk in chunks] == schedule.sizes(blocks, cores)


def finished(weights: Any, chunks: list[Any], cores: int) -> float:
    """Return when the last of the cores is done, each taking the next chunk when it is idle."""
    free = [0.0] * cores
    for chunk in chunks:
        first = free.index(min(free))
        free[first] += float(weights[chunk].sum())
    return max(free)


@pytest.mark.parametrize("cores", [2, 4])
def test_strided_chunks_share_a_costly_region(cores: int) -> None:
    weights = 1 / np.arange(20, 2324)
    ideal = weights.sum() / cores
    even = np.ones(len(weights))
    contiguous = Schedule("FAC2", order="contiguous").cut(even, cores)
    strided = Schedule("FAC2", order="strided").cut(even, cores)
    assert finished(weights, contiguous, cores) > 1.4 * ideal
    assert finished(weights, strided, cores) < 1.1 * ideal


def test_weights_take_the_place_of_bytes() -> None:
    blocks = [np.arange(4)] * 8
    weights = [7.0, 1, 1, 1, 1, 1, 1, 1]
    schedule = Schedule("STATIC", weights=weights, order="contiguous")
    parts = split(blocks, schedule=schedule)
    costs = [sum(weights[index[0]] for index in part.get_indexes()) for part in parts]
    assert costs == sorted(costs, reverse=True)
    assert parts[0].get_indexes()[0] == (0,)


def test_files_are_cut_into_neighbours(tmp_path: Path) -> None:
    on_disk = np.memmap(tmp_path / "numbers", np.int64, "w+", shape=(64,))
    assert "contiguous" in repr(split(on_disk, schedule="FAC2"))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"schedule": "FAC3"}, "STATIC, SS, GSS"),
        ({"schedule": 0}, "STATIC, SS, GSS"),
        ({"schedule": ["FAC2"]}, "STATIC, SS, GSS"),
        ({"schedule": Schedule}, "STATIC, SS, GSS"),
        ({"schedule": "FAC2", "partitions_per_location": 2}, "not both"),
        ({"schedule": "FAC2", "steal": 1}, "True or False"),
        ({"steal": True}, "pass a schedule"),
        ({"schedule": "FAC2", "steal": True}, "which that of this collection cannot"),
        ({"schedule": "FAC2", "steal": True, "materialize": "auto"}, "one of them"),
    ],
)
def test_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        split([np.ones(2)], **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_blocks": 0},
        {"min_blocks": True},
        {"order": "random"},
        {"weights": [1.0, float("nan")]},
        {"weights": [1.0, -1.0]},
        {"weights": [[1.0], [1.0]]},
        {"weights": ["a", "b"]},
        {"weights": [10**400]},
    ],
)
def test_schedules_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        Schedule("FAC2", **wrong)


@pytest.mark.parametrize("sizes", [(-3, 2), (5.5, 2), (True, 2), (8, 0), (8, 1.5)])
def test_sizes_that_cannot_be(sizes: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="must be an int >="):
        Schedule("GSS").sizes(*sizes)


@pytest.mark.parametrize("kind", [*FORMULAS, "AUTO"])
@pytest.mark.parametrize("order", ["contiguous", "strided"])
def test_no_blocks(kind: str, order: Any) -> None:
    assert Schedule(kind).sizes(0, 4) == []
    assert Schedule(kind, order=order).cut(np.array([]), 2) == []


def test_weights_are_told_and_cannot_be_changed() -> None:
    schedule = Schedule("STATIC", weights=[1.0, 2.0])
    assert "by weights" in repr(split([np.ones(1)] * 2, schedule=schedule))
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(schedule.weights)[0] = 5


def test_the_first_wrong_weight_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match="got nan for block 1"):
        Schedule("FAC2", weights=[1.0, float("nan"), -1.0])


def test_weights_are_copied() -> None:
    weights = np.ones(4)
    schedule = Schedule("STATIC", weights=weights)
    weights[0] = float("nan")
    assert np.isfinite(schedule.costs(np.ones(4, np.int64))).all()


@pytest.mark.parametrize("size", [10**14, 1e300])
def test_enormous_blocks(size: float) -> None:
    parts = cut_in_proportion(np.full(2000, size), Schedule("SS").sizes(2000, 2))
    assert parts.tolist() == list(range(2001))
    chunks = Schedule("FAC2", weights=np.full(2000, size)).cut(np.full(2000, 10**14), 2)
    assert max(map(len, chunks)) == 500


def test_one_weight_for_each_block() -> None:
    with pytest.raises(InvalidArgumentError, match="3 blocks"):
        split([np.ones(1)] * 3, schedule=Schedule("SS", weights=[1.0, 2.0]))
