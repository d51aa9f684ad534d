"""Results with a part for each block: what tasks return, and whether all of it has come."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from spliter._errors import InvalidArgumentError
from spliter._grid import BlockGrid
from spliter._partition import Partition, count_rows, count_rows_of


def count_items(partition: Partition) -> list[int]:
    """Run at a location: the number of rows of each block."""
    return [count_rows_of(block) for _, block in partition.items()]


def map_over(
    partition: Partition, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> list[Any]:
    """Run at a location: apply a function to each block."""
    made = []
    for index, block in partition.items():
        result = fn(block, *args, **kwargs)
        if (rows := count_rows(result)) != count_rows_of(block):
            raise InvalidArgumentError(
                f"map_blocks: the function returned {rows} rows for block {index} of "
                f"{count_rows_of(block)} rows; it has to return one for each"
            )
        made.append(result)
    return made


def placed_results(
    grid: BlockGrid, results: Iterable[tuple[Partition, Any]]
) -> list[tuple[npt.NDArray[np.int64], Any]]:
    """Return which blocks each result is of, having checked that every block has one.

    Parameters
    ----------
    grid : BlockGrid
        Of the collection that was split.
    results : iterable of (Partition, future)
        Partitions, each with what will be its result.

    Raises
    ------
    InvalidArgumentError
        If the partitions do not cover every block once, or the blocks form columns.
    """
    if grid.nblocks != grid.shape[0]:
        raise InvalidArgumentError(
            f"a grid of {grid.shape} blocks: only collections of one block along every "
            "axis but the first can be assembled"
        )
    placed = [(partition.indexes.positions, future) for partition, future in results]
    covered = np.concatenate([np.empty(0, np.int64), *(positions for positions, _ in placed)])
    if not np.array_equal(np.sort(covered), np.arange(grid.nblocks)):
        raise InvalidArgumentError(
            "the partitions do not cover every block once; give the results of all "
            "partitions of one iteration over this Split"
        )
    return placed
