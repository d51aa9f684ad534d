"""Count, take and cut the rows of blocks of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spliter._errors import AlignmentError, InvalidArgumentError
from spliter._reading.kinds import checked, is_dataset, is_sparse, is_table, refuse_dataset


def count_rows(block: Any) -> int:
    """Return the number of items of a block along axis 0; for a tuple, of its first block.

    ``block.shape[0]`` if it has a shape (sparse matrices refuse ``len``), else its length.

    Raises
    ------
    InvalidArgumentError
        If it is a Dataset of xarray, or an iterator.

    Examples
    --------
    >>> count_rows([1, 2, 3]), count_rows(([1, 2], ["a", "b"]))
    (3, 2)
    """
    if isinstance(block, tuple):
        return count_rows(block[0])
    shape = getattr(block, "shape", None)
    if shape:
        return int(shape[0])
    refuse_dataset(block)
    return len(checked(block))


def take_rows(block: Any, rows: npt.NDArray[Any] | slice) -> Any:
    """Return some rows of a block; a view for a slice of an array.

    Parameters
    ----------
    block : block or tuple of block
        An array, table, DataFrame, sparse matrix or list; of a tuple, the rows of each.
    rows : ndarray of int, shape (n,), or slice
        Row numbers, in any order and repeated.

    Examples
    --------
    >>> import numpy as np
    >>> take_rows((np.arange(3) * 10, ["a", "b", "c"]), np.array([2, 0]))
    (array([20,  0]), ['c', 'a'])
    """
    if isinstance(block, tuple):
        return tuple(take_rows(member, rows) for member in block)
    if isinstance(block, list):
        return block[rows] if isinstance(rows, slice) else [block[row] for row in rows.tolist()]
    if is_sparse(block):  # not all formats can be indexed
        return block.tocsr()[rows].asformat(block.format)
    if is_table(block) and not isinstance(rows, slice):
        return block.take(rows)
    refuse_dataset(block)
    return block.iloc[rows] if hasattr(block, "iloc") else block[rows]


def cut_rows(values: Any, counts: npt.NDArray[np.int64]) -> list[Any]:
    """Cut an array with one entry for each of all rows into parts of so many rows."""
    ends = np.cumsum(counts).tolist()
    total = ends[-1] if ends else 0
    if (rows := count_rows(values)) != total:
        raise InvalidArgumentError(f"expected one entry for each of {total} rows, got {rows}")
    return [values[end - count : end] for end, count in zip(ends, counts.tolist(), strict=True)]


def has_rows(block: Any) -> bool:
    """Return whether a block, or another result of a task, has rows that can be counted.

    Examples
    --------
    >>> has_rows([1]), has_rows(1)
    (True, False)
    """
    if is_dataset(block):
        return False
    return bool(getattr(block, "shape", None)) or hasattr(block, "__len__")


def check_rows(blocks: Sequence[Any], at: object) -> None:
    """Reject aligned blocks of different lengths, when unknown sizes become known.

    `at` is the block index, for the error. Those without rows are ignored.

    Raises
    ------
    AlignmentError
        If the numbers of rows differ.

    Examples
    --------
    >>> check_rows(([1, 2], ["a", "b"]), (0,))
    """
    rows = [count_rows(block) for block in blocks if has_rows(block)]
    if len(set(rows)) > 1:
        raise AlignmentError(
            f"the aligned blocks at {at} have {rows} rows; rechunk the collections to the same "
            "blocks along axis 0"
        )
