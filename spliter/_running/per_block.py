"""Run ``map_blocks`` at the locations, and pair the results of tasks with the blocks of a grid."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter._checks import check_block_function, check_choice
from spliter._errors import InvalidArgumentError
from spliter._partition import Partition
from spliter._plan import Plan, first_block
from spliter._planning.grid import UNKNOWN, BlockGrid
from spliter._reading.column_names import column_names, same_columns_advice
from spliter._reading.rows import count_rows
from spliter._running.template import HINT, Template
from spliter.backend.executor import ResultBlocks
from spliter.backend.registry import options_of_blocks

RowCounts: TypeAlias = Literal["same", "unknown"]
"""Whether each block of results has as many rows as the block of the collection."""

ResultType: TypeAlias = tuple[npt.DTypeLike | None, Sequence[int], Any]
"""Arguments `dtype`, `trailing_shape` and `meta` of ``Split.map_blocks``."""

Names: TypeAlias = tuple[list[Hashable] | None, ...]
"""Names of the columns of each aligned collection, ``None`` for blocks without names."""


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
    template : Template
        Type of the results.
    names : tuple of (list or None), or None
        Columns that blocks must have; by default those of the first block here.
    bounds : sequence of tuple, or None
        Divisions of each block, that the index of its result must keep.
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


def _check_rows_option(rows: object) -> None:
    advice = "; pass an argument of the function that is called rows with functools.partial"
    check_choice("rows", rows, "same", "unknown", advice=advice)


def result_chunks(
    grid: BlockGrid, template: Template, rows: RowCounts
) -> tuple[tuple[int, ...], ...]:
    """Return the sizes of the blocks of results along each axis."""
    _check_rows_option(rows)
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
    """Pair each result with the positions of its blocks; check that every block has one."""
    placed = [(partition.indexes.positions, future) for partition, future in results]
    covered = np.concatenate([np.empty(0, np.int64), *(positions for positions, _ in placed)])
    if not np.array_equal(np.sort(covered), np.arange(grid.nblocks)):
        raise InvalidArgumentError(
            "the partitions do not cover every block once; pass the results of all "
            "partitions of one iteration over this Split"
        )
    return placed


def map_blocks(
    plan: Plan,
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    result: ResultType,
    rows: RowCounts,
) -> Any:
    """Apply a function to every block, as :meth:`spliter.Split.map_blocks`."""
    _check_rows_option(rows)
    check_block_function(fn, kwargs, *options_of_blocks())
    blocks, axes = plan.blocks, plan.grid.cut_axes
    dtype, _, meta = result
    # To read a stored block takes time, and it has no columns with names.
    needs_example = (dtype is None and meta is None) or not blocks.stored
    example = blocks.example() if needs_example else None
    template = Template.given(*result, axes, example)
    if template is None:
        if example is None:
            raise InvalidArgumentError(
                f"map_blocks cannot infer what the function returns for this collection; {HINT}"
            )
        template = Template.infer(fn, example, args, kwargs, axes)
    partitions = plan.begin_pass()
    names = _names(plan, partitions) if example is None else names_of_block(example)
    divisions = blocks.divisions if template.keeps_index else None
    results = []
    for partition in partitions:
        bounds = divisions and [
            divisions[at : at + 2] for at in partition.indexes.positions.tolist()
        ]
        task = map_over, template, names, bounds, rows, fn
        results.append((partition, partition.submit(*task, *args, **kwargs)))
    return place(plan, results, template, None, rows, divisions)


def _names(plan: Plan, partitions: Sequence[Partition]) -> Any:
    """Return the future of the columns of the first block, None where no task needs it."""
    if not plan.blocks.may_have_columns or plan.grid.cut_axes > 1 or len(partitions) < 2:
        return None
    return min(partitions, key=lambda one: first_block([one])).submit(names_of_first)


def assemble(
    plan: Plan,
    results: Iterable[tuple[Partition, Any]],
    result: ResultType,
    output: int | None,
    rows: RowCounts,
) -> Any:
    """Make a collection of results whose type is given, as :meth:`spliter.Split.assemble`."""
    template = Template.given(*result, plan.grid.cut_axes, None)
    if template is None:
        raise InvalidArgumentError(f"assemble() needs the type of the blocks; {HINT}")
    return place(plan, results, template, output, rows, None)


def place(
    plan: Plan,
    results: Iterable[tuple[Partition, Any]],
    template: Template,
    output: int | None,
    rows: RowCounts,
    divisions: Sequence[Any] | None,
) -> Any:
    """Have the engine make a collection of results, each in the place of its block."""
    plan.check_open()
    grid = BlockGrid(result_chunks(plan.grid, template, rows))
    placed = place_results(plan.grid, results)
    made = ResultBlocks(grid, template.dtype, output, template.meta, divisions)
    return plan.executor.assemble(placed, made)
