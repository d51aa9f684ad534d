"""What splitting a ds-array must do, on the stand-in and on a real runtime alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from spliter import Partition, split

Array = npt.NDArray[Any]


def numbers(rows: int = 23, columns: int = 7) -> Array:
    """Return an array of which every element is different, and some are zero columns apart."""
    return np.arange(rows * columns, dtype=np.float64).reshape(rows, columns)


def contents(partition: Partition) -> list[tuple[tuple[int, ...], Any]]:
    """Return index and content of every block."""
    return list(partition.items())


def formats(partition: Partition) -> list[str]:
    return [getattr(block, "format", type(block).__name__) for block in partition]


def dense(block: Any) -> Array:
    found: Array = block if isinstance(block, np.ndarray) else block.toarray()
    return found


def check_rows(array: Any, expected: Array) -> None:
    """Split, and compare blocks, indexes and shapes with the array itself."""
    with split(array, partitions_per_location=2) as parts:
        assert parts.grid.extent == expected.shape
        assert parts.nblocks == array._n_blocks[0]
        seen = []
        for partition, future in zip(parts, parts.map(contents), strict=True):
            found = future.result()
            rows = np.concatenate([dense(block) for _, block in found])
            np.testing.assert_array_equal(rows, expected[partition.get_item_indexes()])
            assert partition.shape == rows.shape
            assert [index for index, _ in found] == partition.get_indexes()
            seen += [index for index, _ in found]
        assert sorted(seen) == [(row, 0) for row in range(array._n_blocks[0])]
