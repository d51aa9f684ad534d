"""Plans for stealing: what may run where, cut into how many partitions."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spliter import Location, Schedule
from spliter._planning.schedule import FORMULAS
from spliter.backend import Placement, PlannedPartition, plan
from spliter.testing import strategies

A, B, C = Location("A"), Location("B"), Location("C")
Capacities = Mapping[Location, int]


@st.composite
def problems(draw: st.DrawFn) -> tuple[Placement, Capacities, Schedule]:
    placement = draw(strategies.placements())
    schedule = Schedule(draw(st.sampled_from([*FORMULAS]))).with_order(
        draw(st.sampled_from(["contiguous", "strided"]))
    )
    return placement, draw(strategies.capacities(placement.locations)), schedule


def names_of(placement: Placement) -> list[set[Location]]:
    """Return the holders of each block."""
    bounds = itertools.pairwise(placement.holder_offsets.tolist())
    ids = placement.holder_ids.tolist()
    return [{placement.locations[at] for at in ids[start:stop]} for start, stop in bounds]


def described(parts: list[PlannedPartition]) -> list[tuple[str, str, list[int]]]:
    return [(part.location, "".join(part.holders), part.positions.tolist()) for part in parts]


@given(problems())
def test_every_block_is_in_one_partition_whose_holders_have_it(
    problem: tuple[Placement, Capacities, Schedule],
) -> None:
    placement, capacities, schedule = problem
    parts = plan(placement, capacities, schedule=schedule, steal=True)
    found = [position for part in parts for position in part.positions.tolist()]
    assert sorted(found) == list(range(placement.nblocks))
    holders = names_of(placement)
    for part in parts:
        assert (np.diff(part.positions) > 0).all()
        np.testing.assert_array_equal(part.nbytes, placement.nbytes[part.positions])
        for position in part.positions.tolist():
            # Shared by all of its holders, or pinned to one.
            assert holders[position] == set(part.holders) or not part.holders
            assert part.location in holders[position]
        assert len(part.holders) != 1
        assert part.location in part.holders or not part.holders


@given(problems(), st.randoms(use_true_random=False))
def test_same_input_same_plan(
    problem: tuple[Placement, Capacities, Schedule], random: Random
) -> None:
    placement, capacities, schedule = problem
    shuffled = [sorted(held) for held in names_of(placement)]
    for held in shuffled:
        random.shuffle(held)
    again = Placement.of(shuffled, placement.nbytes)
    first = plan(placement, capacities, schedule=schedule, steal=True)
    assert described(plan(again, capacities, schedule=schedule, steal=True)) == described(first)


@given(problems())
def test_blocks_with_one_holder_are_cut_as_ever(
    problem: tuple[Placement, Capacities, Schedule],
) -> None:
    placement, capacities, schedule = problem
    alone = Placement.of([[min(held)] for held in names_of(placement)], placement.nbytes)
    without = plan(alone, capacities, schedule=schedule)
    assert described(plan(alone, capacities, schedule=schedule, steal=True)) == described(without)


@given(problems())
def test_largest_first_and_pinned_ones_before_shared_ones_of_equal_size(
    problem: tuple[Placement, Capacities, Schedule],
) -> None:
    placement, capacities, schedule = problem
    parts = plan(placement, capacities, schedule=schedule, steal=True)
    for location in placement.locations:
        here = [
            (-int(part.nbytes.sum()), bool(part.holders))
            for part in parts
            if part.location == location
        ]
        assert here == sorted(here)


def test_replicas_are_cut_for_the_cores_of_all_their_holders() -> None:
    schedule = Schedule("GSS", order="contiguous")
    placement = Placement.of(["A"] * 4 + ["AB"] * 8, [8] * 12)
    assert described(plan(placement, {A: 1, B: 1}, schedule=schedule, steal=True)) == [
        ("A", "", [0, 1, 2, 3]),
        ("B", "AB", [4, 5, 6, 7]),
        ("A", "AB", [8, 9]),
        ("B", "AB", [10]),
        ("B", "AB", [11]),
    ]


def test_planned_locations_are_balanced() -> None:
    placement = Placement.of(["A"] * 30 + ["B"] * 10 + ["AB"] * 40, [8] * 80)
    parts = plan(placement, {A: 1, B: 1}, schedule=Schedule("FAC2"), steal=True)
    load = Counter[Location]()
    for part in parts:
        load[part.location] += len(part.positions)
    assert abs(load[A] - load[B]) <= 1


@pytest.mark.parametrize("workers", [2, 4, 32])
def test_many_sets_of_holders_do_not_multiply_partitions(
    workers: int,
) -> None:
    """Blocks at random pairs: up to 496 sets of holders."""
    random, names = Random(0), [f"{number:02}" for number in range(workers)]
    placement = Placement.of([random.sample(names, 2) for _ in range(10_000)], [8] * 10_000)
    capacities = dict.fromkeys(placement.locations, 8)
    schedule = Schedule("FAC2", order="strided")
    pinned = plan(placement, capacities, schedule=schedule)
    parts = plan(placement, capacities, schedule=schedule, steal=True)
    shared = {part.holders for part in parts} - {()}
    assert len(shared) == min(workers * (workers - 1) // 2, 8 * workers)
    assert len(parts) <= 3 * len(pinned)


def test_the_heaviest_sets_of_holders_are_shared() -> None:
    placement = Placement.of(["AB", "AC", "BC", "BC", "AC", "BC", "ABC"], [8] * 7)
    parts = plan(placement, {A: 1, B: 1, C: 1}, schedule=Schedule("SS"), steal=True)
    assert {part.holders for part in parts} == {(B, C), (A, C), (A, B), ()}


def test_stored_blocks_are_shared_by_all_and_planned_as_ever() -> None:
    one = Placement.of(["A", "A", "A", "B", "B", "C"], [8] * 6)
    everywhere = Placement(one.locations, one.holder_offsets, one.holder_ids, one.nbytes, True)
    capacities, schedule = {A: 2, B: 1, C: 1}, Schedule("SS")
    assert described(plan(everywhere, capacities, schedule=schedule)) == described(
        plan(one, capacities, schedule=schedule)
    )
    for part, planned in zip(
        plan(everywhere, capacities, schedule=schedule, steal=True),
        plan(one, capacities, schedule=schedule),
        strict=True,
    ):
        assert (part.location, part.holders) == (planned.location, (A, B, C))
