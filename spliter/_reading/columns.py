"""Select columns of a block: of axis 1 of an array, fields of a structured array, or labels.

The same rules for blocks of any kind: columns are a list, each is named once, and an unknown one
is an error that names it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter._errors import InvalidArgumentError
from spliter._machine.llvm import is_installed
from spliter._reading.column_names import column_names
from spliter._reading.kinds import is_sparse, is_table

Columns: TypeAlias = Sequence[Hashable]
"""Numbers of columns of arrays and sparse matrices, or names of fields, or labels of a frame."""


def check_columns(columns: Iterable[Hashable] | None) -> list[Hashable] | None:
    """Return columns as a list, ``None`` for all; refuse repeated ones.

    Examples
    --------
    >>> check_columns(("t", "p"))
    ['t', 'p']
    """
    if columns is None:
        return None
    if isinstance(columns, str | bytes | dict) or not isinstance(columns, Iterable):
        raise InvalidArgumentError(
            f"columns must be a list, got {columns!r}; for a single column pass [{columns!r}]"
        )
    try:
        listed = list(columns)
        repeated = [column for at, column in enumerate(listed) if column in listed[:at]]
    except (TypeError, ValueError):  # arrays of no dimension, nested ones
        raise InvalidArgumentError(
            f"columns must be a list of numbers or names, got {columns!r}"
        ) from None
    if repeated:
        advice = "name each column once"
        if isinstance(repeated[0], bool | np.bool_):
            advice = "of a mask, pass numpy.flatnonzero(mask)"
        raise InvalidArgumentError(
            f"column {repeated[0]!r} is repeated in columns={listed!r}; {advice}"
        )
    return listed


def select(block: Any, columns: list[Hashable] | None) -> Any:
    """Return columns of a block, in the given order; of the first block of a tuple.

    Of structured arrays these are fields. ``None`` returns the block itself; unknown columns are
    refused.

    Examples
    --------
    >>> select(np.array([[1, 2, 3]]), [2, 0])
    array([[3, 1]])
    >>> select(np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]), ["b"])
    array([(2.,)], dtype=[('b', '<f8')])
    """
    if columns is None:
        return block
    if isinstance(block, tuple):
        return (select(block[0], columns), *block[1:])
    if is_structured(block):
        out = np.empty(block.shape, packed(block.dtype, columns))
        if not columns or (type(block) is np.ndarray and pack_fields(block, out)):
            return out
        return block[list(out.dtype.names or ())].astype(out.dtype)
    if hasattr(block, "iloc") and block.ndim == 2:
        return block.iloc[:, label_numbers(block.columns, columns)]
    if is_table(block):
        names = block.column_names
        if not names:  # Ray Data has such tables in place of blocks without rows
            return block
        _refuse([column for column in columns if names.count(column) != 1], names, "columns")
        return block.select(columns)
    numbers = column_numbers(block, columns)
    return (
        block.tocsr()[:, numbers].asformat(block.format) if is_sparse(block) else block[:, numbers]
    )


def has_column_names(block: Any) -> bool:
    """Return whether columns are selected by name: of frames, tables and structured arrays."""
    first = block[0] if isinstance(block, tuple) else block
    return column_names(first) is not None or is_structured(first)


def is_structured(block: Any) -> bool:
    """Return whether a block is an array with fields."""
    return isinstance(block, np.ndarray) and block.dtype.names is not None


def field_names(dtype: np.dtype[Any], columns: list[Hashable]) -> list[str]:
    """Return columns that are fields of a structured dtype; refuse others."""
    names = dtype.names or ()
    _refuse([column for column in columns if column not in names], names, "fields")
    return [str(column) for column in columns]


def packed(dtype: np.dtype[Any], columns: list[Hashable]) -> np.dtype[Any]:
    """Return the dtype of some fields, without gaps."""
    return np.dtype([(name, dtype[name]) for name in field_names(dtype, columns)])


MIN_PACKED_ROWS: Final = 2**13
"""Compiled code reads each row once for all its fields. It takes 0.3 to 0.9 times as long as NumPy,
field by field, for 20,000 rows, 0.4 to 1.1 times for 5,000; compiling takes a process 2 to 8 ms."""


def pack_fields(rows: npt.NDArray[Any], out: npt.NDArray[Any]) -> bool:
    """Copy the fields that `out` has from structured rows with compiled code, if that is faster."""
    if len(rows) < MIN_PACKED_ROWS or rows.ndim > 1 or rows.dtype.hasobject or not is_installed():
        return False
    _field_packer(rows.dtype, out.dtype.names, rows.strides[0]).pack(rows, out, count=len(rows))
    return True


@functools.lru_cache(maxsize=16)
def _field_packer(dtype: np.dtype[Any], names: tuple[str, ...], stride: int) -> Any:
    """Return what packs some fields of rows that are `stride` bytes apart."""
    from spliter import layout as lo

    fields = [dtype.fields[name] for name in names] if dtype.fields else []
    types = [lo.contiguous(field[0].itemsize, "u1") for field in fields]
    row = lo.struct([1] * len(fields), [field[1] for field in fields], types)
    return lo.resized(row, 0, stride).commit("llvm")


def label_numbers(labels: Any, columns: list[Hashable]) -> list[int]:
    """Return the positions of columns in the labels of a frame; refuse unknown and double ones."""
    _refuse([column for column in columns if column not in labels], list(labels), "columns")
    found = [labels.get_loc(column) for column in columns]
    for column, at in zip(columns, found, strict=True):
        if not isinstance(at, int):
            levels = labels.nlevels
            advice = "rename them" if levels == 1 else f"pass tuples of {levels} labels"
            raise InvalidArgumentError(
                f"several columns have the label {column!r}; {advice}, or select by position "
                "inside a task"
            )
    return found


def column_numbers(block: Any, columns: list[Hashable]) -> list[int]:
    """Return columns of an array or sparse matrix as numbers from 0 on; refuse others."""
    shape: tuple[int, ...] = getattr(block, "shape", ())
    if len(shape) < 2 or not hasattr(type(block), "dtype"):
        raise InvalidArgumentError(
            f"blocks of type {type(block).__name__} and shape {tuple(shape)} have no columns; "
            "leave columns out"
        )
    width = shape[1]

    def is_known(column: Any) -> bool:
        is_whole = type(column) is int or isinstance(column, np.integer)
        return is_whole and -width <= column < width

    _refuse([one for one in columns if not is_known(one)], range(width), "columns")
    numbers = [operator.index(column) % width for column in columns]  # type: ignore[arg-type]
    if len(set(numbers)) < len(numbers):
        raise InvalidArgumentError(
            f"columns={columns!r} name a column of {width} twice; name each column once"
        )
    return numbers


def _refuse(unknown: list[Hashable], known: Sequence[Any], what: str) -> None:
    if unknown:
        shown = str(known) if isinstance(known, range) else ", ".join(map(repr, known[:20]))
        raise InvalidArgumentError(
            f"column {unknown[0]!r} is unknown; the {what} of the blocks are {shown}"
        )
