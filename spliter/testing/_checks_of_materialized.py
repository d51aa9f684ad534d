"""Conformance tests: materialized partitions, and collections assembled from results."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from spliter import InvalidArgumentError, PartitionNotLocalError, SplitClosedError, split
from spliter.testing import _programs, strategies
from spliter.testing._encoding import index_encoded_blocks
from spliter.testing._hooks import LENGTHS, BackendHooks, whole

ITEMS = whole(LENGTHS)


class MaterializedChecks(BackendHooks):
    """Blocks are concatenated at their location, once, and freed with the Split."""

    def test_one_block_with_all_rows_in_order(self) -> None:
        @settings(max_examples=self.examples, deadline=None)
        @given(placed=strategies.placed_blocks(n_locations=self.n_locations))
        def check(placed: strategies.PlacedBlocks) -> None:
            collection = self.encoded(placed.lengths, placed.placement)
            n = placed.partitions_per_location
            with split(collection, partitions_per_location=n, materialize=True) as parts:
                for partition, blocks in zip(
                    parts, self.collect(parts.map(_programs.blocks_of)), strict=True
                ):
                    assert len(blocks) == 1
                    np.testing.assert_array_equal(blocks[0], partition.get_item_indexes())
                    assert len(partition) == len(partition.get_indexes()), "blocks as they were"

        check()

    def test_items_are_the_blocks_as_they_were(self) -> None:
        with split(self.encoded(LENGTHS), materialize=True) as parts:
            found = self.collect(parts.map(_programs.contents))
            assert [index for content in found for index, _ in content] == [
                index for partition in parts for index in partition.get_indexes()
            ]
            blocks = {index: block for content in found for index, block in content}
            for (row,), block in blocks.items():
                assert len(block) == LENGTHS[row]

    def test_concatenated_once_and_apart_from_the_blocks(self) -> None:
        """A task's write into the copy is visible on the next pass, and not in the blocks."""
        lengths = [2] * (4 * self.n_locations)
        with split(self.encoded(lengths), partitions_per_location=1, materialize=True) as parts:
            assert self.collect(parts.map(_programs.mark)) == [0] * len(parts)
            assert self.collect(parts.map(_programs.mark)) == [-1] * len(parts)
            found = self.collect(parts.map(_programs.contents))
            np.testing.assert_array_equal(
                np.sort(np.concatenate([b for content in found for _, b in content])),
                whole(lengths),
            )

    def test_requested_by_the_task(self) -> None:
        lengths = [2] * (4 * self.n_locations)
        with split(self.encoded(lengths), partitions_per_location=1) as parts:
            assert self.collect(parts.map(_programs.mark)) == [0] * len(parts)
            assert self.collect(parts.map(_programs.mark)) == [-1] * len(parts)
            assert self.collect(parts.map(_programs.consume)) == [len(part) for part in parts]

    def test_released_with_the_split(self) -> None:
        collection = self.encoded([2] * (4 * self.n_locations))
        for _ in range(2):
            with split(collection, partitions_per_location=1, materialize=True) as parts:
                assert self.collect(parts.map(_programs.mark)) == [0] * len(parts)
                partition = parts[0]
        with pytest.raises(SplitClosedError):
            partition.submit(_programs.mark)

    def test_aligned_collections_are_concatenated_each(self) -> None:
        x, y = self.encoded(LENGTHS), self.encoded(LENGTHS, None, 2)
        with split(x, y, materialize=True) as parts:
            for partition, ((mine, other),) in zip(
                parts, self.collect(parts.map(_programs.blocks_of)), strict=True
            ):
                items = partition.get_item_indexes()
                np.testing.assert_array_equal(mine, items)
                np.testing.assert_array_equal(other, np.stack([2 * items, 2 * items + 1], axis=1))

    def test_auto_says_what_it_decided(self) -> None:
        small = split(self.encoded([2] * (4 * self.n_locations)), materialize="auto")
        assert sum(self.collect(parts_of := small.map(_programs.consume))) == len(parts_of)
        assert "materialized (about 2 rows per block)" in repr(small)
        large = split(self.encoded([1000] * (4 * self.n_locations)), materialize="auto")
        assert sum(self.collect(large.map(_programs.consume))) == large.nblocks
        assert "not materialized (about 1,000 rows per block)" in repr(large)
        assert "materialized" not in repr(self.split_of(2, 2))

    def test_away_from_its_location(self) -> None:
        if not self.locations_are_elsewhere:
            pytest.skip("the location is this process")
        with (
            split(self.encoded(LENGTHS), materialize=True) as parts,
            pytest.raises(PartitionNotLocalError),
        ):
            parts[0].materialize()

    def test_columns_of_blocks_cannot_be_one(self) -> None:
        chunks = ((2, 1), (1, 2))
        blocks = index_encoded_blocks(chunks)
        collection = self.distribute_grid(blocks, chunks, self.in_turn(len(blocks)))
        if collection is None:
            pytest.skip("the engine has no collections with blocks along several axes")
        with pytest.raises(InvalidArgumentError, match="rechunk"):
            split(collection, materialize=True)
        parts = split(collection, materialize="auto")
        assert "not materialized (blocks in several columns)" in repr(parts)
        with pytest.raises(InvalidArgumentError, match="rechunk"):
            self.collect(parts.map(_programs.mark))

    def test_map_blocks(self) -> None:
        parts = self.split_of(*LENGTHS)
        squares = parts.map_blocks(_programs.power, 2, dtype=np.int64)
        np.testing.assert_array_equal(self.values_of(squares), ITEMS**2)
        pairs = parts.map_blocks(_programs.pairs, dtype=np.int64, trailing_shape=(2,))
        np.testing.assert_array_equal(self.values_of(pairs), np.stack([ITEMS, -ITEMS], axis=1))

    def test_map_blocks_of_a_grid(self) -> None:
        chunks = ((2, 1, 3), (1, 2, 2), (2, 1))
        blocks = index_encoded_blocks(chunks)
        collection = self.distribute_grid(blocks, chunks, self.in_turn(len(blocks)))
        if collection is None:
            pytest.skip("the engine has no collections with blocks along several axes")
        items = np.arange(6 * 5 * 3).reshape(6, 5, 3)
        parts = split(collection, partitions_per_location=2)
        squares = parts.map_blocks(_programs.power, 2, dtype=np.int64)
        np.testing.assert_array_equal(self.values_of(squares), items**2)
        pairs = parts.map_blocks(_programs.pairs, dtype=np.int64, trailing_shape=(2,))
        np.testing.assert_array_equal(self.values_of(pairs), np.stack([items, -items], axis=-1))
        with pytest.raises(InvalidArgumentError, match="keep the sizes along these"):
            self.values_of(parts.map_blocks(_programs.first_columns, dtype=np.int64))

    def test_map_blocks_with_other_rows(self) -> None:
        parts = self.split_of(*LENGTHS)
        even = parts.map_blocks(_programs.even, dtype=np.int64, rows="unknown")
        np.testing.assert_array_equal(self.values_of(even), ITEMS[ITEMS % 2 == 0])
        with pytest.raises(InvalidArgumentError, match="pass rows='unknown'"):
            self.values_of(parts.map_blocks(_programs.even, dtype=np.int64))

    def test_collection_of_what_tasks_return(self) -> None:
        with split(self.encoded(LENGTHS), materialize=True) as parts:
            results = [(part, part.submit(_programs.cut_twice)) for part in parts]
            same = parts.assemble(results, dtype=np.int64, output=0)
            negative = parts.assemble(results, dtype=np.int64, output=1)
        np.testing.assert_array_equal(self.values_of(same), ITEMS)
        np.testing.assert_array_equal(self.values_of(negative), -ITEMS)

    def test_results_must_cover_all_blocks(self) -> None:
        parts = self.split_of(*LENGTHS, partitions_per_location=2)
        results = [(partition, partition.submit(_programs.cut_twice)) for partition in parts]
        for wrong in (results[:-1], [*results, results[0]]):
            with pytest.raises(InvalidArgumentError, match="cover every block once"):
                parts.assemble(wrong, dtype=np.int64, output=0)
