"""Conformance tests: a Split can be reused, aligned and closed, and moves no blocks."""

from __future__ import annotations

import gc
import html
import operator
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from spliter import (
    AlignmentError,
    BackendNotUsableError,
    InvalidArgumentError,
    Location,
    Partition,
    SplitClosedError,
    reduce,
    split,
)
from spliter.backend import Prefetch
from spliter.testing import _programs, strategies
from spliter.testing._hooks import LENGTHS, TOTAL, BackendHooks, whole

CHECKS_WITH_A_SCHEDULE = (
    "test_result_depends_on_the_items_alone",
    "test_nothing_moves",
    "test_several_passes",
    "test_reading_ahead_changes_nothing",
    "test_collection_may_be_dropped",
    "test_split_may_be_dropped",
    "test_numbers",
    "test_aligned_collections_come_as_tuples",
    "test_aligned_blocks_that_are_elsewhere_are_brought_and_counted",
    "test_closing",
    "test_chosen_by_name",
    "test_html_repr_is_well_formed_and_names_the_locations",
)
"""Those that say neither how many partitions there are nor in which order."""


class SplitChecks(BackendHooks):
    """A Split is a reusable sequence that keeps its blocks alive and moves none."""

    def test_result_depends_on_the_items_alone(self) -> None:
        @settings(max_examples=self.examples, deadline=None)
        @given(placed=strategies.placed_blocks(n_locations=self.n_locations))
        def check(placed: strategies.PlacedBlocks) -> None:
            collection = self.encoded(placed.lengths, placed.placement)
            parts = self.split_collections(
                collection, partitions_per_location=placed.partitions_per_location
            )
            items = whole(placed.lengths)
            futures = parts.map(_programs.total), parts.map(_programs.collect_items)
            combined = reduce(operator.add, futures[0]), reduce(_programs.unite, futures[1])
            assert self.collect(combined) == [items.sum(), frozenset(items.tolist())]

        check()

    def _transfers(self) -> float:
        count = self.incoming_transfers()
        if count is None:
            pytest.skip("there is nowhere to move a block to")
        return count

    def test_nothing_moves(self) -> None:
        collection = self.encoded([1000] * (6 * self.n_locations))
        before = self._transfers()
        parts = self.split_collections(collection, partitions_per_location=2)
        for _ in range(3):
            assert sum(self.collect(parts.map(_programs.consume))) == parts.nblocks
        assert self._transfers() == before
        assert (parts.moved.blocks, parts.moved.nbytes) == (0, 0)
        # Positive control: the counter does register a transfer.
        self.move_something(collection)
        assert self._transfers() > before

    def test_several_passes(self) -> None:
        parts = self.split_of(*LENGTHS)
        passes = [sum(self.collect(map(_programs.total, parts))) for _ in range(5)]
        assert passes == [TOTAL] * 5

    def test_reading_ahead_changes_nothing(self) -> None:
        collection = self.encoded(LENGTHS)
        options: tuple[Prefetch, ...] = (False, "auto", 3)
        for prefetch in options:
            parts = self.split_collections(collection, partitions_per_location=1, prefetch=prefetch)
            found = self.collect(parts.map(_programs.blocks_of))
            for partition, blocks in zip(parts, found, strict=True):
                items = partition.get_item_indexes()
                np.testing.assert_array_equal(np.concatenate(blocks), items)

    def test_lookups_find_the_records_of_the_items(self) -> None:
        options: tuple[Prefetch, ...] = (False, "auto", 3)
        parts = self.split_of(*LENGTHS, partitions_per_location=1)
        for prefetch in options:
            found = self.collect(parts.map(_programs.squares_of, prefetch))
            for partition, squares in zip(parts, found, strict=True):
                items = partition.get_item_indexes().tolist()
                assert squares == [(item, None if item % 2 else item**2) for item in items]

    def test_tasks_read_records_ahead(self) -> None:
        parts = self.split_of(*LENGTHS, partitions_per_location=1)
        found = self.collect(parts.map(_programs.squares_read_ahead))
        for partition, squares in zip(parts, found, strict=True):
            items = partition.get_item_indexes().tolist()
            assert squares == [None if item % 2 else item**2 for item in items]

    def test_sequence_of_the_same_partitions(self) -> None:
        parts = self.split_of(*LENGTHS, partitions_per_location=2)
        listed = list(parts)
        assert len(listed) == len(parts)
        assert listed == list(parts) == [parts[number] for number in range(len(parts))]
        assert parts[:2] == listed[:2]
        assert parts[-1] is listed[-1]
        assert all(partition in parts for partition in listed)
        with pytest.raises(IndexError):
            parts[len(parts)]
        firsts = [partition.get_indexes()[0] for partition in parts]
        assert firsts == sorted(firsts)

    def test_collection_may_be_dropped(self) -> None:
        parts = self.split_of(*LENGTHS)
        gc.collect()
        assert sum(self.collect(parts.map(_programs.total))) == TOTAL

    def test_split_may_be_dropped(self) -> None:
        partitions = list(self.split_of(*LENGTHS))
        gc.collect()
        assert sum(self.collect(map(_programs.total, partitions))) == TOTAL

    def test_numbers(self) -> None:
        parts = self.split_of(*LENGTHS)
        assert parts.nblocks == parts.grid.nblocks == len(LENGTHS)
        assert parts.nbytes == sum(partition.nbytes for partition in parts)
        assert len(parts.locations) == min(self.n_locations, len(LENGTHS))
        assert list(parts.locations) == sorted(parts.locations)

    @pytest.mark.parametrize("wanted", [1, 2, 3])
    def test_partitions_per_location(self, wanted: int) -> None:
        parts = self.split_of(*[2] * (4 * self.n_locations), partitions_per_location=wanted)
        assert len(parts.locations) == self.n_locations
        assert numbers_of_partitions(parts.locations, list(parts)) == {wanted}

    def test_partitions_per_location_given_as_numpy_integer(self) -> None:
        one: Any = np.int64(1)
        parts = split(self.encoded([1] * self.n_locations), partitions_per_location=one)
        assert len(parts) == self.n_locations

    def test_never_more_partitions_than_blocks(self) -> None:
        parts = self.split_of(*LENGTHS, partitions_per_location=100)
        assert [len(partition) for partition in parts] == [1] * len(LENGTHS)
        assert sum(self.collect(parts.map(_programs.total))) == TOTAL

    @pytest.mark.parametrize("wanted", [0, -1, 1.5, True, "2"])
    def test_other_numbers_of_partitions_are_refused(self, wanted: int) -> None:
        with pytest.raises(InvalidArgumentError, match="partitions_per_location"):
            split(self.encoded(LENGTHS), partitions_per_location=wanted)

    def test_aligned_collections_come_as_tuples(self) -> None:
        placement = self.in_turn(len(LENGTHS))
        values = self.encoded(LENGTHS, placement)
        others = [np.full(length, at) for at, length in enumerate(LENGTHS)]
        weights = self.distribute(others, placement)
        parts = self.split_collections(values, weights)
        for partition, blocks in zip(
            parts, self.collect(parts.map(_programs.blocks_of)), strict=True
        ):
            for (at,), (block, weight) in zip(partition.get_indexes(), blocks, strict=True):
                np.testing.assert_array_equal(weight, others[at])
                assert block.shape == weight.shape
        expected = sum(whole(LENGTHS) * np.concatenate(others))
        assert sum(self.collect(parts.map(_programs.weigh))) == expected
        assert parts.moved.blocks == 0

    def test_aligned_blocks_that_are_elsewhere_are_brought_and_counted(self) -> None:
        if self.n_locations < 2:
            pytest.skip("there is one location, so nothing is elsewhere")
        placement = self.in_turn(len(LENGTHS))
        rotated = [(number + 1) % self.n_locations for number in placement]
        weights = self.distribute([np.full(length, 2) for length in LENGTHS], rotated)
        parts = self.split_collections(self.encoded(LENGTHS, placement), weights)
        for _ in range(2):
            assert sum(self.collect(parts.map(_programs.weigh))) == 2 * TOTAL
        assert parts.moved.aligned_blocks == len(LENGTHS)
        assert parts.moved.aligned_nbytes > 0
        assert parts.moved.fetched_blocks == 0

    @pytest.mark.parametrize("other", [LENGTHS[:-1], (*LENGTHS[:-2], 2, 5)])
    def test_misaligned_collections_are_refused(self, other: tuple[int, ...]) -> None:
        first, second = self.encoded(LENGTHS), self.encoded(other)
        # Raised by split if sizes are known, else by the task that reads the blocks.
        with pytest.raises(AlignmentError):
            self.collect(split(first, second).map(_programs.consume))

    def test_closing(self) -> None:
        parts = self.split_of(*LENGTHS)
        partition = parts[0]
        assert sum(self.collect(parts.map(_programs.total))) == TOTAL
        parts.close()
        parts.close()
        assert "closed" in repr(parts)
        for use in (
            lambda: list(parts),
            lambda: parts[0],
            lambda: parts.map(_programs.total),
            lambda: partition.submit(_programs.total),
            lambda: _programs.total(partition),
        ):
            with pytest.raises(SplitClosedError):
                use()

    def test_context_manager_closes(self) -> None:
        with self.split_of(*LENGTHS) as parts:
            assert sum(self.collect(parts.map(_programs.total))) == TOTAL
        with pytest.raises(SplitClosedError):
            parts.map(_programs.total)

    def test_chosen_by_name(self) -> None:
        parts = self.split_collections(self.encoded(LENGTHS), backend=self.backend)
        assert sum(self.collect(parts.map(_programs.total))) == TOTAL

    def test_another_name_is_refused(self) -> None:
        with pytest.raises(BackendNotUsableError, match="no-such-backend"):
            split(self.encoded(LENGTHS), backend="no-such-backend")

    @pytest.mark.parametrize("check", CHECKS_WITH_A_SCHEDULE)
    def test_the_same_with_a_schedule(self, check: str) -> None:
        self.schedule: str | None = "FAC2"
        getattr(self, check)()

    def test_repr_gives_the_numbers(self) -> None:
        parts = self.split_of(*LENGTHS)
        assert f"{len(parts)} partition" in repr(parts)
        assert f"{len(LENGTHS)} blocks" in repr(parts)

    def test_html_repr_is_well_formed_and_names_the_locations(self) -> None:
        parts = self.split_of(*LENGTHS)
        shown = parts._repr_html_()
        checker = TagBalanceChecker()
        checker.feed(shown)
        assert checker.open == []
        for location in parts.locations:  # the middle of a long name may be left out
            assert html.escape(location[:8]) in shown
            assert html.escape(location[-8:]) in shown
        parts.close()
        assert "closed" in parts._repr_html_()


def numbers_of_partitions(locations: tuple[Location, ...], partitions: list[Partition]) -> set[int]:
    """Return the distinct numbers of partitions per location."""
    at = [partition.location for partition in partitions]
    return {at.count(location) for location in locations}


class TagBalanceChecker(HTMLParser):
    """Parser that keeps a stack of open tags."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Push a tag."""
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Pop the last open tag, which must be this one."""
        assert self.open.pop() == tag
