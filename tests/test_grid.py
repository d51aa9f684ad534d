"""The block grid: integer bookkeeping of blocks and rows."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spliter import BlockGrid, InvalidArgumentError
from spliter.testing import (
    index_encoded_array,
    index_encoded_block,
    index_encoded_blocks,
    rows_in,
    strategies,
)


def everywhere(grid: BlockGrid) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.arange(grid.nblocks, dtype=np.int64)


@given(strategies.block_grids())
def test_positions_count_block_indexes_in_c_order(grid: BlockGrid) -> None:
    expected = list(itertools.product(*map(range, grid.shape)))
    assert grid.indexes(everywhere(grid)) == expected
    assert [grid.index(position) for position in range(grid.nblocks)] == expected
    assert grid.rows(everywhere(grid)).tolist() == [index[0] for index in expected]


@given(strategies.block_grids())
def test_index_encoded_blocks_are_the_pieces_of_the_array(grid: BlockGrid) -> None:
    # The two ways of making the data agree, so tests may rely on either.
    extent = [size or 0 for size in grid.extent]
    array = index_encoded_array(extent)
    starts = [np.concatenate([[0], np.cumsum(axis)]) for axis in grid.chunks]
    for index, block in zip(
        grid.indexes(everywhere(grid)), index_encoded_blocks(grid.chunks), strict=True
    ):
        cut = tuple(slice(at[i], at[i + 1]) for at, i in zip(starts, index, strict=True))
        np.testing.assert_array_equal(block, array[cut])
        np.testing.assert_array_equal(block, index_encoded_block(index, grid.chunks))
        if block.size:
            first = int(grid.row_starts[index[0]])
            assert rows_in(block, extent).tolist() == list(range(first, first + len(block)))


@given(strategies.block_grids())
def test_sizes_are_those_of_the_blocks(grid: BlockGrid) -> None:
    blocks = index_encoded_blocks(grid.chunks)
    sizes = grid.block_sizes(8)
    assert sizes is not None
    assert sizes.tolist() == [block.nbytes for block in blocks]
    assert grid.extent == tuple(map(sum, grid.chunks))
    assert grid.has_known_items


def test_nan_is_a_size_that_is_not_known() -> None:
    grid = BlockGrid.from_chunks([(math.nan, math.nan), (2,)])
    assert grid.chunks == ((-1, -1), (2,))
    assert grid.extent == (None, 2)
    assert not grid.has_known_items
    assert grid.block_sizes(8) is None


def test_unknown_sizes_can_be_filled_in() -> None:
    grid = BlockGrid.of_unknown_sizes(3)
    assert (grid.nblocks, grid.has_known_items) == (3, False)
    known = grid.with_row_counts(np.array([2, 0, 1]))
    assert known.chunks == ((2, 0, 1),)
    assert known.row_starts.tolist() == [0, 2, 2]
    assert not grid.has_known_items


def test_a_grid_without_blocks() -> None:
    grid = BlockGrid.of_unknown_sizes(0)
    assert (grid.nblocks, grid.shape, grid.indexes(everywhere(grid))) == (0, (0,), [])
    assert grid.rows(everywhere(grid)).tolist() == []
    assert grid.row_starts.tolist() == []


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5))
def test_grids_are_values(sizes: list[int]) -> None:
    one, other = BlockGrid.from_chunks([sizes]), BlockGrid.from_chunks([map(float, sizes)])
    assert one == other
    assert hash(one) == hash(other)


@pytest.mark.parametrize("size", [-1.5, 2.5, -2, math.inf])
def test_other_sizes_are_refused(size: float) -> None:
    with pytest.raises(InvalidArgumentError, match="chunk size"):
        BlockGrid.from_chunks([(1, size)])


def test_a_grid_without_axes_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="axis"):
        BlockGrid.from_chunks([])
