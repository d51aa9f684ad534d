"""Names of the columns of frames and tables, by which blocks are matched."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from spliter._errors import InvalidArgumentError
from spliter._reading.kinds import is_table


def column_names(block: Any) -> list[Hashable] | None:
    """Return the names of the columns of a frame or table in order; ``None`` for other blocks.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> column_names(pd.DataFrame({"a": [1], "b": [2]})), column_names(np.zeros((1, 2)))
    (['a', 'b'], None)
    """
    if is_table(block):
        return list(block.column_names)
    return list(block.columns) if hasattr(block, "iloc") and block.ndim == 2 else None


def order_columns(frame: Any, names: list[Hashable], whose: str, advice: str) -> Any:
    """Return a frame or table with its columns in the order of `names`.

    `whose` and `advice` say in the error what the frame is, and what to do if it has other columns.

    Examples
    --------
    >>> import pandas as pd
    >>> list(order_columns(pd.DataFrame({"b": [1], "a": [2]}), ["a", "b"], "a frame", "rename it"))
    ['a', 'b']
    """
    found = column_names(frame) or []
    if found == names:
        return frame
    if not len(found) == len(names) == len(set(found)) or set(found) != set(names):
        raise InvalidArgumentError(f"{whose} has columns {found}, expected {names}; {advice}")
    return frame.select(names) if is_table(frame) else frame[names]


def match_columns(blocks: Sequence[Any]) -> list[Any]:
    """Return frames or tables with their columns in the order of the first one's; refuse others.

    Blocks with neither columns nor rows, which Ray Data has, are left out if others have columns.

    Examples
    --------
    >>> import pandas as pd
    >>> frames = [pd.DataFrame({"a": [1], "b": [2]}), pd.DataFrame({"b": [3], "a": [4]})]
    >>> [list(frame) for frame in match_columns(frames)]
    [['a', 'b'], ['a', 'b']]
    """
    kept = [block for block in blocks if column_names(block) or len(block)] or list(blocks[:1])
    names = column_names(kept[0]) or []
    frames = [None if is_table(block) else column_names(block) for block in kept]
    advice = same_columns_advice(*frames)
    return [order_columns(block, names, "a block", advice) for block in kept]


def same_columns_advice(*names: Sequence[Hashable] | None) -> str:
    """Return what to do about blocks with other columns, or with the same in another order.

    Names the columns that all blocks have; `None` are those of a block without.

    Examples
    --------
    >>> same_columns_advice(["a", "b", "c"], ["c", "b"])
    "select them by name in each block: frame.map_partitions(lambda block: block[['b', 'c']]) ..."
    >>> same_columns_advice(["a"], None)
    'give all blocks the same columns'
    """
    lists = [list(each or ()) for each in names]
    common = [name for name in lists[0] if all(each.count(name) == 1 for each in lists)]
    if not common:
        return "give all blocks the same columns"
    # Not frame[names]: Dask drops it if its first block has these columns already.
    selected = f"block[{common}]"
    return (
        f"select them by name in each block: frame.map_partitions(lambda block: {selected}) of a "
        f"Dask DataFrame, [{selected} for block in blocks] of a list"
    )
