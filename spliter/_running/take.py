"""``Split.take``: one task per partition that has any of the rows."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from spliter._partition import Partition
from spliter._plan import Plan
from spliter._planning.take import Rows, check_items, plan_rows
from spliter._reading.columns import check_columns, has_column_names, select
from spliter._reading.concatenate import concatenate
from spliter._reading.kinds import unwrap_dataset, wrap_datasets
from spliter._reading.rows import take_rows
from spliter._reading.source import some_blocks
from spliter._running.results import check_may_wait


def take(plan: Plan, indices: Any, columns: Sequence[Hashable] | None) -> Any:
    """Return rows by their global index, of the current partitions of a plan."""
    selected = check_columns(columns)
    check_may_wait(plan.executor)
    plan.number_items()
    items = check_items(indices, int(plan.grid.row_counts.sum()))
    plan.follow_drift()
    partitions = plan.partitions
    partitions[0].indexes.check_whole_rows("read by rows")
    rows, order = plan_rows(plan.grid, [each.indexes.positions for each in partitions], items)
    answers = [
        partitions[number].submit(pick, some, selected)
        for number, some in (rows or {0: Rows(items, items)}).items()
    ]
    found = concatenate(wrap_datasets(plan.executor.gather(answers), plan.grid.dim))
    return unwrap_dataset(take_rows(found, order))


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
