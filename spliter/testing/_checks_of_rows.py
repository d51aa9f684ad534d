"""Conformance tests: rows by global index, columns of materialized partitions, and batches."""

from __future__ import annotations

import numpy as np
import pytest

from spliter import ItemIndexError, split
from spliter.testing import _programs
from spliter.testing._hooks import LENGTHS, BackendHooks, whole

WIDTH = 3
TABLE = np.arange(WIDTH * sum(LENGTHS), dtype=np.int64).reshape(-1, WIDTH)
"""All rows of an index-encoded collection of three columns."""


class RowChecks(BackendHooks):
    """Rows and columns are those of the whole collection, wherever their blocks are."""

    def test_rows_by_global_index(self) -> None:
        rows = len(TABLE)
        wanted = [rows - 1, 0, 5, 0, -2]
        table, labels = self.encoded(LENGTHS, None, WIDTH), self.encoded(LENGTHS)
        with split(table, labels) as parts:
            points, own = parts.take(wanted, columns=[2, 0])
            np.testing.assert_array_equal(points, TABLE[wanted][:, [2, 0]])
            np.testing.assert_array_equal(own, whole(LENGTHS)[wanted])
            everything, _ = parts.take(np.arange(rows)[::-1])
            np.testing.assert_array_equal(everything, TABLE[::-1])
            with pytest.raises(ItemIndexError, match="out of range"):
                parts.take([rows])

    def test_columns_of_materialized_partitions(self) -> None:
        with split(self.encoded(LENGTHS, None, WIDTH), self.encoded(LENGTHS)) as parts:
            found = self.collect(parts.map(_programs.columns_of, [2, 0]))
            for partition, copies in zip(parts, found, strict=True):
                for copy in copies:
                    expected = TABLE[partition.get_item_indexes()][:, [2, 0]]
                    np.testing.assert_array_equal(copy, expected)

    @pytest.mark.parametrize("nbytes", [100, 2**20])
    def test_batches_have_all_rows_in_order(self, nbytes: int) -> None:
        row = (WIDTH + 1) * TABLE.itemsize
        with split(self.encoded(LENGTHS, None, WIDTH), self.encoded(LENGTHS)) as parts:
            found = self.collect(parts.map(_programs.batches_of, nbytes))
            for partition, batches in zip(parts, found, strict=True):
                items = partition.get_item_indexes()
                tables = [TABLE[:0], *(table for table, _ in batches)]
                labels = [items[:0], *(of_rows for _, of_rows in batches)]
                np.testing.assert_array_equal(np.concatenate(tables), TABLE[items])
                np.testing.assert_array_equal(np.concatenate(labels), items)
                assert max(map(len, tables)) <= nbytes // row
