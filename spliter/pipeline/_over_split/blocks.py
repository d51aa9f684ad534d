"""Check that all blocks of a collection are what the pipeline was planned for."""

from __future__ import annotations

from typing import Any

import numpy as np

from spliter._errors import InvalidArgumentError
from spliter._reading.column_names import column_names, order_columns, same_columns_advice
from spliter._reading.rows import count_rows
from spliter.pipeline._calls.metas import ArrayMeta, Meta, is_array, is_frame, plain_array


def members_of(block: Any) -> tuple[Any, ...]:
    """Return the blocks of aligned collections."""
    return block if isinstance(block, tuple) else (block,)


def example_of(block: Any, whose: str) -> Any:
    """Return no rows of a block, which stand for its kind."""
    if is_array(block):
        return plain_array(block)[:0].copy()
    if is_frame(block):
        return block[:0]
    kind = f"{type(block).__module__.partition('.')[0]}.{type(block).__name__}"
    if isinstance(block, np.ma.MaskedArray):
        kind = f"masked array ({kind})"
    elif isinstance(block, np.ndarray):
        kind += f" of {block.dtype} with {block.ndim} axes"
    raise InvalidArgumentError(
        f"{whose} is a {kind}, and a pipeline over a Split takes plain NumPy arrays of numbers, "
        "flags and dates, and DataFrames, Series and Indexes of pandas; convert the blocks, or "
        "call it in a task, on each block"
    )


def meta_of_rows(example: Any) -> Meta:
    """Return what is known of the rows of a collection."""
    if isinstance(example, np.ndarray):
        return ArrayMeta((None, *example.shape[1:]), example.dtype)
    return None


def checked(block: Any, examples: tuple[Any, ...], index: Any) -> tuple[Any, ...]:
    """Return the members of a block, with columns in the order of the examples."""
    pairs = zip(members_of(block), examples, strict=True)
    return tuple([_checked(member, example, index) for member, example in pairs])


def _checked(member: Any, example: Any, index: Any) -> Any:
    found = example_of(member, f"block {index}")
    names = column_names(example)
    if names is not None and column_names(found) is not None:
        advice = same_columns_advice(column_names(found), names)
        member, found = (
            order_columns(each, names, f"block {index}", advice) for each in (member, found)
        )
    here, there = _layout(found), _layout(example)
    if here == there:
        return plain_array(member)
    if here[0] == there[0] and not count_rows(member):
        return example
    one, other = (
        f"{a[0]} of {', '.join(part for part in a[1:] if part not in b)}"
        for a, b in ((here, there), (there, here))
    )
    raise InvalidArgumentError(
        f"block {index} is {one}, and the pipeline was planned for {other}, which the collection "
        "names or its first block has; convert the blocks to one kind, dtype and width"
    )


def _layout(value: Any) -> list[str]:
    """Return what all blocks have in common: the kind, and dtypes and width."""
    if isinstance(value, np.ndarray):
        return ["an ndarray", str(value.dtype), f"rows of shape {value.shape[1:]}"]
    if value.ndim == 2:
        columns = zip(value.columns, value.dtypes, strict=True)
        return ["a DataFrame", *[f"{name!r}: {_name(dtype)}" for name, dtype in columns]]
    return ["a Series" if hasattr(value, "iloc") else "an Index", _name(value.dtype)]


def _name(dtype: Any) -> str:
    return "category" if hasattr(dtype, "categories") else str(dtype)
