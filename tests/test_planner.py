"""The planner: every block once, where it is, about as many bytes for each core."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spliter import InvalidArgumentError, Location
from spliter.backend import IntArray, Placement, plan
from spliter.testing import strategies
from tests.conftest import RunPython

A, B, C = Location("A"), Location("B"), Location("C")

wanted_numbers = st.none() | st.integers(1, 8)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Placement, dict[Location, int]]:
    placement = draw(strategies.placements())
    return placement, draw(strategies.capacities(placement.locations))


def choose_holders(placement: Placement, capacities: Mapping[Location, int]) -> IntArray:
    """Return the number of the location that each block is planned at."""
    chosen = np.empty(placement.nblocks, dtype=np.int64)
    for part in plan(placement, capacities, 1):
        chosen[part.positions] = placement.locations.index(part.location)
    return chosen


def cut_evenly(nbytes: IntArray, parts: int) -> IntArray:
    """Return where the blocks of one location are cut into partitions."""
    placement = Placement.of([[A]] * len(nbytes), nbytes)
    counts = [len(part.positions) for part in plan(placement, {A: parts})]
    return np.cumsum([0, *counts])


def holders_of(placement: Placement, block: int) -> list[int]:
    first, last = placement.holder_offsets[block : block + 2]
    held: list[int] = placement.holder_ids[first:last].tolist()
    return held


@given(problems(), wanted_numbers)
def test_every_block_is_in_one_partition_in_collection_order(
    problem: tuple[Placement, dict[Location, int]], wanted: int | None
) -> None:
    placement, capacities = problem
    found = plan(placement, capacities, wanted)
    positions = [position for part in found for position in part.positions.tolist()]
    assert sorted(positions) == list(range(placement.nblocks))
    for part in found:
        assert part.positions.size > 0
        assert (np.diff(part.positions) > 0).all()
        np.testing.assert_array_equal(part.nbytes, placement.nbytes[part.positions])
    firsts = [int(part.positions[0]) for part in found]
    assert firsts == sorted(firsts)


@given(problems(), wanted_numbers)
def test_blocks_stay_where_they_are(
    problem: tuple[Placement, dict[Location, int]], wanted: int | None
) -> None:
    placement, capacities = problem
    for part in plan(placement, capacities, wanted):
        for position in part.positions.tolist():
            held_at = [placement.locations[number] for number in holders_of(placement, position)]
            assert part.location in held_at


@given(problems(), wanted_numbers)
def test_number_of_partitions_at_each_location(
    problem: tuple[Placement, dict[Location, int]], wanted: int | None
) -> None:
    placement, capacities = problem
    found = plan(placement, capacities, wanted)
    for location in placement.locations:
        parts = [part for part in found if part.location == location]
        blocks = sum(len(part.positions) for part in parts)
        assert len(parts) == min(wanted or capacities[location], blocks)


@given(problems())
def test_runs_at_a_location_do_not_overlap(
    problem: tuple[Placement, dict[Location, int]],
) -> None:
    placement, capacities = problem
    for location in placement.locations:
        parts = [part for part in plan(placement, capacities) if part.location == location]
        for one, next_one in itertools.pairwise(parts):
            assert one.positions[-1] < next_one.positions[0]


@given(problems(), st.randoms(use_true_random=False))
def test_order_in_which_holders_are_named_does_not_matter(
    problem: tuple[Placement, dict[Location, int]], random: Random
) -> None:
    placement, capacities = problem
    names = [
        [placement.locations[number] for number in holders_of(placement, block)]
        for block in range(placement.nblocks)
    ]
    for held in names:
        random.shuffle(held)
    again = Placement.of(names, placement.nbytes)
    assert described(again, capacities) == described(placement, capacities)


def described(
    placement: Placement, capacities: Mapping[Location, int]
) -> list[tuple[str, list[int]]]:
    return [(part.location, part.positions.tolist()) for part in plan(placement, capacities)]


@given(problems())
def test_replicas_go_to_the_least_loaded_holder(
    problem: tuple[Placement, dict[Location, int]],
) -> None:
    # Without the last (smallest) replicated block that a location was given, it has no more
    # bytes per core than any other holder of that block: else that one would have got it.
    placement, capacities = problem
    chosen = choose_holders(placement, capacities)
    weights = np.maximum(placement.nbytes, 1)
    cores = [capacities[location] for location in placement.locations]
    load = np.bincount(chosen, weights, len(cores))
    replicated = [n for n in range(placement.nblocks) if len(holders_of(placement, n)) > 1]
    for at in range(len(cores)):
        given_here = [block for block in replicated if chosen[block] == at]
        if not given_here:
            continue
        last = min(given_here, key=lambda block: (weights[block], -block))
        before = (load[at] - weights[last]) / cores[at]
        for other in holders_of(placement, last):
            assert before <= load[other] / cores[other] + 1e-9


def test_replicas_even_out_what_is_uneven() -> None:
    # A holds 4 of 6 blocks alone; B has a copy of everything else.
    holders = [["A"], ["A"], ["A", "B"], ["A", "B"], ["A", "B"], ["A", "B"]]
    placement = Placement.of(holders, [8] * 6)
    chosen = choose_holders(placement, {A: 1, B: 1})
    assert np.bincount(chosen).tolist() == [3, 3]
    # With twice the cores a location gets twice the bytes.
    chosen = choose_holders(placement, {A: 2, B: 1})
    assert np.bincount(chosen).tolist() == [4, 2]


def test_largest_replicas_are_placed_first() -> None:
    # In collection order the two small ones would be on different locations already.
    placement = Placement.of([["A", "B"]] * 3, [1, 1, 2])
    chosen = choose_holders(placement, {A: 1, B: 1})
    assert np.bincount(chosen, placement.nbytes).tolist() == [2, 2]


@given(st.lists(st.integers(0, 100), min_size=1, max_size=40), st.data())
def test_cuts_leave_no_part_empty_and_none_much_larger_than_its_share(
    nbytes: list[int], data: st.DataObject
) -> None:
    parts = data.draw(st.integers(1, len(nbytes)))
    weights = np.maximum(nbytes, 1)
    cuts = cut_evenly(np.asarray(nbytes, dtype=np.int64), parts)
    assert (cuts[0], cuts[-1], len(cuts)) == (0, len(nbytes), parts + 1)
    assert (np.diff(cuts) > 0).all()
    largest = max(weights[a:b].sum() for a, b in itertools.pairwise(cuts.tolist()))
    assert largest <= weights.sum() / parts + weights.max()


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.data())
def test_cuts_are_at_most_twice_the_best_there_is(nbytes: list[int], data: st.DataObject) -> None:
    parts = data.draw(st.integers(1, len(nbytes)))
    sizes = np.asarray(nbytes, dtype=np.int64)

    def largest(cuts: tuple[int, ...]) -> int:
        return max(int(sizes[a:b].sum()) for a, b in itertools.pairwise(cuts))

    inner = itertools.combinations(range(1, len(nbytes)), parts - 1)
    best = min(largest((0, *between, len(nbytes))) for between in inner)
    assert largest(tuple(cut_evenly(sizes, parts).tolist())) <= 2 * best


@given(st.integers(1, 60), st.data())
def test_equal_blocks_are_cut_into_equal_numbers(blocks: int, data: st.DataObject) -> None:
    parts = data.draw(st.integers(1, blocks))
    counts = np.diff(cut_evenly(np.full(blocks, 8, dtype=np.int64), parts))
    assert counts.max() - counts.min() <= 1


def test_the_drawing_in_the_docstring() -> None:
    placement = Placement.of([["A"], ["A"], ["A", "B"], ["B"], ["A", "B"], ["B"]], [8] * 6)
    assert described(placement, {A: 2, B: 2}) == [
        ("A", [0, 1]),
        ("A", [2]),
        ("B", [3, 4]),
        ("B", [5]),
    ]


def test_no_blocks_make_no_partitions() -> None:
    assert plan(Placement.of([], []), {}) == []


PLAN_AND_TELL = """
import json
from spliter.backend import Placement, plan
names = [f"tcp://10.0.0.{n}:{n}" for n in range(20)]
holders = [names[n % 20 : n % 20 + 3] for n in range(500)]
placement = Placement.of(holders, [n % 7 for n in range(500)])
found = plan(placement, {name: 2 for name in placement.locations})
print(json.dumps([[part.location, part.positions.tolist()] for part in found]))
"""


def test_plan_does_not_depend_on_hashing(
    run_python: RunPython, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = []
    for seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        done = run_python("-c", PLAN_AND_TELL)
        assert done.returncode == 0, done.stderr
        plans.append(json.loads(done.stdout))
    assert plans[0] == plans[1]
    assert len(plans[0]) == 40


def test_block_without_a_holder_is_refused() -> None:
    placement = Placement.of([["A"], [], []], [8, 8, 8])
    with pytest.raises(InvalidArgumentError, match=r"2 block\(s\) have no holder.*position 1"):
        plan(placement, {A: 1})


@pytest.mark.parametrize("capacities", [{}, {A: 1}, {A: 1, B: 0}])
def test_location_without_capacity_is_refused(capacities: dict[Location, int]) -> None:
    with pytest.raises(InvalidArgumentError, match="no capacity"):
        plan(Placement.of([["A"], ["B"]], [8, 8]), capacities)


@pytest.mark.parametrize("wanted", [0, -3, 2.0, True, "1", float("nan")])
def test_bad_numbers_of_partitions_are_refused(wanted: int) -> None:
    with pytest.raises(InvalidArgumentError, match="partitions_per_location"):
        plan(Placement.of([["A"]], [8]), {A: 1}, wanted)
