"""Run ``map_blocks`` at the locations, and pair the results of tasks with the blocks of a grid."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter._errors import InvalidArgumentError
from spliter._partition import Partition
from spliter._planning.grid import UNKNOWN, BlockGrid
from spliter._planning.take import Rows
from spliter._reading.column_names import column_names, same_columns_advice
from spliter._reading.columns import has_column_names, select
from spliter._reading.concatenate import concatenate
from spliter._reading.kinds import unwrap_dataset, wrap_datasets
from spliter._reading.rows import count_rows, take_rows
from spliter._reading.source import some_blocks
from spliter._running.template import Template

RowCounts: TypeAlias = Literal["same", "unknown"]
"""Whether each block of results has as many rows as the block of the collection."""

Names: TypeAlias = tuple[list[Hashable] | None, ...]
"""Names of the columns of each aligned collection, ``None`` for blocks without names."""


def count_items(partition: Partition) -> list[int]:
    """Return the number of rows of each block; runs at a location."""
    return [count_rows(block) for _, block in partition.items()]


def names_of_block(block: Any) -> Names:
    """Return the names of the columns of a block, or of each aligned one.

    The numbers that pandas gives to unnamed columns are none.
    """
    found = map(column_names, block if isinstance(block, tuple) else (block,))
    return tuple(None if names == list(range(len(names or ()))) else names for names in found)


def names_of_first(partition: Partition) -> Names | None:
    """Return the names of the columns of a partition's first block with rows, at its location."""
    return next((names_of_block(it) for _, it in partition.items() if count_rows(it)), None)


def map_over(
    partition: Partition,
    template: Template,
    names: Names | None,
    bounds: Sequence[tuple[Any, Any]] | None,
    rows: RowCounts,
    fn: Callable[..., Any],
    /,
    *args: Any,
    **kwargs: Any,
) -> list[Any]:
    """Apply a function to each block, check the results and convert them; runs at a location.

    Parameters
    ----------
    partition : Partition
    template : Template
        Type of the results.
    names : tuple of (list or None), or None
        Columns that blocks must have; by default those of the first block here.
    bounds : sequence of tuple, or None
        Divisions of each block, that the index of its result must keep.
    rows : {"same", "unknown"}
    fn : callable
    *args, **kwargs
        Its further arguments.
    """
    made = []
    for at, (index, block) in enumerate(partition.items()):
        if count_rows(block):
            names = names or names_of_block(block)
            _check_same_columns(names, names_of_block(block), index)
        result = fn(block, *args, **kwargs)
        if not getattr(result, "shape", hasattr(result, "__len__")):
            raise InvalidArgumentError(
                f"map_blocks: the function returned {result!r} for block {index}, but must "
                "return one row for each row of the block; to compute one value per block, start a "
                "task on each partition"
            )
        if rows == "same" and (found := count_rows(result)) != count_rows(block):
            raise InvalidArgumentError(
                f"map_blocks: the function returned {found} rows for block {index} of "
                f"{count_rows(block)} rows; let it return one for each, or pass rows='unknown' if "
                "it selects rows"
            )
        first = block[0] if isinstance(block, tuple) else block
        made.append(template.conform(result, first, index))
        if bounds is not None:
            is_last = index[0] == partition.indexes.grid_shape[0] - 1
            _check_divisions(made[-1].index, first.index, bounds[at], is_last, index)
    return made


def _check_same_columns(names: Names, found: Names, index: tuple[int, ...]) -> None:
    """Reject a block with other columns than the collection, or in another order."""
    for one, other in zip(names, found, strict=True):
        if one != other:
            raise InvalidArgumentError(
                f"all blocks must have the same columns in the same order, got {_shown(one)} and "
                f"{_shown(other)} in block {index}; {same_columns_advice(one, other)}"
            )


def _shown(names: list[Hashable] | None) -> str:
    return "columns without names" if names is None else str(names)


def _check_divisions(
    made: Any, given: Any, bounds: tuple[Any, Any], is_last: bool, index: tuple[int, ...]
) -> None:
    """Reject an index that is not in the divisions of its block, which the new frame keeps."""
    if not len(made) or made is given or made.equals(given):
        return
    low, high = bounds
    if made.dtype != given.dtype or not (
        low <= made.min() and (made.max() < high or (is_last and made.max() == high))
    ):
        raise InvalidArgumentError(
            f"map_blocks: the index of the result for block {index} ({made[0]}, ...) is not in its "
            f"divisions, {low} to {high}; pass an empty result with its own index as meta=, or "
            "split frame.clear_divisions().persist()"
        )


def check_rows_option(rows: str) -> None:
    """Reject a value of `rows` that is none of its own."""
    if rows not in ("same", "unknown"):
        raise InvalidArgumentError(
            f"rows must be 'same' or 'unknown', got {rows!r}; pass an argument of the function "
            "that is called rows with functools.partial"
        )


def result_chunks(
    grid: BlockGrid, template: Template, rows: RowCounts
) -> tuple[tuple[int, ...], ...]:
    """Return the sizes of the blocks of results along each axis.

    Raises
    ------
    InvalidArgumentError
        If the numbers of rows are unknown and the blocks form several columns.
    """
    check_rows_option(rows)
    chunks = (*grid.chunks[: template.axes], *((size,) for size in template.trailing_shape))
    if rows == "same":
        return chunks
    if template.axes > 1:
        raise InvalidArgumentError(
            f"rows='unknown' needs blocks of whole rows, got a grid of {grid.shape} blocks; "
            "rechunk the collection to one block along every axis but the first"
        )
    return (UNKNOWN,) * grid.shape[0], *chunks[1:]


def place_results(
    grid: BlockGrid, results: Iterable[tuple[Partition, Any]]
) -> list[tuple[npt.NDArray[np.int64], Any]]:
    """Pair each result with the positions of its blocks; check that every block has one.

    Parameters
    ----------
    grid : BlockGrid
        Grid of the collection being split.
    results : iterable of (Partition, future)

    Raises
    ------
    InvalidArgumentError
        If the partitions do not cover every block once.
    """
    placed = [(partition.indexes.positions, future) for partition, future in results]
    covered = np.concatenate([np.empty(0, np.int64), *(positions for positions, _ in placed)])
    if not np.array_equal(np.sort(covered), np.arange(grid.nblocks)):
        raise InvalidArgumentError(
            "the partitions do not cover every block once; pass the results of all "
            "partitions of one iteration over this Split"
        )
    return placed


def pick(partition: Partition, rows: Rows, columns: list[Hashable] | None) -> Any:
    """Return rows of a partition as one block; runs at its location.

    Reads only the blocks with these rows, if they are stored.
    """
    numbers, of_block = rows.by_block()
    blocks = wrap_datasets(some_blocks(partition.source, numbers), partition.indexes.dim)
    picked = [take_rows(block, some) for block, some in zip(blocks, of_block, strict=True)]
    if columns is not None and all(has_column_names(block) for block in picked):
        # Before blocks meet: they may differ in the other columns. Positions, such as -1, mean the
        # same in blocks of one width only, which concatenating checks.
        picked, columns = [select(block, columns) for block in picked], None
    return select(unwrap_dataset(concatenate(picked)), columns)
