"""Conformance tests: contents and locations of partitions, and what their pickles carry."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from spliter import Location, PartitionNotLocalError, split
from spliter.testing import _programs, strategies
from spliter.testing._encoding import index_encoded_block, index_encoded_blocks, rows_in
from spliter.testing._hooks import BackendHooks, whole

ITERATE = """
import pickle, sys
import spliter
partition = pickle.loads(open(sys.argv[1], "rb").read())
try:
    print("blocks:", len(list(partition)))
except spliter.PartitionNotLocalError as error:
    print("PartitionNotLocalError:", error)
"""


class PartitionChecks(BackendHooks):
    """Partitions are disjoint, cover the collection, and know their indexes."""

    def test_partitions_cover_the_collection_with_right_values_and_indexes(self) -> None:
        @settings(max_examples=self.examples, deadline=None)
        @given(placed=strategies.placed_blocks(n_locations=self.n_locations))
        def check(placed: strategies.PlacedBlocks) -> None:
            collection = self.encoded(placed.lengths, placed.placement)
            parts = split(collection, partitions_per_location=placed.partitions_per_location)
            contents = self.collect(parts.map(_programs.contents))
            chunks = (placed.lengths,)
            names: dict[int, Location] = {}
            for partition, found in zip(parts, contents, strict=True):
                indexes = [index for index, _ in found]
                assert indexes == partition.get_indexes()
                assert indexes == sorted(indexes), "blocks come in the collection's order"
                assert len(partition) == len(indexes) > 0
                for index, block in found:
                    np.testing.assert_array_equal(block, index_encoded_block(index, chunks))
                    number = placed.placement[index[0]]
                    assert names.setdefault(number, partition.location) == partition.location
                items = [block for _, block in found]
                np.testing.assert_array_equal(partition.get_item_indexes(), np.concatenate(items))
                assert partition.shape[0] == sum(map(len, items))
            assert len(set(names.values())) == len(names), "one name per location"
            assert set(names.values()) == set(parts.locations)
            every = Counter(index for partition in parts for index in partition.get_indexes())
            assert every == Counter((at,) for at in range(len(placed.lengths)))

        check()

    def test_grids_of_several_axes(self) -> None:
        chunks = ((3, 0, 2, 1), (2, 1), (1, 2))
        blocks = index_encoded_blocks(chunks)
        where = self.in_turn(len(blocks))
        collection = self.distribute_grid(blocks, chunks, where)
        if collection is None:
            pytest.skip("the engine has no collections with blocks along several axes")
        extent = tuple(map(sum, chunks))
        parts = split(collection, partitions_per_location=2)
        assert parts.grid.chunks == chunks
        found = self.collect(parts.map(_programs.contents))
        indexes = [index for content in found for index, _ in content]
        assert sorted(indexes) == list(np.ndindex(4, 2, 2))
        for partition, content in zip(parts, found, strict=True):
            assert partition.get_indexes() == sorted(partition.get_indexes())
            for index, block in content:
                np.testing.assert_array_equal(block, index_encoded_block(index, chunks))
            rows = [rows_in(block, extent) for _, block in content]
            np.testing.assert_array_equal(partition.get_item_indexes(), np.concatenate(rows))

    def test_blocks_of_several_axes_split_along_rows(self) -> None:
        lengths = (2, 3, 1, 4)
        parts = split(self.encoded(lengths, None, 3, 2), partitions_per_location=1)
        for partition, blocks in zip(
            parts, self.collect(parts.map(_programs.blocks_of)), strict=True
        ):
            rows = np.concatenate([rows_in(block, (sum(lengths), 3, 2)) for block in blocks])
            np.testing.assert_array_equal(partition.get_item_indexes(), rows)

    def test_item_indexes_at_the_location(self) -> None:
        parts = self.split_of(3, 0, 2, 4)
        parts.resolve_item_indexes()
        found = self.collect(parts.map(_programs.item_indexes))
        np.testing.assert_array_equal(np.sort(np.concatenate(found)), whole((3, 0, 2, 4)))
        for partition, items in zip(parts, found, strict=True):
            np.testing.assert_array_equal(partition.get_item_indexes(), items)

    def test_blocks_without_rows(self) -> None:
        parts = self.split_of(0, 0, 0)
        assert sum(self.collect(parts.map(_programs.consume))) == 3
        assert [len(partition.get_item_indexes()) for partition in parts] == [0] * len(parts)

    def test_one_block(self) -> None:
        (partition,) = self.split_of(5)
        assert (len(partition), partition.get_indexes()) == (1, [(0,)])
        assert self.collect([_programs.total(partition)]) == [10]

    def test_tasks_run_at_the_location(self) -> None:
        where = self.where_it_runs()
        if where is None:
            pytest.skip("the engine cannot tell where a task runs")
        parts = self.split_of(*[2] * (4 * self.n_locations), partitions_per_location=2)
        assert len(parts.locations) == self.n_locations
        assert self.collect(parts.map(where)) == [partition.location for partition in parts]

    def test_pickle_carries_references_only(self) -> None:
        small, large = (
            split(self.encoded([rows] * (8 * self.n_locations)), partitions_per_location=1)[0]
            for rows in (1, 1000)
        )
        sizes = len(pickle.dumps(small)), len(pickle.dumps(large))
        assert abs(sizes[0] - sizes[1]) <= 16 * len(large), "the pickle grows with the data"

    def test_pickle_grows_by_a_few_bytes_per_block(self) -> None:
        many = 64 * self.n_locations
        few, more = (
            split(self.encoded([1] * blocks), partitions_per_location=1)[0]
            for blocks in (self.n_locations, many)
        )
        grown = len(pickle.dumps(more)) - len(pickle.dumps(few))
        assert grown <= self.max_pickle_bytes_per_block * (len(more) - len(few))

    def test_iterating_in_another_process_is_refused(self, tmp_path: Path) -> None:
        parts = self.split_of(3, 2)
        path = tmp_path / "partition"
        path.write_bytes(pickle.dumps(parts[0]))
        done = subprocess.run(
            [sys.executable, "-c", ITERATE, str(path)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            timeout=self.timeout,
            check=False,
        )
        # The engine's own modules may print when they are imported.
        *_, printed = done.stdout.splitlines() or [""]
        assert printed.startswith("PartitionNotLocalError: "), done.stdout + done.stderr

    def test_iterating_where_the_split_was_made(self) -> None:
        (partition,) = self.split_of(3)
        if self.locations_are_elsewhere:
            with pytest.raises(PartitionNotLocalError):
                list(partition)
        else:
            assert [block.tolist() for block in partition] == [[0, 1, 2]]

    def test_repr_says_where_and_how_much(self) -> None:
        (partition,) = self.split_of(3)
        assert partition.location in repr(partition)
        assert "1 block" in repr(partition)
